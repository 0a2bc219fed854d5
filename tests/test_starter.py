"""A process of the starter is a real one: its own memory, folder and environment, an exit code, and a number to kill it by."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.starter import Call, Process


def write_what_is_seen(out: str, *others: str) -> None:
    found = (
        str(Path.cwd()),
        os.environ.get("STARTED"),
        os.getpid(),
        "torch" in sys.modules,
        others,
    )
    Path(out).write_text(repr(found))


def end_with(code: str) -> None:
    raise SystemExit(int(code))


def fail() -> None:
    raise ValueError("on purpose")


def sleep_long() -> None:
    time.sleep(600)


def test_it_is_called_where_and_with_what_was_asked(starter, tmp_path):
    environment = {**os.environ, "STARTED": "here"}
    call = Call(
        "tests.test_starter:write_what_is_seen",
        [str(tmp_path / "out"), "a b"],
        str(tmp_path),
        environment,
    )
    process = Process(starter.address, call)
    assert process.wait() == 0
    assert (tmp_path / "out").read_text() == repr(
        (str(tmp_path), "here", process.number, True, ("a b",))
    )
    assert process.number != os.getpid()


def test_the_exit_code_is_told(starter, capfd):
    assert starter.start("tests.test_starter:end_with", "7").wait() == 7
    assert capfd.readouterr().err == ""
    assert starter.start("tests.test_starter:fail").wait() == 1
    assert "ValueError: on purpose" in capfd.readouterr().err


def test_it_can_be_killed(starter):
    process = starter.start("tests.test_starter:sleep_long")
    assert not process.has_ended
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert process.has_ended


def test_several_are_at_work_at_a_time(starter):
    first = starter.start("tests.test_starter:sleep_long")
    assert starter.start("tests.test_starter:end_with", "0").wait() == 0
    assert not first.has_ended
    first.kill()
    assert first.wait() == -signal.SIGKILL
