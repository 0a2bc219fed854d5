"""The finished runs of folders and results files, collected and checked for one report.

A folder with `run.json` is a run, and `result.json` in it means that it is complete. Other runs,
and those that a study recorded as failed (`NAME.failed.json`), are left out by name: nothing
partial gets into a table. The `study.toml` of a study lists the runs that are wanted.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection as Container
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ConfigDict

from auber.errors import RunError
from auber.report.records import Key, RunRecord, read_run
from auber.system.records import Name, Record, read

if TYPE_CHECKING:
    from auber.study.plan import Study

RESULT, STUDY, FAILED = "result.json", "study.toml", ".failed.json"

_PATH = re.compile(r"(?<![\w.])(?:~|\.\.)?(?:/[^\s/:;,'\"()]+)+/([^\s/:;,'\"()]+)")


class LeftOut(Record):
    """A run without a result, and why."""

    folder: Name
    reason: Name


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
    found, reasons, studies = _search(root)
    records = []
    for path in found:
        name = path.relative_to(root).as_posix()
        if (path / RESULT).is_file():
            records.append(read_run(path / RESULT, name))
            reasons.pop(name, None)
        else:
            reasons.setdefault(name, "unfinished")
    if all(record.is_start for record in records):
        raise RunError(
            f"{root}: no finished run below it (folders with run.json and {RESULT}, made by 'auber "
            f"prune' or 'auber study'); found {len(records)} fine-tuned starts and {len(reasons)} "
            "runs without a result"
        )
    left_out = tuple(
        LeftOut(folder=name, reason=reason) for name, reason in sorted(reasons.items())
    )
    return Source(str(folder), tuple(records), left_out, studies)


def _search(root: Path) -> tuple[list[Path], dict[str, str], dict[str, Study]]:
    """Return the folders of runs, the reasons of failures, and the studies."""
    if not root.is_dir():
        raise RunError(f"{root}: no such folder; give one that holds runs")
    found: list[Path] = []
    reasons: dict[str, str] = {}
    studies: dict[str, Study] = {}
    for place, folders, files in os.walk(root):
        if is_run(place):
            found.append(Path(place))
            folders.clear()  # what lies inside a run belongs to it
            continue
        for path in (Path(place, file) for file in files):
            name = path.relative_to(root).as_posix()
            if name.endswith(FAILED):
                failure = read(_Failure, path, "delete it to try the run again")
                error = _PATH.sub(r"\1", failure.error)  # a report is shown to others
                reasons[name.removesuffix(FAILED)] = (
                    error if failure.skipped else f"failed: {error}"
                )
            elif path.name == STUDY:
                from auber.study.plan import read_study

                studies[path.parent.relative_to(root).as_posix()] = read_study(path)
    return sorted(found), reasons, dict(sorted(studies.items()))


def pool(sources: Sequence[Source]) -> Collection:
    """Put the runs of several sources together; raise `RunError` if they do not belong together."""
    if len(sources) > 1:
        sources = [_with_place(source) for source in sources]
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


def _with_place(source: Source) -> Source:
    """Name the source in every folder."""

    def place(found: RunRecord | LeftOut) -> dict[str, str]:
        return {"folder": f"{source.name}: {found.folder}"}

    return replace(
        source,
        records=tuple(each.model_copy(update=place(each)) for each in source.records),
        left_out=tuple(each.model_copy(update=place(each)) for each in source.left_out),
    )


def _check(runs: Iterable[RunRecord]) -> None:
    """Raise `RunError` if a run is there twice, or if pairs have different rows or metrics."""
    same: dict[object, RunRecord] = {}
    pairs: dict[object, RunRecord] = {}
    for run in runs:
        other = same.setdefault(run.key, run)
        if other is not run:
            raise RunError(
                f"{other.folder} and {run.folder}: two runs of {run}; a report needs one of each, "
                "move one away"
            )
        other = pairs.setdefault((run.task, run.seed), run)
        if (run.data, run.metric) != (other.data, other.metric):
            raise RunError(
                f"{other.folder} and {run.folder}: task {run.task}, seed {run.seed} must have the "
                f"same rows and metric in all runs of a report, found others ({other.metric} and "
                f"{run.metric}); report them apart"
            )


def cover(wanted: Iterable[Key], found: Container[Key]) -> Coverage | None:
    """Return how many of the wanted runs are found, None if none is wanted."""
    blocks: dict[tuple[str, int], list[Key]] = defaultdict(list)
    for key in sorted(wanted):
        blocks[key[2], key[4]].append(key)
    if not blocks:
        return None
    missing = []
    for (task, seed), keys in blocks.items():
        lacking = [key for key in keys if key not in found]
        if lacking:
            whole = len(lacking) == len(keys)
            names = "everything" if whole else ", ".join(_methods(lacking, keys))
            missing.append(f"{task}, seed {seed}: {names}")
    return Coverage(len(blocks), len(blocks) - len(missing), tuple(missing))


def _methods(lacking: list[Key], keys: list[Key]) -> Iterable[str]:
    """Name the missing methods, with the missing draws if only some of them are."""
    draws: dict[str, list[int]] = defaultdict(list)
    for _, _, _, method, _, draw in lacking:
        draws[method].append(draw)
    for method, missing in draws.items():
        whole = len(missing) == sum(key[3] == method for key in keys)
        yield method if whole else f"{method} (draw {', '.join(map(str, missing))})"
