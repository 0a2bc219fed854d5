"""The exceptions a user of the library may see, and helpers for their messages.

Every message is one line: where, what must hold, what was found and what to do.
The command line prints an `AuberError` as that line and exits with 2; any other exception is a bug.
Messages name options of the command line. The functions of the package `auber`, which it does not
call, raise them with the names of arguments (`naming_arguments`).
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# A command, which stays as it is, or an option; and what options are in Python, if not their names.
_OPTION = re.compile(r"'auber [^']*'|--set (?=[a-z])|--([a-z][a-z-]*)")
_ARGUMENTS = {
    "allow-upgrade": "resume='upgrade'",
    "even": "size.even",
    "heads-from": "heads",
    "resume": "resume=True",
    "tolerance": "size.tolerance",
    "track": "progress",
    "units": "size.units",
}


def printable(text: str) -> str:
    """Escape the characters of a text that could control a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class AuberError(Exception):
    """Base of all errors that the caller can correct."""

    def __str__(self) -> str:
        """Return the message on one line, with control characters escaped."""
        return printable(super().__str__())


class ConfigError(AuberError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class PlanError(AuberError, ValueError):
    """A pruning plan does not fit its model."""


class TaskError(AuberError, ValueError):
    """The rows of a task are missing, unreadable or unusable."""


class ModelError(AuberError, ValueError):
    """A model's architecture or state does not allow pruning."""


class CheckpointError(AuberError, ValueError):
    """A model folder is incomplete, damaged or not one of ours."""


class RunError(AuberError, RuntimeError):
    """A run folder cannot be created, continued or read."""


def name_arguments(message: str) -> str:
    """Return a message with arguments of Python in place of options, but not within commands."""

    def rename(found: re.Match[str]) -> str:
        if found[0].startswith("'"):
            return found[0]
        return _ARGUMENTS.get(found[1], found[1]) if found[1] else ""

    return _OPTION.sub(rename, message)


@functools.cache
def naming_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors name arguments of Python."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except AuberError as error:
            error.args = (name_arguments(str(error)),)
            raise

    return call


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean '...'?" with the most similar known name, or nothing."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def unknown_name(kind: str, name: str, known: Iterable[str], most: int | None = None) -> str:
    """Return the message for an unknown name: a suggestion and at most `most` known names."""
    names = sorted(known)
    return f"Unknown {kind} '{name}'.{suggest(name, names)} Known: {shorten(names, most)}"


def shorten(names: Sequence[str], most: int | None = 10) -> str:
    """Return the first names of a list as text for a message."""
    return ", ".join(names[:most]) + (", ..." if len(names[:most]) < len(names) else "")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [""])[0]


def show_value(value: object) -> str:
    """Return a value as text for a message: on one line and at most 80 characters long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of many thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def show_name(name: str) -> str:
    """Return a name for a message: unchanged if it is printable and short."""
    return name if name.isprintable() and len(name) <= 80 else show_value(name)
