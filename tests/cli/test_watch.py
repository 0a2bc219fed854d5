from __future__ import annotations

import io
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
from auber.cli.status import RunReader
from auber.errors import RunError
from tests.cli.run_folder import NOW, RESULT, RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.search_layer_1()
    return folder


def drawn(folder, width=80, *, ascii_only=False):
    encoding = "ascii" if ascii_only else "utf-8"
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(file=file, width=width)
    console.print(watch.draw(RunReader(folder.path, clock=lambda: NOW).read(), console))
    file.seek(0)
    return [line.rstrip() for line in file.read().splitlines()]


def test_a_search(folder):
    lines = drawn(folder)
    assert lines[0] == (
        "auber prune  task rte  method auber  seed 7  protocol heldout  model bert-tiny"
    )
    assert lines[1].startswith("running for 2 min  process ")
    assert lines[2:7] == [
        "✓ first 12 s   · last   · evaluation",
        "layer 1: searching    ━━━━━───────────────  3/12  60 s left  best 0.9",
        "whole run             ━━━━━━━━────────────  41%  open layers about 30 s",
        "rewards asked 12  rewards computed 4  best score 0.875",
        "✓  0 ■□■□  -2 +12.50   ▶  1 ▒▒▒▒   ·  2 ····",
    ]


def test_a_terminal_without_unicode(folder):
    text = "\n".join(drawn(folder, ascii_only=True))
    assert text.isascii()
    assert "+  0 #-#-  -2 +12.50   >  1 ????" in text


@pytest.mark.parametrize("width", [20, 40, 200])
def test_no_line_is_wider_than_the_terminal(folder, width):
    assert max(map(len, drawn(folder, width))) <= width


def test_a_tuning(folder):
    numbers = {"layer-01/tuning/loss": 0.25, "layer-01/tuning/steps_per_second": 4.0}
    folder.event("numbers", step=8, values=numbers)
    folder.progress("layer 1: tuning", 8, 16)
    assert "loss 0.25  steps per second 4" in drawn(folder)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("KeyboardInterrupt: ", "stopped by Ctrl-C"),
        ("Terminated: ", "stopped by SIGTERM"),
        ("TuningError: loss nan", "TuningError: loss nan"),
    ],
)
def test_what_stopped_a_run_and_how_it_resumes(folder, error, words):
    command = (
        "auber prune --model some-long-model-name --task rte --data glue --seed 7 --out runs/rte"
    )
    folder.progress("layer 1: searching", 3, 12, started=1.0, command=command)
    folder.event("stopped", error=error)
    lines = drawn(folder)
    assert words in lines
    assert not [line for line in lines if "stopped: " in line]
    assert f"nobody is at work; go on with: {command} --resume" in " ".join(lines)


def test_a_complete_run(folder):
    folder.write("result.json", RESULT)
    lines = drawn(folder, 400)
    assert lines[1] == f"complete  in {folder.path}"
    assert lines[2].startswith("dev accuracy 75.00, train 87.50, gap +12.50 points")
    assert lines[3].startswith("2 of 12 heads removed; ")


def test_once_and_json(run_auber, folder):
    code, out, _ = run_auber("watch", folder.path, "--once")
    assert code == 0
    assert out.startswith("auber prune  task rte  method auber  seed 7")
    assert "\x1b" not in out
    code, out, _ = run_auber("watch", folder.path, "--json")
    status = json.loads(out)
    assert (code, status["state"], status["numbers"]["rewards_asked"]) == (0, "running", 12)


@pytest.mark.parametrize("option", ["--once", "--json"])
def test_once_of_a_stopped_run_is_exit_code_1(run_auber, folder, option):
    folder.event("stopped", error="KeyboardInterrupt: ")
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

        clock = SimpleNamespace(
            monotonic=time.monotonic,
            sleep=sleep,
            strftime=time.strftime,
            localtime=time.localtime,
        )
        monkeypatch.setattr(watch, "time", clock)

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


def test_the_newest_of_several_runs(run_auber, tmp_path):
    begin_below(tmp_path, "random", age=5)
    begin_below(tmp_path, "auber", age=60)
    (tmp_path / "notes.txt").write_text("mine")
    code, out, _ = run_auber("watch", tmp_path, "--json")
    assert (code, json.loads(out)["folder"]) == (0, str(tmp_path / "random"))


def test_it_moves_on_to_the_next_run(run_auber, tmp_path, monkeypatch, between_updates):
    monkeypatch.setattr(watch, "_SURE_SECONDS", 1.5)
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
    assert "nobody is at work; go on with: auber prune --out run --resume" in out


def test_ctrl_c_exits_quietly(run_auber, folder, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", stop)
    code, _, err = run_auber("watch", folder.path)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("name", ["run.json", "study.toml"])
def test_a_run_and_a_study_are_their_own_place(name, tmp_path):
    (tmp_path / "below").mkdir()
    for place in (tmp_path / name, tmp_path / "below" / "run.json"):
        place.touch()
    assert watch.find_place(tmp_path) == tmp_path


def test_a_run_that_is_being_created_is_waited_for(tmp_path):
    assert watch.find_place(tmp_path / "none") is None
    assert watch.find_place(tmp_path) is None
    (tmp_path / "run" / "stages").mkdir(parents=True)
    for name in ("config.toml", ".lock"):
        (tmp_path / "run" / name).touch()
    assert watch.find_place(tmp_path / "run") is None
    assert watch.find_place(tmp_path) is None


@pytest.mark.parametrize("name", ["x/thesis/a.tex", "x/thesis.pdf", "x"])
def test_something_else_is_an_error(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    message = "x: must be the folder of a run, of several, or of a study, found something else;"
    with pytest.raises(RunError, match=message):
        watch.find_place(tmp_path / "x")


def test_nothing_cannot_be_shown_once(run_auber, tmp_path):
    code, _, err = run_auber("watch", tmp_path / "x", "--once")
    assert code == 2
    assert "must hold a run or a study, found neither" in err


def test_a_run_is_watched_without_torch(folder):
    code = (
        "import sys\nfrom pathlib import Path\nfrom auber.cli.watch import find_reader\n"
        f"find_reader(Path({str(folder.path)!r})).read()\nprint('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


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
