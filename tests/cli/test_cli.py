"""The program as a whole: help, version, mistakes and signals."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

import pytest

from auber.cli import app, describe_stop, main
from auber.cli.list import LISTS
from tests.cli.run_folder import RunFolder
from tests.study.tiny import tiny_study


def test_help(run_auber):
    code, out, _ = run_auber("--help")
    assert code == 0
    for command in app.registered_commands:
        assert f"  {command.name} " in out
    assert [line for line in out.splitlines() if line.endswith(":")] == [
        "Options:", "Begin:", "Make a model smaller:", "Measure it:", "Use it elsewhere:",
        "Follow, report and compare:",
    ]  # fmt: skip
    code, out, _ = run_auber("prune", "--help")
    example = "auber prune --model bert-base-cased --task mrpc --out runs/mrpc"
    assert example in " ".join(out.split())
    assert "original+tuning" in out
    assert [line for line in out.splitlines() if line[:1].strip() and line.endswith(":")] == [
        "Model and result:", "Your data: your own rows, texts without labels, or a known task:",
        "How small the model becomes:", "How to choose what goes:", "Settings:", "Options:",
    ]  # fmt: skip
    _, out, err = run_auber()
    assert "Usage" in out + err
    assert run_auber("--version")[:2] == (0, "auber 0.1.0\n")


def test_reading_imports_neither_torch_nor_the_pipeline(tmp_path):
    RunFolder(tmp_path / "run").search_layer_1()
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").write_text(tiny_study(methods=["original"]).to_toml())
    calls = [["--help"], *(["list", what] for what in LISTS)]
    calls += [["watch", str(tmp_path / name), "--once"] for name in ("run", "study")]
    code = (
        "import sys\nfrom auber.cli import app\n"
        f"for words in {calls}: app(words, standalone_mode=False)\n"
        "heavy = ('torch', 'transformers', 'numpy', 'pandas', 'auber.api', 'auber.run.pipeline')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prune", "--model", "x"], "Missing option '--out'; see 'auber prune --help'"),
        (["evaluate"], "Missing argument 'RUN|DIR'; see 'auber evaluate --help'"),
        (
            ["list", "task"],
            "Unknown list 'task'. Did you mean 'tasks'? Known: methods, metrics, mod",
        ),
        (["demo", "--resume"], "--resume continues the demo in a folder, found no --out; add it"),
        (["prun"], "No such command 'prun'. Did you mean 'prune'? See 'auber --help'"),
        (["list", "x", "y"], "Got unexpected extra argument"),
        (
            ["prune", "--units", "layers"],
            "Invalid value for '--units': 'layers' is not one of 'heads', 'neurons', 'both'; see ",
        ),
        (["prune", "--model"], "Option '--model' requires an argument; see 'auber prune --help'"),
    ],
)
def test_a_wrong_call_is_one_line(run_auber, words, message):
    code, out, err = run_auber(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"auber: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "mprc"], "Unknown task 'mprc'. Did you mean 'mrpc'? Known: agreement, cola, "),
        (
            ["--task", "agreement", "--set", "seed=1", "--seed", "2"],
            "--set seed and --seed name the same setting",
        ),
        (
            ["--task", "agreement", "--set", "agent.gamma=1", "--set", "agent.gamma=0.5"],
            "--set agent.gamma is given more than once; give it once",
        ),
        (["--task", "agreement", "--metric", "f1"], "--metric goes with your own rows; task "),
        (["--train", "a.csv", "--dev", "b.csv", "--data", "glue"], "--data goes with --task; your"),
        (
            ["--task", "agreement", "--train", "x.csv"],
            "--task and --train/--dev exclude each other",
        ),
        (
            ["--dev", "a.csv"],
            "--dev goes with --train, found --dev alone; add --train FILE",
        ),
        ([], "rows are needed, found none; give your own with --train FILE --text COLUMN"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_auber, files, tmp_path, arguments, message):
    command = ["prune", "--model", files / "model", "--out", tmp_path / "x"]
    code, out, err = run_auber(*command, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"auber: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "command",
    [["prune", "--out", "x", "--model"], ["finetune", "--out", "x", "--model"], ["evaluate"]],
)
def test_a_folder_of_runs_is_not_a_model(run_auber, tmp_path, command):
    place = tmp_path / "runs"
    for name in "abcde":
        (place / name).mkdir(parents=True)
        (place / name / "run.json").write_text("{}")
    code, _, err = run_auber(*command, place, "--task", "agreement")
    assert code == 2
    assert err == (
        f"auber: {place}: must be a finished run or a model folder, found no run.json and no "
        f"config.json; name one of the runs in it: {place / 'a'}, {place / 'b'}, {place / 'c'}, "
        f"{place / 'd'}, ...\n"
    )
    (tmp_path / "empty").mkdir()
    _, _, err = run_auber(*command, tmp_path / "empty", "--task", "agreement")
    assert err.endswith("no run.json and no config.json; give the folder a model was saved in\n")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_characters_that_the_encoding_lacks_are_replaced(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "100"}
    command = [sys.executable, "-m", "auber", "watch", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Follow a run" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("prune --out 'my run'", "; continue with: auber prune --out 'my run' --resume"),
        ("finetune --resume --out a", "; continue with: auber finetune --resume --out a"),
        ("study s.toml --out a", "; continue with: auber study s.toml --out a"),
        ("demo --out=a", "; continue with: auber demo --out=a --resume"),
        ("demo", ""),  # each call has a new folder
        ("speed a --out b.json", ""),
    ],
)
def test_how_to_continue_a_stopped_command(words, message):
    words = shlex.split(words)
    assert describe_stop(words[0], words) == f"stopped{message}"


def test_a_stopped_group_continues_as_a_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = describe_stop("prune", ["prune", "--out", "a"])
    command = "torchrun --nproc-per-node 2 -m auber prune --out a --resume"
    assert message == f"stopped; continue with: {command}"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_with_one_line(sent, code, run_auber, monkeypatch):
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("auber.cli.screen.print_table", lambda *_, **__: os.kill(os.getpid(), sent))
    assert run_auber("list", "tasks") == (code, "", "auber: stopped\n")
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_full_disk_is_one_line(run_auber, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device", "/full/table.csv")

    monkeypatch.setattr("auber.cli.screen.print_table", refuse)
    message = "auber: /full/table.csv: cannot be written or read (No space left on device)\n"
    assert run_auber("list", "tasks") == (2, "", message)


def test_another_error_shows_its_traceback(monkeypatch):
    def fail(*_, **__):
        raise OSError(2, "no such file")

    monkeypatch.setattr("auber.cli.screen.print_table", fail)
    monkeypatch.setattr("sys.argv", ["auber", "list", "tasks"])
    with pytest.raises(OSError, match="no such file"):
        main()
