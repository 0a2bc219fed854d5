from __future__ import annotations

import os
import signal

import pytest

from auber.cli import main, stops


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prune", "--out", "my run"], "stopped; go on with: auber prune --out 'my run' --resume"),
        (
            ["finetune", "--resume", "--out", "a"],
            "stopped; go on with: auber finetune --resume --out a",
        ),
        (["study", "s.toml", "--out", "a"], "stopped; go on with: auber study s.toml --out a"),
        (["demo", "--out=a"], "stopped; go on with: auber demo --out=a --resume"),
        (["demo"], "stopped"),  # its folder is a new one at every call
        (["speed", "a", "--out", "b.json"], "stopped"),
    ],
)
def test_what_a_stopped_command_says(words, said):
    assert stops.describe_stop(words[0], words) == said


def test_a_stopped_group_is_told_how_to_go_on_as_a_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = stops.describe_stop("prune", ["prune", "--out", "a"])
    assert (
        said == "stopped; go on with: torchrun --nproc-per-node 2 -m auber prune --out a --resume"
    )


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_with_one_line(sent, code, run_auber, monkeypatch):
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("auber.cli.screen.print_table", lambda *_, **__: os.kill(os.getpid(), sent))
    assert run_auber("tasks") == (code, "", "auber: stopped\n")
    assert signal.getsignal(signal.SIGTERM) is handler, "the handling is put back"


def test_a_disk_that_takes_nothing_more_is_one_line(run_auber, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device", "/full/table.csv")

    monkeypatch.setattr("auber.cli.screen.print_table", refuse)
    code, out, err = run_auber("tasks")
    assert (code, out) == (2, "")
    assert err == "auber: /full/table.csv: cannot be written or read (No space left on device)\n"


def test_any_other_error_of_the_system_shows_its_traceback(monkeypatch):
    def fail(*_, **__):
        raise OSError(2, "no such file")

    monkeypatch.setattr("auber.cli.screen.print_table", fail)
    monkeypatch.setattr("sys.argv", ["auber", "tasks"])
    with pytest.raises(OSError, match="no such file"):
        main()
