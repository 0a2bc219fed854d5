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

from auber.cli import watch
from tests.cli.live.folders import RESULT, RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.search_layer_1()
    return folder


def test_once(run_auber, folder):
    code, out, _ = run_auber("watch", folder.path, "--once")
    assert code == 0
    assert out.startswith("auber prune  task rte  method auber  seed 7")
    assert "\x1b" not in out, "no colours where nobody sees them"


def test_json(run_auber, folder):
    code, out, _ = run_auber("watch", folder.path, "--json")
    view = json.loads(out)
    assert (code, view["state"], view["search"]["rewards_asked"]) == (0, "running", 12)


@pytest.mark.parametrize("option", ["--once", "--json"])
def test_one_look_at_a_run_that_has_stopped_is_exit_code_1(run_auber, folder, option):
    folder.event("stopped", error="KeyboardInterrupt: ")
    code, out, _ = run_auber("watch", folder.path, option)
    assert (code, "stopped" in out) == (1, True)


@pytest.fixture
def between_looks(monkeypatch):
    """Has each of some things done after a look, one a look: what is seen does not depend on how fast the machine is."""

    def do(*things):
        left = list(things)

        def sleep(seconds):
            time.sleep(seconds)
            if left:
                left.pop(0)()

        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))

    return do


def test_it_waits_for_a_run_follows_it_and_leaves_with_it(run_auber, tmp_path, between_looks):
    def begin():
        RunFolder(tmp_path / "run").search_layer_1()

    def finish():
        (tmp_path / "run" / "result.json").write_text(json.dumps(RESULT))

    between_looks(begin, finish)
    code, out, _ = run_auber("watch", tmp_path / "run", "--interval", "0.1")
    assert code == 0
    assert out.startswith(f"waiting for a run or a study in {tmp_path / 'run'} (Ctrl-C leaves)")
    assert "layer 1: searching" in out
    assert out.count(f"complete  in {tmp_path / 'run'}\ndev accuracy 75.00") == 1


def begin_below(place, method, *, age):
    """A run in a folder of several, begun so many seconds ago."""
    folder = RunFolder(place / method, method)
    folder.search_layer_1()
    moment = time.time() - age
    os.utime(folder.path / "run.json", (moment, moment))
    return folder


def test_of_a_folder_of_several_the_run_begun_last_is_shown(run_auber, tmp_path):
    begin_below(tmp_path, "random", age=5)
    begin_below(tmp_path, "auber", age=60)
    (tmp_path / "notes.txt").write_text("mine")
    code, out, _ = run_auber("watch", tmp_path, "--once")
    assert code == 0
    assert out.startswith("auber prune  task rte  method random  seed 7")
    code, out, _ = run_auber("watch", tmp_path, "--json")
    assert json.loads(out)["folder"] == str(tmp_path / "random")


def test_it_goes_from_one_run_of_a_folder_to_the_next_and_leaves_with_the_last(
    run_auber, tmp_path, monkeypatch, between_looks
):
    monkeypatch.setattr(watch, "_SURE_AFTER", 1.5)
    begin_below(tmp_path, "auber", age=60).write("result.json", RESULT)

    def later():
        begin_below(tmp_path, "random", age=0).write(
            "result.json", {**RESULT, "dev": {"score": 0.5}}
        )

    between_looks(later)
    code, out, _ = run_auber("watch", tmp_path, "--interval", "0.1")
    assert code == 0
    assert (
        out.index("dev accuracy 75.00")
        < out.index("method random")
        < out.index("dev accuracy 50.00")
    )


def test_a_run_of_a_folder_that_has_stopped_is_left_with_exit_code_1(
    run_auber, tmp_path, monkeypatch
):
    monkeypatch.setattr(watch, "_SURE_AFTER", 0.2)
    begin_below(tmp_path, "auber", age=60).write("result.json", RESULT)
    begin_below(tmp_path, "random", age=0).progress("layer 1: searching", 3, 12, started=1.0)
    code, out, _ = run_auber("watch", tmp_path, "--interval", "0.1")
    assert code == 1
    assert "nobody is at work" in out


def test_a_run_that_has_stopped_is_left_with_exit_code_1(run_auber, folder, monkeypatch):
    monkeypatch.setattr(watch, "_SURE_AFTER", 0.2)
    folder.progress("layer 1: searching", 3, 12, started=1.0, command="auber prune --out run")
    code, out, _ = run_auber("watch", folder.path, "--interval", "0.1")
    assert code == 1
    assert "nobody is at work; go on with: auber prune --out run --resume" in out


def test_ctrl_c_leaves_quietly(run_auber, folder, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", stop)
    code, _, err = run_auber("watch", folder.path)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    "make", [lambda path: path.write_text(""), lambda path: (path / "thesis").mkdir(parents=True)]
)
def test_something_else_is_an_error(run_auber, tmp_path, make):
    make(tmp_path / "x")
    code, _, err = run_auber("watch", tmp_path / "x")
    assert code == 2
    assert err == (
        f"auber: {tmp_path / 'x'}: must be the folder of a run, of several, or of a study, found something else; name its --out\n"
    )


def test_nothing_cannot_be_shown_once(run_auber, tmp_path):
    code, _, err = run_auber("watch", tmp_path / "x", "--once")
    assert code == 2
    assert err.endswith(
        "must hold a run or a study, found neither; without --once it is waited for\n"
    )


def test_a_run_is_watched_without_loading_torch(folder):
    code = (
        "import sys\nfrom pathlib import Path\nfrom auber.cli.watch import _find\n"
        f"_find(Path({str(folder.path)!r})).look()\nprint('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


@pytest.mark.parametrize(("terminal", "draws_over"), [("xterm", True), ("dumb", False)])
def test_on_a_terminal_it_draws_over_itself_and_on_a_dumb_one_it_does_not(
    folder, terminal, draws_over
):
    folder.write("result.json", RESULT)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": terminal, "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-m", "auber", "watch", str(folder.path)],
        stdout=theirs,
        stdin=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # it has left
            break
    os.close(ours)
    assert process.wait() == 0
    assert b"dev accuracy 75.00" in shown
    assert b"\x1b[3" not in shown, "NO_COLOR"
    assert (b"\x1b[?25l" in shown) == draws_over
