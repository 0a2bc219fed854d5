"""How a command ends early: Ctrl-C, SIGTERM and wrong options are one line each.

The signals raise an exception in the main thread, so files are closed and locks released. The exit
code is 128 plus the number of the signal, as in a shell; the line tells how to continue.
"""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from auber.errors import ConfigError
from auber.system.distributed import launch_words

_WITH_RESUME = ("demo", "finetune", "prune")  # continue with --resume; a study without
_UsageError: Any = typer.BadParameter.__base__  # typer may bring its own copy of click


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised like Ctrl-C."""


class Commands(TyperGroup):
    """The commands of the program, each of which can be stopped."""

    def invoke(self, ctx: Any) -> Any:  # the class of the context depends on the version of typer
        """Run a command; if it is stopped, print how to continue."""
        can_handle = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, _terminate) if can_handle else None
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print(f"auber: {describe_stop(ctx.invoked_subcommand, sys.argv[1:])}", file=sys.stderr)
            number = signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
            raise typer.Exit(128 + number) from None
        except _UsageError as error:
            place = " ".join(filter(None, ("auber", ctx.invoked_subcommand)))
            message = error.format_message().rstrip(".")
            raise ConfigError(f"{message}; see '{place} --help'") from None
        finally:
            if can_handle:
                signal.signal(signal.SIGTERM, before)


def describe_stop(command: str | None, words: list[str]) -> str:
    """Return the message for a stopped command; `words` is its command line."""
    has_folder = any(word == "--out" or word.startswith("--out=") for word in words)
    if command not in (*_WITH_RESUME, "study") or not has_folder:
        return "stopped"
    if command in _WITH_RESUME and "--resume" not in words:
        words = [*words, "--resume"]
    return f"stopped; continue with: {shlex.join([*launch_words(), 'auber', *words])}"


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
