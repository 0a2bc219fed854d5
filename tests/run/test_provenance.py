from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from auber.run import provenance
from tests.small import cpu

ROOT = Path(__file__).parents[2]


def test_a_result_knows_its_surroundings(monkeypatch):
    monkeypatch.delenv("AUBER_COMMIT", raising=False)
    described = provenance.describe(cpu())
    assert (described["threads"], described["processes"]) == (1, 1)
    assert described["device"] == "cpu"
    assert set(described["versions"]) >= {"python", "auber", "torch", "transformers"}
    if (ROOT / ".git").exists():  # an unpacked source distribution has no history
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert described["commit"]["id"] == head.stdout.strip()
    else:
        assert described["commit"] is None


def test_a_copy_without_history_takes_its_commit_from_the_environment(monkeypatch):
    for given, is_dirty in (("abc+", True), ("abc", False)):
        monkeypatch.setenv("AUBER_COMMIT", given)
        assert provenance.describe(cpu())["commit"] == {"id": "abc", "dirty": is_dirty}


@pytest.mark.parametrize(
    ("processes", "words", "typed", "recorded"),
    [
        (
            "1",
            ["/usr/bin/auber", "prune", "--model", "/home/me/bert base", "--out=/tmp/x/run"],
            "auber prune --model '/home/me/bert base' --out=/tmp/x/run",
            "auber prune --model 'bert base' --out=run",
        ),
        (
            "4",
            ["/src/auber/__main__.py", "prune", "--out", "/runs/a"],
            "torchrun --nproc-per-node 4 -m auber prune --out /runs/a",
            "torchrun --nproc-per-node 4 -m auber prune --out a",
        ),
    ],
)
def test_the_recorded_command_has_no_folders(monkeypatch, processes, words, typed, recorded):
    monkeypatch.setenv("WORLD_SIZE", processes)
    monkeypatch.setattr(sys, "argv", words)
    assert provenance.typed_command() == typed
    assert provenance.without_folders(typed) == recorded
    assert provenance.describe(cpu())["processes"] == int(processes)


@pytest.mark.parametrize(
    ("command", "cut"),
    [
        ("auber prune --out ~/runs/a --data ../glue", "auber prune --out a --data glue"),
        ("python prune.py > log", "python prune.py > log"),
        ("it isn't a shell: /home/me/x", "it 'isn'\"'\"'t' a shell: x"),
    ],
)
def test_a_command_is_changed_only_where_it_names_folders(command, cut):
    assert provenance.without_folders(command) == cut
