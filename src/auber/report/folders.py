"""The runs below a folder, read and checked.

A run's folder holds `run.json`; `result.json` beside it means that it is complete. A run without one, or one that a study
wrote down as failed (`NAME.failed.json` beside its place), is named and left out: nothing partial gets into a table. A
study's folder holds `study.toml`: what all its runs are meant to be, so that what was never begun is known too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from auber.errors import RunError
from auber.report.record import RunRecord, read_result
from auber.run.fields import Fields
from auber.run.files import RESULT, is_run, read_json
from auber.study import Study, read_study
from auber.study.folder import RECORD

FAILED = ".failed.json"

_PATH = re.compile(r"(?<![\w.])(?:~|\.\.)?(?:/[^\s/:;,'\"()]+)+/([^\s/:;,'\"()]+)")


@dataclass(frozen=True)
class LeftOut:
    """A run without a result, and why."""

    folder: str
    reason: str


@dataclass(frozen=True)
class Source:
    """What one folder, or one results file, holds."""

    name: str
    records: tuple[RunRecord, ...]  # runs of methods and fine-tuned starts
    left_out: tuple[LeftOut, ...]
    studies: Mapping[str, Study]  # by their place below the folder, `.` for itself
    notes: tuple[
        str, ...
    ] = ()  # sentences that whoever saved the runs wanted beside them; a folder has none


def read_folder(folder: str | Path) -> Source:
    """Everything below a folder; at least one run of a method must be complete."""
    root = Path(folder)
    found, reasons, studies = _search(root)
    records = []
    for path in found:
        name = path.relative_to(root).as_posix()
        if (path / RESULT).is_file():
            records.append(read_result(path / RESULT, name))
            reasons.pop(name, None)
        else:
            reasons.setdefault(name, "unfinished")
    if all(record.is_start for record in records):
        raise RunError(
            f"{root}: no finished run below it (folders with run.json and {RESULT}, made by 'auber prune' or 'auber study'); "
            f"found {len(records)} fine-tuned starts and {len(reasons)} runs without a result"
        )
    left_out = tuple(LeftOut(name, reason) for name, reason in sorted(reasons.items()))
    return Source(str(folder), tuple(records), left_out, studies)


def _search(root: Path) -> tuple[list[Path], dict[str, str], dict[str, Study]]:
    """The folders of runs in the order of their names, why runs failed, the studies; what lies inside a run is its own."""
    if not root.is_dir():
        raise RunError(f"{root}: no such folder; give one that holds runs")
    found: list[Path] = []
    reasons: dict[str, str] = {}
    studies: dict[str, Study] = {}
    for place, folders, files in os.walk(root):
        if is_run(place):
            found.append(Path(place))
            folders.clear()
            continue
        for path in (Path(place, file) for file in files):
            if path.name.endswith(FAILED):
                failure = Fields(str(path), read_json(path))
                error = _without_folders(failure.get("error", str))
                name = path.relative_to(root).as_posix().removesuffix(FAILED)
                reasons[name] = error if failure.get("skipped", bool) else f"failed: {error}"
            elif path.name == RECORD:
                studies[path.parent.relative_to(root).as_posix()] = read_study(path)
    return sorted(found), reasons, dict(sorted(studies.items()))


def _without_folders(text: str) -> str:
    """A message with paths cut to their last part: reports are shown to others."""
    return _PATH.sub(r"\1", text)
