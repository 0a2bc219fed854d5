"""The finished runs of folders and results files, collected and checked for one report.

A folder with `run.json` is a run, and `result.json` in it means that it is complete. Other runs,
and those that a study recorded as failed (`NAME.failed.json`), are left out by name: nothing
partial gets into a table. The `study.toml` of a study lists the runs that are wanted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict

from auber.errors import RunError
from auber.report.records import Key, RunRecord, group, read_run
from auber.study.plan import Study, read_study
from auber.system.records import Name, Record, read

RESULT, STUDY, FAILED = "result.json", "study.toml", ".failed.json"

_PATH = re.compile(r"(?<![\w.])(?:~|\.\.)?(?:/[^\s/:;,'\"()]+)+/([^\s/:;,'\"()]+)")


class LeftOut(Record):
    """A run without a result, and why."""

    folder: Name
    reason: Name


Found = TypeVar("Found", RunRecord, LeftOut)


class _Failure(Record):
    model_config = ConfigDict(extra="ignore")

    error: Name
    skipped: bool


@dataclass(frozen=True)
class Source:
    """The content of one folder or results file."""

    name: str
    records: tuple[RunRecord, ...]  # including fine-tuned starts
    left_out: tuple[LeftOut, ...]
    studies: Mapping[str, Study]  # by folder, `.` for the searched one
    notes: tuple[str, ...] = ()  # saved beside the runs


@dataclass(frozen=True)
class Collection:
    """Everything that one report is about."""

    runs: tuple[RunRecord, ...]
    starts: int
    left_out: tuple[LeftOut, ...]
    wanted: tuple[Key, ...] = ()  # by the studies
    presets: tuple[tuple[str, str, str], ...] = ()  # (model, protocol, preset of a study)


@dataclass(frozen=True)
class Coverage:
    """How many of the wanted blocks (pairs of a task and a seed) are complete."""

    blocks: int
    complete: int
    missing: tuple[str, ...]  # a line for each incomplete block

    @property
    def label(self) -> str | None:
        """What every incomplete table is marked with."""
        if not self.missing:
            return None
        return f"incomplete: {self.complete} of {self.blocks} blocks so far"


def is_run(folder: str | Path) -> bool:
    """Return whether a folder holds a run, finished or not."""
    return (Path(folder) / "run.json").is_file()


def read_folder(folder: str | Path) -> Source:
    """Return all runs below a folder; at least one run of a method must be complete."""
    root = Path(folder)
    records: list[RunRecord] = []
    failed: dict[str, str] = {}
    unfinished: list[str] = []
    studies: dict[str, Study] = {}
    for place, folders, files in os.walk(root):
        name = Path(place).relative_to(root).as_posix()
        if is_run(place):
            folders.clear()  # what lies inside a run belongs to it
            if RESULT in files:
                records.append(read_run(Path(place, RESULT), name))
            else:
                unfinished.append(name)
            continue
        if STUDY in files:
            studies[name] = read_study(Path(place, STUDY))
        for path in (Path(place, file) for file in files if file.endswith(FAILED)):
            failure = read(_Failure, path, "delete it to try the run again")
            error = _PATH.sub(r"\1", failure.error)  # a report is shown to others
            run = path.relative_to(root).as_posix().removesuffix(FAILED)
            failed[run] = error if failure.skipped else f"failed: {error}"
    reasons = {**dict.fromkeys(unfinished, "unfinished"), **failed}
    for record in records:
        reasons.pop(record.folder, None)
    if all(record.is_start for record in records):
        raise RunError(
            f"{root}: no finished run below it (folders with run.json and {RESULT}, made by 'auber "
            f"prune' or 'auber study'); found {len(records)} fine-tuned starts and {len(reasons)} "
            "runs without a result"
        )
    return Source(
        str(folder),
        tuple(sorted(records, key=lambda record: Path(record.folder))),
        tuple(LeftOut(folder=name, reason=reasons[name]) for name in sorted(reasons)),
        dict(sorted(studies.items())),
    )


def pool(sources: Sequence[Source]) -> Collection:
    """Put the runs of several sources together; raise `RunError` if they do not belong together."""
    if len(sources) > 1:
        sources = [
            replace(
                source,
                records=tuple(_within(source, record) for record in source.records),
                left_out=tuple(_within(source, run) for run in source.left_out),
            )
            for source in sources
        ]
    records = [record for source in sources for record in source.records]
    runs = sorted((each for each in records if not each.is_start), key=lambda each: each.key)
    _check(runs)
    studies = [study for source in sources for study in source.studies.values()]
    wanted = {
        (study.model, block.protocol, block.task, run.method, block.seed, run.draw)
        for study in studies
        for block in study.blocks()
        for run in study.runs(block)
        if run.method is not None
    }
    presets = {
        (each.model, protocol, each.preset) for each in studies for protocol in each.protocols
    }
    return Collection(
        tuple(runs),
        len(records) - len(runs),
        tuple(run for source in sources for run in source.left_out),
        tuple(sorted(wanted)),
        tuple(sorted(presets)),
    )


def _within(source: Source, found: Found) -> Found:
    """Return a run whose folder names its source."""
    return found.model_copy(update={"folder": f"{source.name}: {found.folder}"})


def _check(runs: Iterable[RunRecord]) -> None:
    """Raise `RunError` if a run is there twice, or if pairs have different rows or metrics."""
    same: dict[object, RunRecord] = {}
    for run in runs:
        other = same.setdefault(run.key, run)
        if other is not run:
            raise RunError(
                f"{other.folder} and {run.folder}: two runs of {run}; a report needs one of each, "
                "move one away"
            )
        other = same.setdefault((run.task, run.seed), run)
        if (run.data, run.metric) != (other.data, other.metric):
            raise RunError(
                f"{other.folder} and {run.folder}: task {run.task}, seed {run.seed} must have the "
                f"same rows and metric in all runs of a report, found others ({other.metric} and "
                f"{run.metric}); report them apart"
            )


def cover(wanted: Iterable[Key], found: AbstractSet[Key]) -> Coverage | None:
    """Return how many of the wanted runs are found, None if none is wanted."""
    blocks = group(sorted(wanted), lambda key: (key[2], key[4]))
    missing = []
    for (task, seed), keys in blocks.items():
        names = []
        for method, of_method in group(keys, lambda key: key[3]).items():
            draws = [str(key[5]) for key in of_method if key not in found]
            if draws:
                part = f" (draw {', '.join(draws)})" if len(draws) < len(of_method) else ""
                names.append(f"{method}{part}")
        if not found & {*keys}:
            names = ["everything"]
        if names:
            missing.append(f"{task}, seed {seed}: {', '.join(names)}")
    return Coverage(len(blocks), len(blocks) - len(missing), tuple(missing)) if blocks else None
