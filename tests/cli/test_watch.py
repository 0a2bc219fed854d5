from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from auber.cli import watch
from auber.cli.status import read_status
from auber.errors import RunError
from tests.cli.run_folder import NOW, RESULT, RunFolder


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    monkeypatch.setattr("auber.cli.status.time", SimpleNamespace(time=lambda: NOW))


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.search_layer_1()
    return folder


def drawn(folder, width=80):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(watch.draw(read_status(folder.path)))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_search(folder):
    lines = drawn(folder, 100)
    assert lines[0] == ("auber prune  task rte  method auber  seed 7  model bert-tiny")
    assert lines[1].startswith("running  process ")
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "3/12 60 s left best 0.9\n" in text
    assert "41% about 94 s left\n" in text
    assert lines[-6:] == [
        "rewards asked 12  rewards computed 4  best score 0.875",
        "next stages: last, evaluation",
        "layer  heads             removed  gain",
        "0      ■□■□   decided    2        +12.50",
        "1      ····   searching",
        "2      ····   open",
    ]
    assert max(map(len, drawn(folder, 40))) <= 40


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("KeyboardInterrupt: ", "stopped by Ctrl-C"),
        ("Terminated: ", "stopped by SIGTERM"),
        ("TuningError: loss nan", "TuningError: loss nan"),
    ],
)
def test_what_stopped_a_run_and_how_it_resumes(run_auber, folder, error, words):
    command = (
        "auber prune --model some-long-model-name --task rte --data glue --seed 7 --set "
        "first.epochs=3 --set last.epochs=3 --set first.learning_rate=0.00002 --set max_length=64 "
        "--out runs/rte"
    )
    folder.progress("layer 1: searching", 3, 12, started=1.0, command=command)
    folder.event("stopped", error=error)
    lines = drawn(folder)
    assert words in lines
    assert "not running" in lines
    code, out, _ = run_auber("watch", folder.path, "--once")
    assert (code, out.splitlines()[-1]) == (1, f"resume with: {command} --resume"), "on one line"


def test_once_and_json(run_auber, folder):
    code, out, _ = run_auber("watch", folder.path, "--once")
    assert code == 0
    assert out.startswith("auber prune  task rte  method auber  seed 7")
    assert "\x1b" not in out
    code, out, _ = run_auber("watch", folder.path, "--json")
    status = json.loads(out)
    assert (code, status["state"], status["numbers"]["rewards_asked"]) == (0, "running", 12)
    folder.event("stopped", error="KeyboardInterrupt: ")
    for option in ("--once", "--json"):
        code, out, _ = run_auber("watch", folder.path, option)
        assert (code, "stopped" in out) == (1, True)


@pytest.fixture
def between_updates(monkeypatch):
    """Call functions after an update each, so that the result does not depend on timing."""

    def do(*calls):
        left = list(calls)

        def sleep(seconds):
            time.sleep(seconds)
            if left:
                left.pop(0)()

        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))

    return do


def test_it_waits_for_a_run_and_follows_it(run_auber, tmp_path, between_updates):
    between_updates(
        lambda: RunFolder(tmp_path / "run").search_layer_1(),
        lambda: (tmp_path / "run" / "result.json").write_text(json.dumps(RESULT)),
    )
    code, out, _ = run_auber("watch", tmp_path / "run", "--interval", "0.1")
    assert code == 0
    assert out.startswith(f"waiting for a run or a study in {tmp_path / 'run'} (Ctrl-C exits)")
    assert "layer 1: searching" in out
    assert out.count("dev accuracy 75.00") == 1


def begin_below(place, method, *, age):
    folder = RunFolder(place / method, method)
    folder.search_layer_1()
    moment = time.time() - age
    os.utime(folder.path / "run.json", (moment, moment))
    return folder


def test_it_moves_on_to_the_next_run(run_auber, tmp_path, monkeypatch, between_updates):
    monkeypatch.setattr(watch, "_SURE_SECONDS", 1.5)
    begin_below(tmp_path, "older", age=90)
    begin_below(tmp_path, "auber", age=60).write("result.json", RESULT)
    worse = {**RESULT, "dev": {"score": 0.5}}
    between_updates(lambda: begin_below(tmp_path, "random", age=0).write("result.json", worse))
    code, out, _ = run_auber("watch", tmp_path, "--interval", "0.1")
    places = [out.index(text) for text in ("accuracy 75.00", "method random", "accuracy 50.00")]
    assert (code, sorted(places)) == (0, places)


@pytest.mark.parametrize("several", [True, False])
def test_it_exits_with_1_if_a_run_stopped(run_auber, tmp_path, monkeypatch, several):
    monkeypatch.setattr(watch, "_SURE_SECONDS", 0.2)
    run = begin_below(tmp_path, "random", age=0)
    run.progress("layer 1: searching", 3, 12, started=1.0, command="auber prune --out run")
    place = tmp_path if several else run.path
    code, out, _ = run_auber("watch", place, "--interval", "0.1")
    assert code == 1
    assert out.endswith("\nresume with: auber prune --out run --resume\n")


def test_ctrl_c_exits_quietly(run_auber, folder, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", stop)
    code, _, err = run_auber("watch", folder.path)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("name", ["x/thesis/a.tex", "x/thesis.pdf", "x"])
def test_something_else_is_an_error(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    message = "x: must be the folder of a run, of several, or of a study, found something else;"
    with pytest.raises(RunError, match=message):
        watch.find_place(tmp_path / "x")


def test_nothing_and_damage_are_one_line(run_auber, folder):
    code, _, err = run_auber("watch", folder.path / "x", "--once")
    assert (code, "must hold a run or a study, found neither" in err) == (2, True)
    (folder.path / "progress.json").write_text("3")
    code, out, err = run_auber("watch", folder.path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "progress.json: must be a JSON object" in err


@pytest.mark.parametrize(("terminal", "is_live"), [("xterm", True), ("dumb", False)])
def test_on_a_terminal(folder, terminal, is_live):
    folder.write("result.json", RESULT)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": terminal, "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-m", "auber", "watch", str(folder.path)]
    process = subprocess.Popen(command, stdout=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # it has exited
            break
    os.close(ours)
    assert process.wait() == 0
    assert b"dev accuracy 75.00" in shown
    assert b"\x1b[3" not in shown, "NO_COLOR"
    assert (b"\x1b[?25l" in shown) == is_live
