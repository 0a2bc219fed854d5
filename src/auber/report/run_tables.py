"""The tables of a page about single runs: scores, sizes, layers, settings, provenance, speed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from auber.config import settings
from auber.export.speed import Speed, describe, make_tables
from auber.report.answer import name_layers, search_start, standard_error
from auber.report.layers import Run
from auber.report.records import RunRecord, count
from auber.report.results_file import ResultsFile
from auber.report.tables import Grid
from auber.run.result_record import AgreementRecord
from auber.system.records import parse

SPEED = "speed"  # the kind of results that may stand beside runs
_ORIGINS = "Where the numbers come from"


def read_speed(file: ResultsFile) -> list[Grid]:
    """Return the tables of a measurement of `auber speed`."""
    speed = parse(Speed, dict(file.content), file.name, "measure it again")
    first, *others = (Grid(title, pd.DataFrame(rows)) for title, rows in make_tables(speed).items())
    return [first._replace(notes=describe(speed).splitlines()), *others]


def list_runs(runs: Sequence[Run], *, folded: bool = False) -> Grid:
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
    cells = pd.DataFrame(rows)
    # The subtitle names a model and a protocol that all runs share.
    shared = [name for name in ("model", "protocol") if cells[name].nunique() == 1]
    notes = [
        "Scores in points (the metric times 100). Standard error: of an accuracy on this number of "
        "rows, not over seeds."
    ]
    if any(run.record.answered for run in runs):
        notes.append("Without labels, dev and train are the agreement with the unpruned model.")
    title = f"Scores and costs of {count(len(rows), 'run')}"
    return Grid(title, cells.drop(columns=shared), notes, folded=folded).filled


def list_sizes(run: Run) -> Grid:
    """Return the sizes that a run made."""
    rows = [
        {
            "size": f"{100 * size.keep:g} %",
            "dev": f"{100 * size.dev.score:.2f}",
            "multiply-adds": f"{100 * size.remaining.multiply_adds:.1f} %",
            "parameters": f"{100 * size.remaining.parameters:.1f} %",
            "ms per row": f"{size.after.milliseconds:.3g}" if size.after else "",
            **_list_orders(size.agreement),
            "loss on held-out rows": ""
            if size.held_out is None
            else f"{size.held_out.loss:.1f}, at most {size.held_out.bound:.1f} (95 %)",
        }
        for size in run.record.sizes
    ]
    notes = ("Loss: points lost on rows that chose nothing.",)
    return Grid(f"{run.label}: sizes", pd.DataFrame(rows), notes)


def _list_orders(agreement: AgreementRecord | None) -> dict[str, str]:
    """Return how like the unpruned order that of each group is, if there are groups."""
    if agreement is None or agreement.orders is None:
        return {}
    orders = agreement.orders
    return {
        "same first row": f"{100 * orders.same_first:.1f} % of {orders.groups} groups",
        "NDCG@10": f"{orders.ndcg:.3f}",
        "rank correlation": f"{orders.spearman:.3f}",
    }


def list_layers(run: Run) -> Grid:
    """Return what was decided in each layer."""
    smooth = run.record.config.get("reward.measure") == "smooth"
    measure = "the smooth reward" if smooth else "the metric"
    rows = []
    for layer in run.layers:
        search = layer.search
        scores = (
            layer.start_score,
            layer.chosen_score,
            search.best_score if search else None,
            layer.missed,
        )
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
    return Grid(f"{run.label}: layer by layer", pd.DataFrame(rows), notes, folded=True)


def list_settings(columns: Mapping[str, Sequence[RunRecord]]) -> Grid:
    """Return all settings, with the values that the runs of each column have."""
    meaning = {info.key: info.doc for info in settings()}
    used = dict.fromkeys(key for runs in columns.values() for run in runs for key in run.config)

    def values(runs: Sequence[RunRecord], key: str) -> str:
        found = dict.fromkeys(_text(run.config[key]) for run in runs if key in run.config)
        return ", ".join(found) or "not recorded"

    rows = [
        {
            "setting": key,
            **{name: values(runs, key) for name, runs in columns.items()},
            "meaning": words,
        }
        for key, words in (meaning | {key: "" for key in used if key not in meaning}).items()
        if key in used
    ]
    return Grid("All settings", pd.DataFrame(rows), folded=True)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def list_origins(runs: Sequence[Run]) -> Grid:
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
    return Grid(_ORIGINS, pd.DataFrame(columns).rename_axis("").reset_index())


def count_origins(records: Sequence[RunRecord]) -> Grid:
    """Return each environment with the number of its runs."""
    rows = pd.DataFrame([
        {**record.origin.facts, "runs and starts": 1, "seconds": record.seconds}
        for record in records
    ])  # fmt: skip
    cells = rows.groupby(["command", "commit", "device"], as_index=False).sum()
    cells["seconds"] = cells["seconds"].map("{:.0f}".format)
    versions = sorted({record.origin.packages for record in records})
    return Grid(_ORIGINS, cells.astype(str), versions)
