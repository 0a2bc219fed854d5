"""The pages in the repository, as they are read there: links lead somewhere, and what they say of the code is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.test_structure import ORDER

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(
        r"^#+ (.+)$",
        re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE),
        re.MULTILINE,
    )
    return {
        re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors_of(linked), f"{target}#{anchor}"


def test_the_code_of_the_game_page_runs():
    """Also by 'make docs'; here because an environment that others build on must not break unseen."""
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "game.md").read_text(), flags=re.DOTALL
    )
    assert len(blocks) == 2
    for block in blocks:
        names: dict[str, object] = {}
        exec(compile(block, "docs/game.md", "exec"), names)
        assert names["state"].shape == names["env"].observation_space.shape


def test_the_table_of_modules_has_every_module():
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)/?`", row)]
    assert sorted(named) == sorted(ORDER)


def test_what_the_readme_quotes_of_the_results_is_there():
    readme, results = (
        " ".join((ROOT / name).read_text().split()) for name in ("README.md", "docs/results.md")
    )
    (quoted,) = re.findall(r'the runs so far say: "([^"]+)"', readme)
    assert quoted in results


def test_the_differences_from_the_paper_are_numbered_in_order():
    section = (ROOT / "docs" / "method.md").read_text().split("## Differences from the paper")[1]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. \*\*", section, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 18  # those that were numbered when others began to refer to them


def test_what_the_page_on_reliability_says_of_a_gpu_is_what_was_seen():
    seen = json.loads((ROOT / "results/gpu-repeats.json").read_text())["runs"]
    assert [run["same_weights"] for run in seen].count(True) == 3
    assert len(seen) == 6
    apart = sorted(
        round(100 * abs(run["dev"][0] - run["dev"][1]), 2)
        for run in seen
        if not run["same_weights"]
    )
    assert apart == [0, 0, 0.25]
    page = " ".join((ROOT / "docs/reliability.md").read_text().split())
    assert "of six fine-tuned starts three had the same weights to the bit" in page
    assert "the others' dev scores were 0, 0 and 0.25 points apart" in page
