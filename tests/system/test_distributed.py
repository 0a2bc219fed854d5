from __future__ import annotations

import os
import subprocess
import sys

import pytest

from auber.cli.screen import LineProgress, listening
from auber.system.distributed import is_main_process, num_processes
from auber.system.progress import Silent


def test_only_the_first_process_of_a_group_writes(monkeypatch):
    assert is_main_process()
    assert num_processes() == 1
    monkeypatch.setenv("RANK", "1")
    assert is_main_process(), "without a group there is no other"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not is_main_process()
    assert num_processes() == 2


@pytest.mark.parametrize(("rank", "speaks"), [("0", True), ("1", False)])
def test_only_the_first_process_of_a_group_speaks(monkeypatch, rank, speaks):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with listening(quiet=False) as progress:
        assert type(progress) is (LineProgress if speaks else Silent)
    done = subprocess.run(
        [sys.executable, "-m", "auber", "tasks"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("mrpc" in done.stdout) == speaks
    assert (done.stdout == "") != speaks


def test_every_process_of_a_group_says_what_ended_it(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = subprocess.run(
        [sys.executable, "-m", "auber", "report", "nowhere"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("auber: nowhere")
