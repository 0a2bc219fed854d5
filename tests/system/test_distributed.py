from __future__ import annotations

import subprocess
import sys

import pytest

from auber.system.distributed import is_main_process, launch_words, num_processes


def test_only_the_first_process_is_the_main_process(monkeypatch):
    assert is_main_process()
    assert num_processes() == 1
    assert launch_words() == []
    monkeypatch.setenv("RANK", "1")
    assert is_main_process(), "a rank without a group means nothing"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not is_main_process()
    assert num_processes() == 2
    assert launch_words() == ["torchrun", "--nproc-per-node", "2", "-m"]


def auber(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "auber", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_main_process_prints_but_every_process_reports_its_error(monkeypatch, rank):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = auber("--version")
    assert (done.returncode, bool(done.stdout)) == (0, rank == 0)
    failed = auber("report", "nowhere")
    assert failed.returncode == 2
    assert failed.stderr.startswith("auber: nowhere")
