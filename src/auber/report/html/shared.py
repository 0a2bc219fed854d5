"""Parts that the pages of runs and of studies share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from auber.config import settings
from auber.report.figures import TIME_PART_COLOURS, Curve, draw_bars, draw_searches
from auber.report.html.page import Block, Drawing, Section, make_blocks
from auber.report.layers import Run
from auber.report.measurements import (
    REGRET,
    draw_regret,
    read_regret,
    read_speed,
    regret_table,
    speed_tables,
)
from auber.report.records import RunRecord
from auber.report.results_file import ResultsFile
from auber.run.records import TIME_PARTS

TIMES = {**{name: part.words for name, part in TIME_PARTS.items()}, "other": "other"}
_TIME_COLOURS = dict(zip(TIMES.values(), TIME_PART_COLOURS, strict=True))


def time_parts(record: RunRecord) -> dict[str, float]:
    """Return where the seconds of a run went."""
    parts = {words: record.times.get(name, 0.0) for name, words in TIMES.items()}
    return {**parts, "other": max(record.seconds - sum(parts.values()), 0.0)}


def draw_times(
    name: str, title: str, panels: Mapping[str, Mapping[str, dict[str, float]]]
) -> Drawing:
    """Return a figure of the seconds of runs or methods."""
    return Drawing(name, title, partial(draw_bars, panels, _TIME_COLOURS, "seconds"))


def search_start(runs: Iterable[Run]) -> str:
    """Return what the searches count their gains from."""
    has_prior = any(run.has_prior for run in runs)
    return "the plan the search started from" if has_prior else "the unpruned layer"


def search_caption(runs: Iterable[Run]) -> str:
    """Return the caption of the figures of searches."""
    return (
        "Best reward found so far against the number of different masks scored, in points over "
        f"{search_start(runs)} on the reward set"
    )


def curves_of(run: Run) -> dict[str, Curve]:
    """Return the searches of a run as gains in points, by layer."""
    return {
        f"layer {layer.index}": Curve(
            layer.gains,
            search.rewards_computed,
            None if layer.chosen is None else 100 * (layer.chosen - (layer.begun or 0.0)),
        )
        for layer, search in run.searched
        if layer.gains
    }


def draw_curves(name: str, title: str, panels: Mapping[str, Sequence[Curve]]) -> list[Drawing]:
    """Return a figure of searches with a panel for each title, none without searches."""
    return [Drawing(name, title, partial(draw_searches, panels))] if panels else []


def extra_sections(files: Sequence[ResultsFile]) -> Iterator[Section]:
    """Yield the sections of other commands' results."""
    for number, file in enumerate(files, 1):
        end = f"-{number}" if number > 1 else ""
        if file.kind == REGRET:
            regret = read_regret(file)
            title = "Regret against the number of rewards"
            drawing = Drawing(f"regret{end}", title, partial(draw_regret, regret))
            caption = (
                "Searches replayed on the scores of every mask of some layers, from "
                f"{file.name}: the mean over the layers."
            )
            blocks = [Block(caption, [drawing]), *make_blocks(regret_table(regret))]
            yield Section(f"regret{end}", "Regret", *blocks)
        else:
            tables = speed_tables(read_speed(file))
            blocks = [block for table in tables for block in make_blocks(table)]
            yield Section(f"speed{end}", "Speed", *blocks)


def settings_rows(columns: Mapping[str, Sequence[RunRecord]]) -> list[dict[str, str]]:
    """Return all settings, with the values that the runs of each column have."""
    meaning = {info.key: info.doc for info in settings()}
    used = dict.fromkeys(key for runs in columns.values() for run in runs for key in run.config)
    rows = []
    unknown = [key for key in used if key not in meaning]
    for key in (*(key for key in meaning if key in used), *unknown):
        row = {"setting": key}
        for name, runs in columns.items():
            values = dict.fromkeys(_text(run.config[key]) for run in runs if key in run.config)
            row[name] = ", ".join(values) or "not recorded"
        rows.append({**row, "meaning": meaning.get(key, "")})
    return rows


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
