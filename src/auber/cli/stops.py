"""A stop by hand (Ctrl-C) or by the system (SIGTERM): one line with the command that goes on from there.

Both end a command in the same way, by an exception in the main thread, so that files are closed and locks are given back.
The exit code is 128 and the number of the signal, as a shell would say it.
"""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from auber.system.distributed import launch_words

_RESUMING = ("demo", "finetune", "prune")  # they go on with --resume
_REPEATING = ("study",)  # they go on when they are called again


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised like Ctrl-C."""


class Commands(TyperGroup):
    """The commands of the program, each of which may be stopped."""

    def invoke(self, ctx: Any) -> Any:  # the class of the context depends on the version of typer
        """Run a command; one that is stopped says how to go on."""
        try:
            with _terminable():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print(f"auber: {describe_stop(ctx.invoked_subcommand, sys.argv[1:])}", file=sys.stderr)
            number = signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
            raise typer.Exit(128 + number) from None


def describe_stop(command: str | None, words: list[str]) -> str:
    """What to say of a command that was stopped; `words` is its command line."""
    has_place = any(word == "--out" or word.startswith("--out=") for word in words)
    if command not in (*_RESUMING, *_REPEATING) or not has_place:
        return "stopped"
    if command in _RESUMING and "--resume" not in words:
        words = [*words, "--resume"]
    return f"stopped; go on with: {shlex.join([*launch_words(), 'auber', *words])}"


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise `Terminated` at a SIGTERM; the old handling is put back at the end."""
    if threading.current_thread() is not threading.main_thread():  # signals are not for it
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
