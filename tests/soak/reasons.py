"""Why a drill failed, written down while what it left is still there: its folder goes when the drills are over."""

from __future__ import annotations

import traceback
from pathlib import Path

_MOST = 5  # failed runs that are told of in full; a drill has up to a thousand


def describe_failure(name: str, error: BaseException, folder: Path) -> str:
    """The drill's own error, and what the failed runs below its folder left: why, where in the sources, their last events."""
    records = sorted(folder.rglob("*.failed.json"))
    parts = [f"=== {name} failed", "".join(traceback.format_exception(error)).rstrip()]
    parts += (
        [f"{len(records)} runs below {folder} were written down as failed or left out"]
        if records
        else []
    )
    for record in records[:_MOST]:
        run = record.with_name(record.name.removesuffix(".failed.json"))
        for path in (record, record.with_suffix(".txt"), run / "events.jsonl"):
            if path.is_file():
                last = path.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
                parts.append("\n".join([f"--- {path.relative_to(folder)}", *last]))
    return "\n".join(parts) + "\n"


def keep_failure(out: Path, text: str) -> Path:
    """Add a description to the file beside the figures; where that is."""
    kept = out.with_suffix(".failures.txt")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as file:
        file.write(text)
    return kept
