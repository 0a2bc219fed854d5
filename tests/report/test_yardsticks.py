"""Results of other commands on the page: made results, read back and shown, and damage that is named."""

from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.report.page import render_page, write_page
from auber.report.regrets import regret_figure, regret_table
from auber.report.results_file import read_results_file, save_results
from auber.report.speeds import read_speed, speed_tables
from tests.report.made import make_regret, make_speed
from tests.report.results import write_study


@pytest.fixture
def regret(tmp_path):
    file = tmp_path / "kept" / "regret.json"
    file.parent.mkdir()
    file.write_text(json.dumps(make_regret()))
    return file


@pytest.fixture
def speed(tmp_path):
    file = tmp_path / "speed.json"
    file.write_text(json.dumps(make_speed().to_json()))
    return file


def change(file, key, value):
    """The file with the entry at a dotted key replaced, or taken out for None."""
    content = json.loads(file.read_text())
    *path, last = key.split(".")
    place = content
    for name in path:
        place = place[int(name) if isinstance(place, list) else name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    file.write_text(json.dumps(content))
    return read_results_file(file)


def test_regret_on_the_page(regret, tmp_path):
    text = render_page([regret])
    for words in (
        "## What a search misses of a layer's best mask\n",
        "### Regret in points, 2 plays of each agent on each layer\n",
        "#### made-up, protocol seen\n",
        "| task | layers | search | after 50 rewards |",
        "| toys | 2 | agent, preset paper | 0.50 (-1.40 to 2.40) |",
        "| toys | 2 | random masks, in expectation | 0.80 |",
        "From regret.json, made by:\n\n    auber prune --method exhaustive\n    python -m benchmarks.regret runs/all\n",
    ):
        assert words in text
    assert "![" not in text, "no drawing lies beside the file"


def test_the_drawing_lies_beside_the_page(regret, tmp_path):
    drawing = regret_figure(read_results_file(regret))
    regret.with_suffix(".svg").write_text(drawing)
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    write_page(page, [regret])
    assert "![Regret in points against the number of rewards](regret.svg)" in page.read_text()
    assert (page.parent / "regret.svg").read_text() == drawing


def test_two_drawings_of_one_name_are_refused(regret, tmp_path):
    files = [regret, tmp_path / "other" / "regret.json"]
    files[1].parent.mkdir()
    files[1].write_text(regret.read_text())
    for file in files:
        file.with_suffix(".svg").write_text("<svg/>")
    words = r"other/regret.svg: another drawing of this name, .*kept/regret.svg, goes beside the page; rename one and its file"
    with pytest.raises(RunError, match=words):
        write_page(tmp_path / "results.md", files)
    assert not (tmp_path / "results.md").exists()


def test_speed_on_the_page(speed):
    text = render_page([speed])
    for words in (
        "## What removing heads buys in speed\n",
        "### Size and speedup on cpu (95 % interval)\n",
        "| rte auber seed 0 | 40 of 144 | 101 M of 109.5 M (-7.7 %) |",
        "| 2.00 (2.00 to 2.00) | 0.80 (0.80 to 0.80) slower |",
        "- rows of 128 tokens, 2 CPU threads; both models have random weights",
        "- left out: torch on a GPU: there is none here\n",
        "From speed.json, made by:\n\n    auber speed x\n",
    ):
        assert words in text


def test_speed_is_read_back_as_it_was_made(speed):
    assert read_speed(read_results_file(speed)).to_json() == make_speed().to_json()


def test_the_page_has_all_kinds_in_their_order(regret, speed):
    headings = [
        line for line in render_page([speed, regret]).splitlines() if line.startswith("## ")
    ]
    assert headings == [
        "## What a search misses of a layer's best mask",
        "## What removing heads buys in speed",
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "^regret.json: format 1 can be read, found 2; measure it again"),
        ("seeds", "ten", "^regret.json: 'seeds' must be a whole number, found 'ten'"),
        ("panels.0.task", None, "^regret.json: panel 0: lacks 'task'"),
        ("panels.0.mean.paper.50.mean", None, "^regret.json: panel 0: lacks 'mean.paper.50.mean'"),
        (
            "panels.0.mean",
            {"<b>": {}},
            "^regret.json: a search must be a preset, greedy or random, found '<b>'",
        ),
    ],
)
def test_damage_to_regret_is_named(regret, key, value, message):
    with pytest.raises(RunError, match=message):
        regret_table(change(regret, key, value))


def test_damage_to_what_only_the_drawing_needs_is_named(regret):
    file = change(regret, "panels.0.layers", [])
    with pytest.raises(
        RunError,
        match=r"^regret.json: must be a result of 'auber regret', found damage \(ValueError",
    ):
        regret_figure(file)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "^speed.json: 'format' must be 1, found 2; it is damaged"),
        ("runs", [], "^speed.json: 'runs' must have at least one run"),
        (
            "runs.0.pairs.1.batch",
            1.5,
            "^speed.json: 'runs.0.pairs.1.batch' must be a whole number, found 1.5",
        ),
        (
            "runs.0.parameters.unpruned",
            0,
            "^speed.json: 'runs.0.parameters.unpruned' must be at least 1, found 0",
        ),
        ("provenance.threads", None, "^speed.json: lacks 'provenance.threads'"),
    ],
)
def test_damage_to_speed_is_named(speed, key, value, message):
    with pytest.raises(RunError, match=message):
        speed_tables(change(speed, key, value))


def test_notes_stand_where_the_numbers_come_from(tmp_path):
    write_study(tmp_path / "s", {"rte": {"auber": [60.0]}})
    save_results(
        tmp_path / "s",
        tmp_path / "s.json",
        notes=["Six blocks shared the GPU, so *seconds* are longer."],
    )
    assert (
        "### s.json\n\n- Note: Six blocks shared the GPU, so \\*seconds\\* are longer.\n"
        in render_page([tmp_path / "s.json"])
    )
