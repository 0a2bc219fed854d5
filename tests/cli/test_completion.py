"""The shell's completion, asked the way each shell asks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from auber.cli import completion

PROGRAM = "import sys; sys.argv[0] = 'auber'; from auber.cli import main; main()"


def ask(shell, line):
    """What a shell is offered for the last word of a line."""
    environment = {
        **os.environ,
        "_AUBER_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_answered(shell):
    offered = ask(shell, "auber prune --task ")
    assert "agreement" in offered
    assert "mrpc" in offered


def test_options_and_commands_are_offered_too():
    assert ask("bash", "auber wa").split() == ["watch"]
    assert "--track" in ask("bash", "auber prune --tr").split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_can_be_shown_for_every_shell(shell):
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--show-completion", shell],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert "_AUBER_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("offer", "incomplete", "expected"),
    [
        (completion.tasks, "mr", ["mrpc"]),
        (completion.methods, "auber-q", ["auber-query"]),
        (completion.presets, "", ["paper", "reference", "default"]),
        (completion.assignments, "agent.ch", ["agent.choose="]),
        (completion.assignments, "agent.choose=", ["agent.choose=rollout", "agent.choose=best"]),
        (completion.assignments, "agent.double_q=t", ["agent.double_q=true"]),
        (completion.assignments, "agent.gamma=", []),
        (completion.protocols, "h", ["heldout"]),
        (completion.targets, "o", ["onnx"]),
        (completion.trackers, "t", ["tensorboard", "trackio"]),
    ],
)
def test_what_is_offered(offer, incomplete, expected):
    assert [value for value, _ in offer(incomplete)] == expected
