"""The page's parts that runs and studies share: settings, origins, and results of other commands that lie beside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from auber.config import settings
from auber.errors import RunError
from auber.report.html.page import Figure, Figures, Grid, Heading, Section, grids, section
from auber.report.origins import commit_words, device_words
from auber.report.record import RunRecord
from auber.report.regrets import KIND as REGRET
from auber.report.regrets import regret_figure, regret_table
from auber.report.results_file import ResultsFile
from auber.report.speeds import KIND as SPEED
from auber.report.speeds import speed_tables

EXTRAS = (REGRET, SPEED)  # the kinds of results that stand beside runs


def extra_sections(files: Sequence[ResultsFile]) -> list[Section]:
    """Regret and speed, where they are known."""
    found: list[Section | None] = []
    for file in files:
        if file.kind == REGRET:
            figure = Figure("regret", "Regret against the number of rewards", regret_figure(file))
            caption = (
                f"Searches replayed on the scores of every mask of some layers, from {file.name}."
            )
            found.append(
                section(
                    "regret", "Regret", [Figures(caption, (figure,)), *grids(regret_table(file))]
                )
            )
        elif file.kind == SPEED:
            tables = [grid for table in speed_tables(file) for grid in grids(table)]
            found.append(section("speed", "Speed", tables))
        else:
            raise RunError(
                f"{file.name}: must be results of kind {' or '.join(EXTRAS)}, found '{file.kind}'; leave it out"
            )
    return [part for part in found if part is not None]


def settings_grids(runs: Mapping[str, RunRecord]) -> list[Grid]:
    """What the runs differ in, and all settings; a run is told by its name."""
    meaning = {info.key: info.doc for info in settings()}
    keys = list(
        dict.fromkeys(
            (*(key for key in meaning), *(key for run in runs.values() for key in run.config))
        )
    )
    keys = [key for key in keys if any(key in run.config for run in runs.values())]
    differing = [key for key in keys if len({_value(run.config, key) for run in runs.values()}) > 1]
    columns = (Heading("setting"), *(Heading(name) for name in runs), Heading("meaning"))

    def rows(chosen: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        return tuple(
            (key, *(_value(run.config, key) for run in runs.values()), meaning.get(key, ""))
            for key in chosen
        )

    found = []
    if differing:
        found.append(Grid("What the settings differ in", columns, rows(differing)))
    found.append(Grid("All settings", columns, rows(keys), folded=True))
    return found


def values_of(records: Sequence[RunRecord]) -> Grid:
    """All settings of many runs, each with every value it has."""
    meaning = {info.key: info.doc for info in settings()}
    keys = list(dict.fromkeys((*meaning, *(key for record in records for key in record.config))))
    rows = []
    for key in keys:
        found = list(
            dict.fromkeys(_value(record.config, key) for record in records if key in record.config)
        )
        if found:
            rows.append((key, ", ".join(found), meaning.get(key, "")))
    columns = (Heading("setting"), Heading("value"), Heading("meaning"))
    return Grid(
        "All settings, with every value they have in these runs", columns, tuple(rows), folded=True
    )


def origins_grid(runs: Mapping[str, RunRecord]) -> Grid:
    """Where each run's numbers come from."""
    rows = {
        "command": [run.origin.command or "started from Python" for run in runs.values()],
        "commit": [commit_words(run.origin) for run in runs.values()],
        "device": [device_words(run.origin) for run in runs.values()],
        "versions": [versions_words(run) for run in runs.values()],
        "rows": [f"{run.train_rows} train, {run.dev_rows} dev" for run in runs.values()],
        "data (hash of all rows)": [run.data for run in runs.values()],
        "start (hash of its weights)": [run.start for run in runs.values()],
        "peak GPU memory": [_memory(run) for run in runs.values()],
    }
    columns = (Heading(""), *(Heading(name) for name in runs))
    return Grid(
        "Where the numbers come from",
        columns,
        tuple((name, *cells) for name, cells in rows.items()),
    )


def versions_words(run: RunRecord) -> str:
    """The packages that can change a result."""
    return ", ".join(f"{name} {version}" for name, version in run.origin.versions.items())


def _memory(run: RunRecord) -> str:
    return "not recorded" if run.peak_gpu_bytes is None else f"{run.peak_gpu_bytes / 2**30:.2f} GiB"


def _value(config: Mapping[str, Any], key: str) -> str:
    if key not in config:
        return "not recorded"
    value = config[key]
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
