"""The page in a real browser: hover and keyboard, themes, a phone, print and hostile names."""

from __future__ import annotations

import shutil

import pytest

from auber.report.page import make_page, write_page
from tests.report.made_runs import HOSTILE, write_ranked, write_searched, write_sized
from tests.report.results import write_study

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on the path (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (the extra 'dev' has it)"
    )
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(browser):
    """Opens a page from disk; whatever it complains about or asks for fails the test."""
    complaints, contexts = [], []

    def call(path, **context):
        contexts.append(browser.new_context(**context))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                complaints.append(request.url)
                if request.url != path.as_uri() and not request.url.startswith("data:")
                else None
            ),
        )
        page.goto(path.as_uri())
        return page

    yield call
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def run_page(tmp_path):
    return write_page(make_page([write_searched(tmp_path)]), tmp_path / "out")[0]


@pytest.fixture
def sizes_page(tmp_path):
    places = [write_sized(tmp_path, "a"), write_sized(tmp_path, "b", sizes=[])]
    return write_page(make_page(places), tmp_path / "out-sizes")[0]


@pytest.fixture
def study_page(tmp_path):
    write_study(
        tmp_path / "s",
        {"rte": {"auber": [66.0, 65.0, 67.0], "original+tuning": [64.0, 63.5, 64.2]}},
    )
    return write_page(make_page([tmp_path / "s"]), tmp_path / "out")[0]


def colour(page, selector, name="background-color"):
    return page.eval_on_selector(
        selector, f"element => getComputedStyle(element).getPropertyValue('{name}')"
    )


def test_pages_render_without_a_complaint(show, run_page, sizes_page, study_page):
    for path in (run_page, sizes_page, study_page):
        page = show(path)
        assert page.inner_text("h2#verdict-title") == "Answer"
        assert page.locator("figure img").count() >= 1
        assert page.locator("img").evaluate_all("all => all.every(each => each.naturalWidth > 100)")


def test_pointing_at_a_head_tells_about_it(show, run_page):
    page = show(run_page)
    tip = page.locator("#tip")
    assert tip.is_hidden()
    page.hover("td[aria-label^='layer 0, head 1:']")
    assert tip.inner_text().startswith("layer 0, head 1: removed; state 0.")
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.viewport_size["width"]
    page.mouse.move(2, 2)
    assert tip.is_hidden()


def test_bars_are_as_long_as_the_neurons_left(show, sizes_page):
    page = show(sizes_page)
    bars = page.locator("table.heads").first.locator("td.bar")
    assert bars.all_inner_texts() == ["50", "100", "0"]
    shares = bars.evaluate_all(
        "all => all.map(each => getComputedStyle(each).getPropertyValue('--share'))"
    )
    assert shares == ["50%", "100%", "0%"]
    bars.first.hover()
    assert page.inner_text("#tip") == "layer 0: 50 of 100 neurons left"
    first = page.locator("table.heads").first.locator("[tabindex='0']")
    first.focus()
    page.keyboard.press("ArrowLeft")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#tip") == "layer 0: 50 of 100 neurons left", "the keyboard gets there"


def test_the_keyboard_reaches_every_head(show, run_page):
    page = show(run_page)
    first = page.locator("table.heads").first.locator("[tabindex='0']")
    assert first.count() == 1, "one stop for each map"
    first.focus()
    said = []
    for key in (None, "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowUp"):
        if key:
            page.keyboard.press(key)
        said.append(page.inner_text("#tip").split(":")[0])
    assert said == [
        "layer 0, head 0",
        "layer 0, head 1",
        "layer 1, head 1",
        "layer 1, head 0",
        "layer 0, head 0",
        "layer 0, head 0",
    ]
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_the_theme_follows_the_system_and_the_button(show, run_page):
    white, dark = "rgb(255, 255, 255)", "rgb(21, 25, 30)"
    light_page = show(run_page, color_scheme="light")
    assert colour(light_page, "body") == white
    page = show(run_page, color_scheme="dark")
    assert colour(page, "body") == dark
    removed = "td[aria-label^='layer 0, head 1:']"
    dark_loss = colour(page, removed)
    page.get_by_role("button", name="Switch to light colours").click()
    assert colour(page, "body") == white
    assert colour(page, removed) != dark_loss
    for _ in range(20):  # the browser brings what a page stores to the next one in its own time
        page.reload()
        if colour(page, "body") == white:
            break
        page.wait_for_timeout(100)
    assert colour(page, "body") == white, "the choice is remembered"
    page.get_by_role("button", name="Switch to dark colours").click()
    page.emulate_media(media="print")
    assert colour(page, "body") == white, "paper is white"


def test_a_phone_needs_no_sideways_scrolling(show, run_page, sizes_page, study_page):
    for path in (run_page, sizes_page, study_page):
        page = show(path, viewport={"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        scrolled = page.locator(".scroll:has(table)").evaluate_all(
            "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
        )
        assert scrolled == []


def test_on_a_phone_every_number_keeps_the_name_of_its_column(show, sizes_page):
    page = show(sizes_page, viewport={"width": 390, "height": 800})
    cell = page.locator(".models td[data-label='times as fast']", has_text="2.0").first
    label = cell.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert label == '"times as fast"'
    place, row = cell.bounding_box(), cell.locator("xpath=..").locator("th").bounding_box()
    assert place["y"] > row["y"], "a row is a list below its name"


def test_paper_has_no_menu_and_whole_tables(show, sizes_page):
    page = show(sizes_page, viewport={"width": 680, "height": 900})
    page.emulate_media(media="print")
    for selector in ("nav", "#theme", ".file >> nth=0"):
        assert not page.locator(selector).is_visible()
    assert page.locator(".models table").bounding_box()["width"] <= 680
    first, second = (page.locator("table.heads").nth(place).bounding_box() for place in (0, 1))
    assert first["y"] == second["y"], "maps stand side by side"
    assert not page.locator("details table").first.is_visible(), "folded tables stay folded"


@pytest.mark.parametrize("first", [0, 3])
def test_hostile_names_do_nothing(show, tmp_path, first):
    """Each of the names in another place; `test_render` has every name in every place."""
    names = [*HOSTILE[first:], *HOSTILE[:first]]
    changes = {
        **dict(zip(("task", "model", "method", "metric"), names, strict=False)),
        "config": {"seed": 0, names[4]: names[5]},
    }
    run = write_searched(tmp_path, **changes)
    places = {
        "run": [run],
        "both": [run, write_ranked(tmp_path, **{**changes, "method": "michel"})],
        "study": [tmp_path],
    }
    for kind, of_kind in places.items():
        path, *_ = write_page(make_page(of_kind), tmp_path / "out" / kind)
        page = show(path)
        page.hover("table.heads td")
        assert page.evaluate("document.title") == page.inner_text("h1") != "owned"
        for name in names[:4]:
            assert name in page.inner_text("body"), "it is shown as it is"
        assert (
            page.locator("img:not([src^='data:image/svg']), iframe, object, body script").count()
            == 0
        )
