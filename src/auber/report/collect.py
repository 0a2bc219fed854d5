"""What every table is made from: the runs of folders and results files, put together and checked.

Runs of one model under one protocol belong together wherever they were read. A run that could stand for another of the same
name is an error and not a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from auber.errors import ConfigError, RunError
from auber.report.coverage import Key
from auber.report.folders import LeftOut, Source
from auber.report.record import RunRecord
from auber.report.results_file import read_place


@dataclass(frozen=True)
class Collection:
    """What was found, sorted: runs to compare, fine-tuned starts (no method of their own), runs without a result."""

    runs: tuple[RunRecord, ...]
    starts: int
    left_out: tuple[LeftOut, ...]
    wanted: tuple[
        Key, ...
    ]  # the runs the studies ask for; runs outside a study are asked for by nobody
    presets: tuple[
        tuple[str, str, str], ...
    ] = ()  # (model, protocol, the preset that a study takes its settings from)


def collect(*places: str | Path) -> Collection:
    """Read every run below folders and in results files."""
    if not places:
        raise ConfigError("a report needs runs, found nothing named; give folders or results files")
    return pool([read_place(place) for place in places])


def pool(sources: Sequence[Source]) -> Collection:
    """The runs of several sources together."""
    if len(sources) > 1:
        sources = [_with_place(source) for source in sources]
    records = [record for source in sources for record in source.records]
    runs = [record for record in records if not record.is_start]
    _check_distinct(runs)
    _check_same_rows(runs)
    runs.sort(key=lambda record: record.key)
    wanted = {
        (study.model, block.protocol, block.task, run.method, block.seed, run.draw)
        for source in sources
        for study in source.studies.values()
        for block in study.blocks()
        for run in study.runs(block)
        if run.method is not None
    }
    left_out = [run for source in sources for run in source.left_out]
    presets = {
        (study.model, protocol, study.preset)
        for source in sources
        for study in source.studies.values()
        for protocol in study.protocols
    }
    return Collection(
        tuple(runs),
        len(records) - len(runs),
        tuple(left_out),
        tuple(sorted(wanted)),
        tuple(sorted(presets)),
    )


def _with_place(source: Source) -> Source:
    """Folders told with the source they are of."""
    return replace(
        source,
        records=tuple(
            replace(record, folder=f"{source.name}: {record.folder}") for record in source.records
        ),
        left_out=tuple(
            replace(run, folder=f"{source.name}: {run.folder}") for run in source.left_out
        ),
    )


def _check_distinct(runs: list[RunRecord]) -> None:
    first: dict[object, RunRecord] = {}
    for run in runs:
        other = first.setdefault(run.key, run)
        if other is not run:
            raise RunError(
                f"{other.folder} and {run.folder}: two runs of {run.words}; a report needs one of each, move one away"
            )


def _check_same_rows(runs: list[RunRecord]) -> None:
    """Scores are paired by task and seed, so both must have been measured on the same rows by the same metric."""
    first: dict[object, RunRecord] = {}
    for run in runs:
        other = first.setdefault((run.task, run.seed), run)
        if (run.data, run.metric) != (other.data, other.metric):
            raise RunError(
                f"{other.folder} and {run.folder}: task {run.task}, seed {run.seed} must have the same rows and metric in all "
                f"runs of a report, found others ({other.metric} and {run.metric}); report them apart"
            )
