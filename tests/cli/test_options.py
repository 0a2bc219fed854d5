from __future__ import annotations

import os
import subprocess
import sys

import pytest

from auber.cli.options import RunSettings, complete_assignment, make_room
from auber.errors import ConfigError

PROGRAM = "import sys; sys.argv[0] = 'auber'; from auber.cli import main; main()"


def ask_shell(shell, line):
    """Return the completions for the last word of a line."""
    environment = {
        **os.environ,
        "_AUBER_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("auber wa", ["watch"]),
        ("auber list me", ["methods", "metrics"]),
        ("auber prune --method auber-q", ["auber-query"]),
        ("auber prune --protocol h", ["heldout"]),
        ("auber export x --to o", ["onnx"]),
        ("auber prune --track t", ["tensorboard", "trackio"]),
    ],
)
def test_completions(line, expected):
    assert ask_shell("bash", line).split() == expected


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("agent.ch", ["agent.choose="]),
        ("agent.choose=", ["agent.choose=rollout", "agent.choose=best"]),
        ("agent.double_q=t", ["agent.double_q=true"]),
        ("agent.gamma=", []),
    ],
)
def test_completions_of_settings(incomplete, expected):
    assert [value for value, _ in complete_assignment(incomplete)] == expected


def test_short_options_are_settings():
    config = RunSettings(assignments=["agent.gamma=0.5"], seed=3, protocol="seen").build(None)
    assert (config.seed, config.protocol, config.agent.gamma) == (3, "seen", 0.5)


def test_where_a_file_can_be_written(tmp_path):
    (tmp_path / "out.json").symlink_to(tmp_path / "disk" / "kept.json")
    make_room(tmp_path / "out.json")
    assert (tmp_path / "disk").is_dir()
    (tmp_path / "folder").symlink_to(tmp_path / "disk")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for name, message in (
        ("folder", "folder: must be a file in a folder that can be written to; choose another "),
        (
            "pipe",
            "pipe: must be a file in a folder that can be written to; choose another ",
        ),
        ("file/x", "file/x: its folder cannot be made .*; choose another file for --out"),
    ):
        with pytest.raises(ConfigError, match=f"^{tmp_path}/{message}"):
            make_room(tmp_path / name)
