"""What a user of 0.1 could name is still there, or CHANGELOG names it with the reason it went."""

from __future__ import annotations

import json
from pathlib import Path

from tests.golden import inventory

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def test_what_is_gone_is_in_the_changelog():
    before, now = json.loads(inventory.RECORDED.read_text()), inventory.collect()
    gone = [each for kind in before for each in before[kind] if each not in now[kind]]
    changes = CHANGELOG.read_text()
    unnamed = [
        each
        for each in gone
        if f"`{each}`" not in changes and f"`{each.split()[0]}`" not in changes
    ]
    assert unnamed == []
