"""The tables of a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from auber.config import settings
from auber.export.speed import Speed, describe, make_tables
from auber.report.analysis import Report
from auber.report.answer import name_layers, search_start, standard_error
from auber.report.layers import Run
from auber.report.records import RunRecord, count, group
from auber.report.results_file import ResultsFile
from auber.report.tables import Place, Table
from auber.system.records import parse

SPEED = "speed"  # the kind of results that may stand beside runs


class Grid(NamedTuple):
    """A table of text whose first column names the rows; a folded one is opened by the reader."""

    caption: str
    rows: Sequence[Mapping[str, str]]
    notes: Sequence[str] = ()
    folded: bool = False


def make_grids(table: Table, place: Place | None = None) -> list[Grid]:
    """Return what a table has of a model and protocol, without empty columns."""
    return [
        Grid(shown.caption, shown.filled.to_dict("records"))
        for shown in table.sections()
        if shown.place == place
    ]


def read_speed(file: ResultsFile) -> list[Grid]:
    """Return the tables of a measurement of `auber speed`."""
    speed = parse(Speed, dict(file.content), file.name, "measure it again")
    first, *others = (
        Grid(table.title, [dict(zip(table.columns, row, strict=True)) for row in table.rows])
        for table in make_tables(speed)
    )
    return [first._replace(notes=describe(speed).splitlines()), *others]


def list_runs(runs: Sequence[Run]) -> Grid:
    """Return the scores and costs of runs."""
    rows = []
    for run in runs:
        record, error = run.record, standard_error(run.record)
        remaining, neurons = record.remaining, record.neurons
        rows.append({
            "run": run.label,
            "model": record.model,
            "protocol": record.protocol,
            "task": record.task,
            "method": record.title,
            "seed": str(record.seed) + (f", draw {record.draw}" if record.draw else ""),
            "dev": f"{100 * record.dev:.2f}",
            "standard error": "" if error is None else f"{error:.1f}",
            "train": f"{100 * record.train:.2f}",
            "gap": f"{100 * (record.train - record.dev):+.2f}",
            "heads removed": f"{record.removed} of {record.layers * record.heads}",
            "neurons removed": f"{neurons.removed:,} of {neurons.total:,}" if neurons else "",
            "multiply-adds": f"{100 * remaining.multiply_adds:.1f} %" if remaining else "",
            "parameters": f"{100 * remaining.parameters:.1f} %" if remaining else "",
            "rewards computed": str(record.rewards_computed),
            "tuning steps": str(record.tuning_steps),
            "fold model steps": str(record.scout_steps),
            "seconds": f"{record.seconds:.1f}",
        })  # fmt: skip
    frame = pd.DataFrame(rows)
    # The subtitle names a model and a protocol that all runs share.
    is_told = frame.columns.isin(["model", "protocol"]) & (frame.nunique() == 1)
    filled = frame.loc[:, frame.ne("").any() & ~is_told].to_dict("records")
    notes = (
        "Scores in points (the metric times 100). Standard error: of an accuracy on this number of "
        "rows, not over seeds.",
    )
    return Grid(f"Scores and costs of {count(len(rows), 'run')}", filled, notes)


def list_sizes(run: Run) -> Grid:
    """Return the sizes that a run made."""
    rows = [
        {
            "size": f"{100 * size.keep:g} %",
            "dev": f"{100 * size.dev.score:.2f}",
            "multiply-adds": f"{100 * size.remaining.multiply_adds:.1f} %",
            "parameters": f"{100 * size.remaining.parameters:.1f} %",
            "ms per row": f"{size.after.milliseconds:.3g}" if size.after else "",
            "loss on held-out rows": ""
            if size.held_out is None
            else f"{size.held_out.loss:.1f}, at most {size.held_out.bound:.1f} (95 %)",
        }
        for size in run.record.sizes
    ]
    return Grid(f"{run.label}: sizes", rows, ("Loss: points lost on rows that chose nothing.",))


def list_layers(run: Run) -> Grid:
    """Return what was decided in each layer."""
    smooth = run.record.config.get("reward.measure") == "smooth"
    measure = "the smooth reward" if smooth else "the metric"
    rows = []
    for layer in run.layers:
        search = layer.search
        scores = (layer.begun, layer.chosen, search.best_score if search else None, layer.missed)
        points = ["" if score is None else f"{100 * score:.2f}" for score in scores]
        rows.append({
            "layer": str(layer.index),
            "removed": ", ".join(map(str, layer.removed)) or "none",
            "left": str(run.record.heads - len(run.record.plan.heads.get(layer.index, ()))),
            **dict(zip(("start", "chosen", "best", "missed"), points, strict=True)),
            "rewards requested": str(search.rewards_asked) if search else "",
            "computed": str(search.rewards_computed) if search else "",
            "tuning steps": str(layer.tuning_steps),
            "seconds": f"{layer.seconds:.1f}",
        })  # fmt: skip
    notes = [
        f"Start, chosen, best: {measure} on the layer's reward set, in points. Start: of "
        f"{search_start([run])}. Best: of the mask that the search scored best, after the costs of "
        "removing heads if there are any. Missed: best minus chosen."
    ]
    untaught = [layer.index for layer, search in run.searched if search.updates == 0]
    if untaught:
        layers = name_layers(untaught)
        notes.append(f"The agent made no update in {layers}: its plan there is not learned.")
    return Grid(f"{run.label}: layer by layer", rows, notes, folded=True)


def list_settings(columns: Mapping[str, Sequence[RunRecord]]) -> list[dict[str, str]]:
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


def list_left_out(report: Report) -> Grid:
    """Return the runs that no number is of."""
    rows = [{"run": run.folder, "reason": run.reason} for run in report.left_out]
    return Grid("Runs without a result, in no number here", rows)


def list_origins(runs: Iterable[Run]) -> Grid:
    """Return the environment of each run, and what identifies its rows and its start."""
    columns = {}
    for run in runs:
        record, peak = run.record, run.record.peak_gpu_bytes
        columns[run.label] = {
            **record.origin.facts,
            "versions": record.origin.packages,
            "rows": f"{record.train_rows} train, {record.dev_rows} dev",
            "data (digest of all rows)": record.data,
            "start (digest of its weights)": record.start,
            "peak GPU memory": "not recorded" if peak is None else f"{peak / 2**30:.2f} GiB",
            "folder": record.folder,
        }
    frame = pd.DataFrame(columns).rename_axis("").reset_index()
    return Grid("Where the numbers come from", frame.to_dict("records"))


def count_origins(records: Iterable[RunRecord]) -> Grid:
    """Return each environment with the number of its runs."""
    records = list(records)
    by_origin = group(records, lambda record: tuple(record.origin.facts.items()))
    rows = [
        {
            **dict(origin),
            "runs and starts": str(len(found)),
            "seconds": f"{sum(record.seconds for record in found):.0f}",
        }
        for origin, found in sorted(by_origin.items())
    ]
    versions = sorted({record.origin.packages for record in records})
    return Grid("Where the numbers come from", rows, versions)
