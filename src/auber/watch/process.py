"""Whether the process that a folder names is still at work, as far as that can be told from here."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import psutil

_SAME_START = 2.0  # seconds: how far two accounts of a process's start may lie apart


@dataclass(frozen=True)
class ProcessView:
    """The process at work."""

    number: int
    host: str | None
    alive: bool | None  # None: it is on another machine
    silent_seconds: float | None  # since it last wrote where it is


def look_at_process(record: dict[str, Any], silent_seconds: float | None) -> ProcessView:
    """What can be seen of the process a run has written down."""
    number, host = int(record["id"]), record.get("host")
    alive = None
    if host in (None, platform.node()):
        alive = is_alive(number, record.get("started"))
    return ProcessView(number, host, alive, silent_seconds)


def is_alive(number: int, started: float | None = None) -> bool:
    """Whether a process of this number is there and, where its start is known, no later one of the same number."""
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - started) < _SAME_START
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # it is somebody else's, and it is there
