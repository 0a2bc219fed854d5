"""The figures part of `docs/reliability.md`, made from the kept file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN = "<!-- figures: written by AUBER_REGENERATE=1 pytest tests/soak/test_page.py from results/soak.json -->"
END = "<!-- end of figures -->"

# What each drill is called on the page, in the order they are done.
_TITLES = {
    "kills": "killed at random moments (SIGKILL), gone on",
    "stops": "stopped by SIGTERM and Ctrl-C in turns, gone on",
    "full disks": "out of room on the disk, gone on",
    "read-only disks": "on a disk made read-only, gone on",
    "second starts": "started twice on one folder",
    "torn lines": "last lines of ledger and events torn",
    "flipped bits": "one bit of the weights flipped",
    "foreign scores": "scores of other weights in the ledger",
    "changed versions": "begun with another torch",
    "ledger": "scores in a ledger that is opened",
    "csv": "rows of a csv that is read",
    "readers": "hostile inputs to the readers",
    "local study": "short runs in one study, one process",
    "ray study": "short runs in one study, Ray, workers killed",
}


def render_page(text: str, record: Mapping[str, Any]) -> str:
    """The page with the figures of a record in place of those it has."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_figures(record)}\n{END}{after}"


def read_record(path: Path) -> dict[str, Any]:
    """The kept figures."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _figures(record: Mapping[str, Any]) -> str:
    drills, versions = record["drills"], record["versions"]
    lines = [
        "| drill | times | seconds | most memory, MB | more |",
        "|---|---:|---:|---:|---|",
    ]
    for name, title in _TITLES.items():
        if name in drills:
            drill = drills[name]
            cells = (
                title,
                f"{drill['count']:,}",
                f"{drill['seconds']:,.0f}",
                f"{drill['peak_mb']:,}",
            )
            lines.append(f"| {' | '.join(cells)} | {_describe(drill['details'])} |")
    used = ", ".join(f"{name} {versions[name]}" for name in ("python", "torch", "transformers"))
    lines += ["", f"On {record['device']}, {used}, by:", ""]
    lines += dict.fromkeys(
        f"- `{drill['command']}`{_describe_commit(drill['commit'])}" for drill in drills.values()
    )
    lines += [
        "",
        "Memory is that of all processes of the drill together, what they share counted for each.",
        "",
    ]
    return "\n".join(lines)


def _describe_commit(commit: Mapping[str, Any] | None) -> str:
    if commit is None:
        return ""
    return f", commit `{commit['id'][:12]}`{' with changes' if commit['dirty'] else ''}"


def _describe(details: Mapping[str, Any]) -> str:
    """Details in words: `phases` by name, the others as their names say."""
    parts = []
    for name, value in details.items():
        if isinstance(value, Mapping):
            parts.append(", ".join(f"{count} in {phase}" for phase, count in value.items()))
        else:
            parts.append(f"{name.replace('_', ' ')} {value:,}")
    return "; ".join(parts)
