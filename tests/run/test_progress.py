from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from auber.run.files import read_json
from auber.run.folder import Run
from auber.run.progress import FolderProgress
from auber.run.records import RunIdentity
from auber.system.locks import start_of
from tests.small import small_config


class Clock:
    """Time that passes when told to."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def run(tmp_path):
    return Run(
        tmp_path / "run",
        RunIdentity(kind="prune", model="m", task="t", method="auber"),
        small_config(),
    )


def events_of(run):
    return [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]


def test_the_folder_says_who_is_at_work_and_where(run):
    clock = Clock()
    with FolderProgress(run, "auber prune --out run", clock, clock) as listener:
        listener.plan([1.0] * 5)
        listener.skip(1)
        listener.begin("layer 0: searching", 40)
        clock.now += 2
        listener.step(7, "best 0.5")
        written = read_json(run.folder / "progress.json")
        listener.plan([30.0, 10.0])
        listener.begin("layer 0: searching", 40)
        listener.end()
        assert read_json(run.folder / "progress.json")["share"] == pytest.approx(0.75), (
            "by work where that is told"
        )
    assert written["process"]["id"] == os.getpid()
    assert (written["process"]["started"], written["process"]["after_boot"]) == start_of(
        psutil.Process()
    )
    assert written["process"]["command"] == "auber prune --out run"
    assert written["process"]["folder"] == str(Path.cwd())
    assert written["time"] == 1002
    assert written["share"] == pytest.approx(7 / 40 / 4)
    assert written["stage"] == {
        "name": "layer 0: searching",
        "began": 1000,
        "done": 7,
        "total": 40,
        "note": "best 0.5",
    }


def test_it_is_written_at_most_once_a_second_within_a_stage(run, monkeypatch):
    clock, writes = Clock(), []
    monkeypatch.setattr(
        Run,
        "write",
        lambda self, name, data: writes.append(data["stage"] and data["stage"]["done"]),
    )
    with FolderProgress(run, clock=clock, timer=clock) as listener:
        listener.begin("first tuning", 100)
        for done in range(1, 31):
            clock.now += 0.1
            listener.step(done)
        listener.end()
    assert writes[:2] == [None, 0]
    assert len(writes[2:-1]) in (2, 3), "three seconds"
    assert writes[-1] is None


def test_words_that_nobody_could_type_again_are_left_out(run, tmp_path, monkeypatch):
    (tmp_path / "a\nb").mkdir()
    monkeypatch.chdir(tmp_path / "a\nb")
    with FolderProgress(run, "auber prune --out 'a\nb'"):
        written = read_json(run.folder / "progress.json")
    assert (written["process"]["command"], written["process"]["folder"]) == (None, None)


def test_an_error_is_the_last_event_and_leaves_the_place(run):
    def fail():
        with FolderProgress(run) as listener:
            listener.begin("first tuning", 10)
            raise ValueError("out of luck\nand more")

    with pytest.raises(ValueError, match="out of luck"):
        fail()
    assert events_of(run)[-1]["error"] == "ValueError: out of luck"
    assert read_json(run.folder / "progress.json")["stage"]["name"] == "first tuning"


def test_a_complete_run_keeps_no_progress(run):
    with FolderProgress(run):
        run.write("result.json", {})
    assert not (run.folder / "progress.json").exists()


def test_a_place_that_cannot_be_written_costs_one_warning_and_no_run(run, monkeypatch, caplog):
    def refuse(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Run, "write", refuse)
    with FolderProgress(run) as listener:
        listener.begin("first tuning", 1)
        listener.end()
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "progress.json: cannot be written ([Errno 28] No space left on device); 'auber"
    )
