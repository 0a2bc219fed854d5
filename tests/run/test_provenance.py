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


def test_a_result_tells_of_the_group_that_computed_it(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert provenance.describe(cpu())["processes"] == 4


def test_the_command_of_a_group_starts_a_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(sys, "argv", ["/src/auber/__main__.py", "prune", "--out", "/runs/a"])
    assert provenance.typed_command() == "torchrun --nproc-per-node 4 -m auber prune --out /runs/a"
    assert provenance.command_line() == "torchrun --nproc-per-node 4 -m auber prune --out a"


def test_a_copy_without_history_is_told_its_commit(monkeypatch):
    monkeypatch.setenv("AUBER_COMMIT", "abc+")
    assert provenance.describe(cpu())["commit"] == {"id": "abc", "dirty": True}
    monkeypatch.setenv("AUBER_COMMIT", "abc")
    assert provenance.describe(cpu())["commit"] == {"id": "abc", "dirty": False}


def test_the_command_has_no_folders_of_the_machine(monkeypatch):
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "/usr/bin/auber",
            "prune",
            "--model",
            "/home/me/bert base",
            "--out=/tmp/x/run",
            "--seed",
            "1",
        ],
    )
    assert provenance.command_line() == "auber prune --model 'bert base' --out=run --seed 1"
    assert (
        provenance.typed_command()
        == "auber prune --model '/home/me/bert base' --out=/tmp/x/run --seed 1"
    )
    monkeypatch.setattr(sys, "argv", ["/src/auber/__main__.py", "bench", "studies/quick.toml"])
    assert provenance.command_line() == "auber bench studies/quick.toml"


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
