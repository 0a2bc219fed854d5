"""The exceptions a user of the library may meet.

Every message says where, what must hold, what was found and what to do, in one line.
The command line prints an `AuberError` as that one line and exits with 2; any other exception is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def printable(text: str) -> str:
    """Text that cannot steer a terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


class AuberError(Exception):
    """Something the caller can put right; the base of every error raised on purpose."""

    def __str__(self) -> str:
        """The message on one line: words out of a file can neither break it nor steer the terminal it is printed on."""
        return printable(super().__str__())


class ConfigError(AuberError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class PlanError(AuberError, ValueError):
    """A pruning plan does not fit the model it is meant for."""


class TaskError(AuberError, ValueError):
    """Task rows are missing, unreadable or cannot be used."""


class ModelError(AuberError, ValueError):
    """A model is of an architecture, or in a condition, that cannot be pruned."""


class CheckpointError(AuberError, ValueError):
    """A model folder is incomplete, foreign or damaged."""


class RunError(AuberError, RuntimeError):
    """A run's folder cannot be created, continued or read."""


def unknown_name(kind: str, name: str, known: Iterable[str], most: int | None = None) -> str:
    """The message for a name that is not in a table, with the nearest one that is and all, or so many, of the others."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    suggestion = f" Did you mean '{near[0]}'?" if near else ""
    more = ", ..." if len(names[:most]) < len(names) else ""
    return f"Unknown {kind} '{name}'.{suggestion} Known: {', '.join(names[:most])}{more}"
