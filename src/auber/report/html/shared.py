"""Parts that the pages of runs and of studies share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from auber.config import settings
from auber.errors import RunError
from auber.report.figures import TIME_PART_COLOURS, Bar, Curve, draw_bars, draw_searches
from auber.report.html.page import Block, Drawing, Drawings, Grid, grids, make_grid
from auber.report.layers import Run
from auber.report.measurements import (
    REGRET,
    SPEED,
    draw_regret,
    read_regret,
    read_speed,
    regret_table,
    speed_tables,
)
from auber.report.records import RunRecord
from auber.report.results_file import ResultsFile
from auber.run.records import TIME_PARTS

EXTRAS = (REGRET, SPEED)  # kinds of results that stand beside runs

TIMES = {**{name: part.words for name, part in TIME_PARTS.items()}, "other": "other"}
TIME_COLOURS = dict(zip(TIMES.values(), TIME_PART_COLOURS, strict=True))


def time_parts(record: RunRecord) -> dict[str, float]:
    """Return where the seconds of a run went."""
    parts = {words: record.times.get(name, 0.0) for name, words in TIMES.items()}
    return {**parts, "other": max(record.seconds - sum(parts.values()), 0.0)}


def draw_times(name: str, title: str, rows: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Return a figure of the seconds of runs or methods."""
    totals = {row: sum(parts.values()) for row, parts in rows.items()}
    bars = [Bar(row, parts, note=f"{totals[row]:.0f} s") for row, parts in rows.items()]
    alt = "Seconds: " + "; ".join(f"{row} {total:.0f}" for row, total in totals.items())
    return Drawing(name, title, alt, partial(draw_bars, bars, TIME_COLOURS, "seconds"))


def begun_from(runs: Iterable[Run]) -> str:
    """Return what the searches count their gains from."""
    return (
        "the plan the search started from"
        if any(r.has_prior for r in runs)
        else "the unpruned layer"
    )


def curves_of(run: Run, title: str = "layer {}") -> list[Curve]:
    """Return the searches of a run as gains in points."""
    return [
        Curve(
            title.format(index),
            search.gains,
            search.record.rewards_computed,
            None if search.chosen is None else 100 * (search.chosen - (search.begun or 0.0)),
        )
        for index, search in run.searched
        if search.gains
    ]


def search_drawing(name: str, title: str, panels: Mapping[str, Sequence[Curve]]) -> Drawing | None:
    """Return a figure of searches, a panel for each title."""
    if not panels:
        return None
    ends = [
        f"{curve.title} {curve.points[-1][1]:+.2f}" for each in panels.values() for curve in each
    ]
    alt = f"Best gain of each search in points: {'; '.join(ends)}"
    return Drawing(name, title, alt, partial(draw_searches, panels))


def drawings(caption: str, found: Iterable[Drawing | None]) -> Drawings | None:
    """Return the figures that are there with their caption."""
    kept = tuple(drawing for drawing in found if drawing is not None)
    return Drawings(caption, kept) if kept else None


def extra_parts(files: Sequence[ResultsFile]) -> Iterator[tuple[str, str, list[Block | None]]]:
    """Yield the sections of other commands' results."""
    for file in files:
        if file.kind == REGRET:
            regret = read_regret(file)
            title = "Regret against the number of rewards"
            figure = Drawing("regret", title, title, partial(draw_regret, regret))
            caption = (
                "Searches replayed on the scores of every mask of some layers, from "
                f"{file.name}: the mean over the layers."
            )
            yield "regret", "Regret", [Drawings(caption, (figure,)), *grids(regret_table(regret))]
        elif file.kind == SPEED:
            tables = speed_tables(read_speed(file))
            yield "speed", "Speed", [grid for table in tables for grid in grids(table)]
        else:
            raise RunError(
                f"{file.name}: must be results of kind {' or '.join(EXTRAS)}, found '{file.kind}'; "
                "leave it out"
            )


def settings_grids(runs: Mapping[str, RunRecord]) -> list[Grid | None]:
    """Return the differing settings of runs by name, then all of them."""
    meaning = {info.key: info.doc for info in settings()}
    keys = _keys(runs.values(), meaning)
    differing = [key for key in keys if len({_value(run.config, key) for run in runs.values()}) > 1]

    def rows(chosen: Iterable[str]) -> Iterator[dict[str, str]]:
        for key in chosen:
            values = {name: _value(run.config, key) for name, run in runs.items()}
            yield {"setting": key, **values, "meaning": meaning.get(key, "")}

    return [
        make_grid("Settings that differ", rows(differing)),
        make_grid("All settings", rows(keys), folded=True),
    ]


def values_grid(records: Sequence[RunRecord]) -> Grid | None:
    """Return all settings with every value they have."""
    meaning = {info.key: info.doc for info in settings()}
    rows = [
        {
            "setting": key,
            "value": ", ".join(
                dict.fromkeys(_value(each.config, key) for each in records if key in each.config)
            ),
            "meaning": meaning.get(key, ""),
        }
        for key in _keys(records, meaning)
    ]
    return make_grid("All settings, with every value in these runs", rows, folded=True)


def _keys(records: Iterable[RunRecord], known: Iterable[str]) -> list[str]:
    used = dict.fromkeys(key for record in records for key in record.config)
    return [key for key in dict.fromkeys((*known, *used)) if key in used]


def _value(config: Mapping[str, Any], key: str) -> str:
    if key not in config:
        return "not recorded"
    value = config[key]
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
