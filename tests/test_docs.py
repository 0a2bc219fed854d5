"""Links between the pages of the repository work, and the code of the game page runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
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
def test_links_work(page: Path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors_of(linked), f"{target}#{anchor}"


def test_the_code_of_the_game_page_runs():
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "game.md").read_text(), flags=re.DOTALL
    )
    assert len(blocks) == 2
    for block in blocks:
        names: dict[str, object] = {}
        exec(compile(block, "docs/game.md", "exec"), names)
        assert names["state"].shape == names["env"].observation_space.shape
