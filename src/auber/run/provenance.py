"""Where a number comes from: versions, commit, device, threads, processes and the command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess  # nosec B404 # only for git, see _run_git
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from typing import Any

from auber.system.distributed import launch_words, num_processes
from auber.training.devices import Hardware

_PACKAGES = ("auber", "torch", "transformers", "tokenizers", "accelerate", "numpy")
_COMMAND: ContextVar[str | None] = ContextVar("command", default=None)


def versions() -> dict[str, str]:
    """Return the versions that can change a result; `source` if a package is not installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "source"
    return found


def describe(hardware: Hardware) -> dict[str, Any]:
    """Return the environment that a result is computed in."""
    return {
        "versions": versions(),
        "commit": _find_commit(),
        "device": hardware.name,
        "precision": hardware.precision,
        "threads": hardware.threads,
        "processes": num_processes(),
    }


@contextmanager
def recording(command: str | None) -> Iterator[None]:
    """Record this command line in every run that is requested inside the context."""
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def recorded_command() -> str | None:
    """Return the command line to record."""
    return _COMMAND.get()


def typed_command() -> str:
    """Return the running command: typed again in the same folder, it does the same.

    A process group is written as the launcher that starts one like it on one machine.
    """
    return shlex.join([*launch_words(), "auber", *sys.argv[1:]])


def without_folders(command: str) -> str:
    """Shorten the paths in a command to their last part, so that it reveals no folders."""
    try:
        words = shlex.split(command)
    except ValueError:  # words from Python need not be valid in a shell
        words = command.split()
    cut = [_cut_path(word) for word in words]
    return command if cut == words else shlex.join(cut)


def _cut_path(word: str) -> str:
    option, equals, value = word.partition("=")
    if equals and option.startswith("-"):
        return f"{option}={_cut_path(value)}"
    return Path(word).name if word.startswith(("/", "~", "..")) else word


def _find_commit() -> dict[str, Any] | None:
    """Return the commit of the source tree and whether the tree differs from it; None if installed.

    For a copy of the tree without its history, set AUBER_COMMIT (append `+` if it differs).
    """
    given = os.environ.get("AUBER_COMMIT")
    if given:
        return {"id": given.removesuffix("+"), "dirty": given.endswith("+")}
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        changes = _run_git(root, "status", "--porcelain", "--untracked-files=no")
        return {"id": _run_git(root, "rev-parse", "HEAD"), "dirty": bool(changes)}
    except (OSError, subprocess.CalledProcessError):
        return None


def _run_git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    # All words are constants of this module, and no shell reads them.
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # nosec B603
    return done.stdout.strip()
