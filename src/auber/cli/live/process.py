"""Whether the process that a folder names is still at work, as far as that can be told from here."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from auber.system.locks import is_alive


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
        alive = is_alive(number, record.get("started"), record.get("after_boot"))
    return ProcessView(number, host, alive, silent_seconds)
