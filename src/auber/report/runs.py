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
from dataclasses import dataclass
from pathlib import Path

from auber.errors import RunError, printable
from auber.report.records import RunKey, RunRecord, group, read_run
from auber.run.files import RESULT, is_run
from auber.study.folder import FAILED, RECORD, FailureRecord
from auber.study.plan import Study, read_study
from auber.system.records import Name, Record, read

_PATH = re.compile(r"(?<![\w.])(?:~|\.\.)?(?:/[^\s/:;,'\"()]+)+/([^\s/:;,'\"()]+)")


class LeftOut(Record):
    """A run without a result, and why."""

    folder: Name
    reason: Name


@dataclass(frozen=True)
class RunSet:
    """The content of one folder or results file, or of several."""

    name: str
    records: Sequence[RunRecord]  # including fine-tuned starts
    left_out: Sequence[LeftOut]
    studies: Mapping[str, Study]  # by folder, `.` for the searched one
    notes: Sequence[str] = ()  # saved beside the runs

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of methods, sorted."""
        runs = [record for record in self.records if not record.is_start]
        return sorted(runs, key=lambda run: run.key)

    @property
    def wanted(self) -> set[RunKey]:
        """The runs that the studies ask for."""
        return {
            (study.model, block.protocol, block.task, run.method, block.seed, run.draw)
            for study in self.studies.values()
            for block in study.blocks()
            for run in study.runs(block)
            if run.method is not None
        }


def read_folder(folder: str | Path) -> RunSet:
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
        if RECORD in files:
            studies[name] = read_study(Path(place, RECORD))
        for path in (Path(place, file) for file in files if file.endswith(FAILED)):
            failure = read(FailureRecord, path, "delete it to try the run again")
            error = _PATH.sub(r"\1", printable(failure.error))  # a report is shown to others
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
    return RunSet(
        str(folder),
        tuple(sorted(records, key=lambda record: Path(record.folder))),
        tuple(LeftOut(folder=name, reason=reasons[name]) for name in sorted(reasons)),
        dict(sorted(studies.items())),
    )


def pool_runs(sources: Sequence[RunSet]) -> RunSet:
    """Combine the runs of several sources; raise `RunError` if they do not belong together."""
    if len(sources) == 1:
        found = sources[0]
    else:
        # A folder names its source.
        records, left_out = (
            [
                each.model_copy(update={"folder": f"{source.name}: {each.folder}"})
                for source in sources
                for each in getattr(source, kind)
            ]
            for kind in ("records", "left_out")
        )
        studies = {
            f"{source.name}: {place}": study
            for source in sources
            for place, study in source.studies.items()
        }
        notes = dict.fromkeys(note for source in sources for note in source.notes)
        found = RunSet("", records, left_out, studies, tuple(notes))
    _check(found.runs)
    return found


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
                "same rows and metric in all runs of a report, found different ones "
                f"({other.metric} and {run.metric}); report them separately"
            )


def find_missing(wanted: Iterable[RunKey], found: AbstractSet[RunKey]) -> list[str]:
    """Return a line for each wanted block (a task and a seed) that lacks runs."""
    missing = []
    for (task, seed), keys in group(sorted(wanted), lambda key: (key[2], key[4])).items():
        names = []
        for method, of_method in group(keys, lambda key: key[3]).items():
            draws = [str(key[5]) for key in of_method if key not in found]
            if draws:
                part = f" (draw {', '.join(draws)})" if len(draws) < len(of_method) else ""
                names.append(f"{method}{part}")
        if found.isdisjoint(keys):
            names = ["everything"]
        if names:
            missing.append(f"{task}, seed {seed}: {', '.join(names)}")
    return missing
