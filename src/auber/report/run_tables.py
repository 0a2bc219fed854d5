"""The tables of a page about single runs: models, costs, layers, settings, provenance, speed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from auber.config import settings
from auber.export.speed import Speed, describe, make_tables
from auber.models.plan import PruningPlan
from auber.report.answer import find_interval, name_layers, search_start
from auber.report.layers import Run
from auber.report.records import RunRecord, Size, count
from auber.report.results_file import ResultsFile
from auber.report.tables import Grid
from auber.run.result_record import TIME_PARTS, AgreementRecord, ComparedRecord
from auber.run.summary import write_parameters
from auber.system.records import parse

SPEED = "speed"  # the kind of results that may stand beside runs
_COSTS = (
    *("model", "protocol", "task", "method", "seed", "train", "gap"),
    *("rewards computed", "tuning steps", "fold model steps", "seconds"),
)
_MODELS = (
    *("change", "95 % interval", "loss on held-out rows", "same first row", "NDCG@10"),
    *("rank correlation", "multiply-adds", "parameters", "ms per row", "times as fast"),
    *("heads removed", "neurons removed"),
)
_ORIGINS = "Where the numbers come from"


def read_speed(file: ResultsFile) -> list[Grid]:
    """Return the tables of a measurement of `auber speed`."""
    speed = parse(Speed, dict(file.content), file.name, "measure it again")
    first, *others = (Grid(title, pd.DataFrame(rows)) for title, rows in make_tables(speed).items())
    return [first._replace(notes=describe(speed).splitlines()), *others]


def compare_models(runs: Sequence[Run]) -> Grid:
    """Return size, score and speed of every model that the runs made, below the unpruned ones."""
    starts: dict[tuple[str, str], list[tuple[Run, ComparedRecord]]] = defaultdict(list)
    for run in runs:
        if run.record.before is not None:
            starts[run.record.start, run.record.data].append((run, run.record.before))
    rows = [_list_start(of_start, alone=len(starts) == 1) for of_start in starts.values()]
    rows += [row for run in runs for row in _list_models(run, alone=len(runs) == 1)]
    cells = pd.DataFrame(rows).fillna("")
    first = [name for name in cells if name == "model" or name.startswith("dev ")]
    notes = []
    if starts:
        measured = {(each.tokens, run.record.device) for of in starts.values() for run, each in of}
        where = "; ".join(f"{tokens} tokens on {device}" for tokens, device in sorted(measured))
        notes.append(
            "Change: against the unpruned model, in points. Milliseconds: of one row at a time in "
            f"plain torch ({where}); a run measures its models beside the unpruned one."
        )
    if "95 % interval" in cells:
        notes.append(
            "95 % interval: of the change, or of the score where there is none, over rows and not "
            "over seeds. It treats the two models as independent and is therefore conservative."
        )
    if "loss on held-out rows" in cells:
        notes.append("Loss: points lost on rows that chose nothing, and the 95 % bound of it.")
    cells = cells[[*first, *(name for name in _MODELS if name in cells)]]
    return Grid("Score, size and speed", cells, notes).filled


def _list_start(runs: Sequence[tuple[Run, ComparedRecord]], *, alone: bool) -> dict[str, str]:
    """Return the row of the fine-tuned model that some runs pruned."""
    first, before = runs[0]
    name = "unpruned" if before.multiply_adds == 1 else "before the run"
    times = sorted(each.milliseconds for _, each in runs)
    return {
        "model": name if alone else f"{name} ({', '.join(run.label for run, _ in runs)})",
        f"dev {first.record.measure}": f"{100 * before.score:.1f}",
        "multiply-adds": f"{100 * before.multiply_adds:.0f} %",
        "parameters": write_parameters(before.parameters),
        "ms per row": " to ".join(dict.fromkeys(f"{times[end]:.3g}" for end in (0, -1))),
    }


def _list_models(run: Run, *, alone: bool) -> Iterator[dict[str, str]]:
    """Yield the row of each size of a run, or of its only model."""
    record = run.record
    if not record.sizes:
        yield {"model": run.label, **_list_model(record, record, record.dev, record.plan)}
    for size in record.sizes:
        name = f"{size.keep:g}" if alone else f"{run.label}, {size.keep:g}"
        if size is record.chosen and record.config.get("size.tolerance") is not None:
            name += " (chosen)"
        row = {"model": name, **_list_model(record, size, size.dev.score, size.plan)}
        if size.held_out is not None:
            found = size.held_out
            row["loss on held-out rows"] = f"{found.loss:.1f}, at most {found.bound:.1f}"
        yield row


def _list_model(
    record: RunRecord, made: RunRecord | Size, score: float, plan: PruningPlan | None
) -> dict[str, str]:
    before, after, remaining = record.before, made.after, made.remaining
    row = {f"dev {record.measure}": f"{100 * score:.1f}"}
    has_change = before is not None and not record.answered
    if before is not None and has_change:
        row["change"] = f"{100 * (score - before.score):+.1f}"
    if (interval := find_interval(record, score)) is not None:
        sign = "+" if has_change else ""
        row["95 % interval"] = " to ".join(f"{end:{sign}.1f}" for end in interval)
    row |= _list_orders(made.agreement)
    if remaining is not None:
        row["multiply-adds"] = f"{100 * remaining.multiply_adds:.0f} %"
        row["parameters"] = f"{100 * remaining.parameters:.0f} %"
    if before is not None and after is not None:
        row["parameters"] = write_parameters(after.parameters)
        row["ms per row"] = f"{after.milliseconds:.3g}"
        row["times as fast"] = f"{before.milliseconds / after.milliseconds:.1f}"
    if plan is not None:
        row["heads removed"] = f"{plan.num_heads} of {record.layers * record.heads}"
        if record.neurons is not None:
            row["neurons removed"] = f"{plan.num_neurons:,} of {record.neurons.total:,}"
    return row


def list_runs(runs: Sequence[Run]) -> Grid:
    """Return the scores and costs of runs."""
    rows = []
    for run in runs:
        record, remaining, neurons = run.record, run.record.remaining, run.record.neurons
        rows.append({
            "run": run.label,
            "model": record.model,
            "protocol": record.protocol,
            "task": record.task,
            "method": record.title,
            "seed": str(record.seed) + (f", draw {record.draw}" if record.draw else ""),
            "dev": f"{100 * record.dev:.2f}",
            "train": f"{100 * record.train:.2f}",
            "gap": f"{100 * (record.train - record.dev):+.2f}",
            "heads removed": f"{record.removed} of {record.layers * record.heads}",
            "neurons removed": f"{neurons.removed:,} of {neurons.total:,}" if neurons else "",
            "multiply-adds": f"{100 * remaining.multiply_adds:.1f} %" if remaining else "",
            "parameters": f"{100 * remaining.parameters:.1f} %" if remaining else "",
            "rewards computed": str(record.rewards_computed or ""),
            "tuning steps": str(record.tuning_steps),
            "fold model steps": str(record.scout_steps or ""),
            "seconds": f"{record.seconds:.1f}",
        })  # fmt: skip
    cells = pd.DataFrame(rows)
    # The subtitle names a model and a protocol that all runs share.
    shared = [name for name in ("model", "protocol") if cells[name].nunique() == 1]
    notes = ["Scores in points (the metric times 100)."]
    if any(run.record.answered for run in runs):
        notes.append("Without labels, dev and train are the agreement with the unpruned model.")
    title = f"Scores and costs of {count(len(rows), 'run')}"
    return Grid(title, cells.drop(columns=shared), notes, folded=True).filled


def list_costs(runs: Sequence[Run]) -> Grid:
    """Return what `compare_models` leaves out of runs, with a column for each."""
    grid = list_runs(runs)
    cells = grid.cells.set_index("run").T
    cells = cells.loc[[name for name in _COSTS if name in cells.index]]
    times = pd.DataFrame({run.label: time_parts(run.record) for run in runs})
    times = times[(times >= 0.05).any(axis=1)].map("{:.1f}".format)
    cells = pd.concat([cells, times.rename(index="seconds: {}".format)])
    return Grid(
        "Training scores, steps and seconds", cells.rename_axis("").reset_index(), grid.notes
    )


def time_parts(record: RunRecord) -> dict[str, float]:
    """Return what the seconds of a run were spent on."""
    parts = {part.words: record.times.get(name, 0.0) for name, part in TIME_PARTS.items()}
    return {**parts, "other": max(record.seconds - sum(parts.values()), 0.0)}


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
