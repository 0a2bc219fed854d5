from __future__ import annotations

import os
import signal

import pytest

from auber.cli import describe_stop, main


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
    import shlex

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
