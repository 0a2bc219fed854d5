"""Maps of units: removed heads, neurons left, how heads were ranked, what the agent expects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from auber.models.plan import PruningPlan
from auber.report.layers import Head, Run
from auber.report.records import CONTROLS, count

SHADES = 10  # of a colour
_RANKINGS = {
    "state": "State before any removal",
    "importance": "Importance (how much the loss depends on the head)",
    "confidence": "Confidence (mean largest attention weight)",
    "gates": "Gates (higher means more open)",
}
_STATE = (
    "State: the norms of a layer's heads, standardised and through a softmax, as the agent sees "
    "them first."
)
_VALUES = (
    "Values: the points of reward that the trained agent expects of {} a head first, or of "
    "stopping. It decides anew after each action, so a head of low value may be removed later."
)


@dataclass(frozen=True)
class HeadMap:
    """A row for each layer: a shade for each head and, if neurons were removed, a bar.

    Shades go from -SHADES (loss) to SHADES (gain); 0 has no colour.
    """

    title: str
    shades: Sequence[Sequence[int]]
    texts: Sequence[Sequence[str]]  # the description of each head
    legend: str = ""
    note: str = ""  # what the numbers are, on the page
    removed: frozenset[tuple[int, int]] = frozenset()
    stop: bool = False  # the last column is the action of stopping
    neurons: Sequence[float] = ()  # left in each layer, drawn as bars behind the rows
    width: int = 0  # neurons in each layer before pruning

    @property
    def bars(self) -> list[tuple[int, str, str]]:
        """The length in percent, the number and the description of each bar."""
        return [
            (
                round(100 * left / self.width),
                f"{left:,.0f}",
                f"layer {layer}: {left:,.0f} of {self.width:,} neurons left",
            )
            for layer, left in enumerate(self.neurons)
        ]


def make_shades(values: Sequence[Sequence[float | None]], scale: str) -> list[list[int]]:
    """Return the shades of values on a scale.

    On the scale "range" the lowest value is faint and the highest strong, on "counts" 0 has no
    colour and others are losses, and on "signed" the sign chooses the colour. None and values that
    are not finite have no colour.
    """
    numbers = np.array(values, dtype=float)
    is_shaded = np.isfinite(numbers) & ((numbers != 0) | (scale != "counts"))
    sizes = np.abs(numbers) if scale == "signed" else numbers
    high = sizes[is_shaded].max(initial=-math.inf)
    low = sizes[is_shaded].min(initial=high) if scale == "range" else 0.0
    shares = (sizes - low) / (high - low) if high > low else np.ones_like(sizes)
    is_loss = (scale == "counts") | ((scale == "signed") & (numbers < 0))
    shades = (1 + np.round((SHADES - 1) * shares)) * np.where(is_loss, -1, 1)
    found: list[list[int]] = np.where(is_shaded, shades, 0).astype(int).tolist()
    return found


def map_heads(cells: Mapping[str, Mapping[str, Sequence[Run]]]) -> dict[str, list[HeadMap]]:
    """Return maps of heads by task; for several runs of a name, how often each was removed."""
    found: dict[str, list[HeadMap]] = {}
    for task, of_task in cells.items():
        for name, runs in of_task.items():
            record = runs[0].record
            if record.is_start or (record.method in CONTROLS and not record.removed):
                continue
            if len(runs) == 1:
                prefix = f"{name}: " if len(of_task) > 1 else ""
                maps = [replace(each, title=prefix + each.title) for each in _map_run(runs[0])]
                found.setdefault(task, []).extend(maps)
            # Heads of models of different sizes are different heads.
            elif len({(run.record.layers, run.record.heads) for run in runs}) == 1:
                found.setdefault(task, []).append(_map_runs(name, runs))
    return found


def _map_runs(name: str, runs: Sequence[Run]) -> HeadMap:
    numbers = np.zeros((runs[0].record.layers, runs[0].record.heads), dtype=int)
    for run in runs:
        for layer, heads in run.record.plan.heads.items():
            numbers[layer, list(heads)] += 1
    texts = [
        [f"layer {i}, head {j}: removed in {n} of {len(runs)}" for j, n in enumerate(row)]
        for i, row in enumerate(numbers)
    ]
    shades = make_shades(numbers.tolist(), "counts")
    lefts = [left for run in runs if (left := _count_neurons(run, run.record.plan))]
    bars = {}
    if len(lefts) == len(runs):
        bars = {"neurons": np.mean(lefts, axis=0).tolist(), "width": _width(runs[0])}
    legend = "Stronger: in more runs." + (" Bars: neurons left, mean." if bars else "")
    return HeadMap(f"{name}, {count(len(runs), 'run')}", shades, texts, legend, **bars)


def _width(run: Run) -> int:
    return run.record.neurons.per_layer if run.record.neurons else 0


def _count_neurons(run: Run, plan: PruningPlan) -> list[int]:
    """Return the neurons left in each layer, empty if none is removed."""
    if not plan.num_neurons:
        return []
    return [_width(run) - len(plan.neurons.get(layer, ())) for layer in range(run.record.layers)]


def _map_plan(run: Run, plan: PruningPlan, size: str) -> HeadMap:
    """Return the heads and neurons that a plan removes."""
    layers, heads = range(run.record.layers), range(run.record.heads)
    removed = frozenset((layer, head) for layer, gone in plan.heads.items() for head in gone)
    shades = make_shades(
        [[float((layer, head) in removed) for head in heads] for layer in layers], "counts"
    )
    texts = [["; ".join(_head_facts(run, plan, layer, head)) for head in heads] for layer in layers]
    title = f"{size}{len(removed)} of {len(layers) * len(heads)} heads removed"
    neurons, legend = _count_neurons(run, plan), "Crossed: removed."
    if neurons:
        total = _width(run) * len(layers)
        title = title.replace(" removed", f" and {plan.num_neurons:,} of {total:,} neurons removed")
        legend += " Bars: neurons left."
    return HeadMap(
        title, shades, texts, legend, removed=removed, neurons=neurons, width=_width(run)
    )


def _map_run(run: Run) -> Iterator[HeadMap]:
    """Yield what was removed, what the method ranked heads by, and the agent's values."""
    layers, heads = range(run.record.layers), range(run.record.heads)

    def grid(values: Mapping[Head, float], width: int) -> list[list[float | None]]:
        return [[values.get((layer, head)) for head in range(width)] for layer in layers]

    own = _map_plan(run, run.record.plan, "")
    texts, removed = own.texts, own.removed
    plans = {f"{size.keep:g}: ": size.plan for size in run.record.sizes if size.plan}
    yield from [_map_plan(run, plan, size) for size, plan in plans.items()] or [own]
    scores = run.scores or run.states
    if scores:
        yield HeadMap(
            _RANKINGS[run.ranking or "state"],
            make_shades(grid(scores, len(heads)), "range"),
            texts,
            f"Stronger means higher: {min(scores.values()):.3g} to {max(scores.values()):.3g}.",
            "" if run.scores else _STATE,
            removed,
        )
    if run.values:
        stops = {
            each.index: search.q_values[-1] for each, search in run.searched if search.q_values
        }
        values = run.values | {(layer, len(heads)): number for layer, number in stops.items()}
        words = [f"value {stops[i]:+.3f} points" if i in stops else "not recorded" for i in layers]
        yield HeadMap(
            "The agent's values, points of reward",
            make_shades(grid(values, len(heads) + 1), "signed"),
            [[*texts[i], f"layer {i}, stopping at once: {words[i]}"] for i in layers],
            f"Blue: gain, red: loss, full colour at {max(map(abs, values.values())):.2f} points.",
            _VALUES.format("changing" if run.has_prior else "removing"),
            removed,
            stop=True,
        )


def _head_facts(run: Run, plan: PruningPlan, index: int, head: int) -> Iterator[str]:
    """Yield everything known about a head."""
    yield f"layer {index}, head {head}: " + (
        "removed" if head in plan.heads.get(index, ()) else "kept"
    )
    search = next((search for layer, search in run.searched if layer.index == index), None)
    if (index, head) in run.states:
        yield f"state {run.states[index, head]:.4f}"
    if search is not None and (index, head) in run.values:
        action = "putting it back" if head in search.given else "removing it"
        yield f"value of {action} first {run.values[index, head]:+.3f} points"
    if search is not None and search.best:
        yield f"{'in' if head in search.best else 'not in'} the best mask scored"
    if (index, head) in run.scores:
        yield f"{run.ranking} {run.scores[index, head]:.4g}"
