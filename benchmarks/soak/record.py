"""The figures of the drills, and their table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas

from auber.system.records import Count, Name, Number, Record

# The titles of the drills, in their order.
TITLES = {
    "kills": "killed at random moments (SIGKILL), resumed",
    "stops": "stopped by SIGTERM and Ctrl-C in turns, resumed",
    "full disks": "disk full, resumed",
    "limited files": "files limited in size, resumed",
    "read-only disks": "disk made read-only, resumed",
    "second starts": "started twice on one folder",
    "torn lines": "last lines of ledger and events torn",
    "flipped bits": "one bit of the weights flipped",
    "foreign scores": "scores of other weights in the ledger",
    "changed versions": "begun with another torch",
    "sizes: kills": "three sizes, without labels: killed at random moments, resumed",
    "sizes: stops": "three sizes: stopped by SIGTERM and Ctrl-C in turns, resumed",
    "sizes: full disks": "three sizes: disk full, resumed",
    "sizes: limited files": "three sizes: files limited in size, resumed",
    "sizes: read-only disks": "three sizes: disk made read-only, resumed",
    "sizes: second starts": "three sizes: started twice on one folder",
    "sizes: torn lines": "three sizes: last line of events torn",
    "sizes: flipped bits": "three sizes: one bit of the weights flipped",
    "sizes: flipped answers": "three sizes: one bit of the unpruned model's answers flipped",
    "sizes: changed versions": "three sizes: begun with another torch",
    "ledger": "scores in a ledger that is opened",
    "csv": "rows of a csv that is read",
    "readers": "hostile inputs to the readers",
    "local study": "short runs in one study, one process",
    "ray study": "short runs in one study, Ray, workers killed",
}


class DrillResult(Record):
    """One drill: how often, how long, and the most memory of all its processes together."""

    name: Name
    count: Count
    seconds: Number
    peak_mb: Count
    details: dict[str, Any]
    command: str
    commit: dict[str, Any] | None


class Soak(Record):
    """The figures of all drills."""

    versions: dict[str, str]
    device: Name
    drills: dict[str, DrillResult]


def make_table(soak: Soak) -> pandas.DataFrame:
    """Return a row for each drill."""
    rows = []
    for name, title in TITLES.items():
        if name in soak.drills:
            drill = soak.drills[name]
            rows.append(
                {
                    "drill": title,
                    "times": f"{drill.count:,}",
                    "seconds": f"{drill.seconds:,.0f}",
                    "most memory, MB": f"{drill.peak_mb:,}",
                    "more": _describe(drill.details),
                }
            )
    return pandas.DataFrame(rows)


def _describe(details: Mapping[str, Any]) -> str:
    parts = []
    for name, value in details.items():
        if isinstance(value, Mapping):
            parts.append(", ".join(f"{count} in {phase}" for phase, count in value.items()))
        else:
            parts.append(f"{name.replace('_', ' ')} {value:,}")
    return "; ".join(parts)
