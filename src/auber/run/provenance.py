"""Where a number comes from: versions, commit, device, threads, processes and the command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess  # nosec B404 # for git alone, see _git
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from auber.system.distributed import launch_words, num_processes
from auber.training.devices import Hardware

_PACKAGES = ("auber", "torch", "transformers", "tokenizers", "accelerate", "numpy")


def versions() -> dict[str, str]:
    """The versions that can change a result; a package run from its source tree without installation is `source`."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "source"
    return found


def describe(hardware: Hardware) -> dict[str, Any]:
    """Everything about the surroundings that a result should carry."""
    return {
        "versions": versions(),
        "commit": _commit(),
        "device": hardware.name,
        "precision": hardware.precision,
        "threads": hardware.threads,
        "processes": num_processes(),
    }


def typed_command() -> str:
    """The command that is running, word for word: typed again in the same folder it means the same.

    A group is named by what starts one like it on one machine, whatever started it.
    """
    return shlex.join([*launch_words(), "auber", *sys.argv[1:]])


def command_line() -> str:
    """The command that is running, for a record that others will read."""
    return without_folders(typed_command())


def without_folders(command: str) -> str:
    """A command whose paths are cut to their last part, so that a record does not tell of the machine's folders."""
    try:
        words = shlex.split(command)
    except ValueError:  # the words of a caller from Python, which no shell has to understand
        words = command.split()
    cut = [_cut_path(word) for word in words]
    return command if cut == words else shlex.join(cut)


def _cut_path(word: str) -> str:
    option, equals, value = word.partition("=")
    if equals and option.startswith("-"):
        return f"{option}={_cut_path(value)}"
    return Path(word).name if word.startswith(("/", "~", "..")) else word


def _commit() -> dict[str, Any] | None:
    """The commit of the source tree this package runs from, and whether the tree differs from it; None if installed.

    A copy of the tree without its history is told its commit by the variable AUBER_COMMIT (with `+` behind it if it differs).
    """
    told = os.environ.get("AUBER_COMMIT")
    if told:
        return {"id": told.removesuffix("+"), "dirty": told.endswith("+")}
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return {
            "id": commit,
            "dirty": bool(_git(root, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    # The words are this module's own, no shell reads them, and which git is found is for the user's PATH to say.
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # nosec B603 # as said above
    return done.stdout.strip()
