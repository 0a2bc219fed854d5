"""The page of one run, or of several runs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from auber.report.answer import Verdict
from auber.report.figures import GAIN, HeadMap, draw_bars, draw_heads, draw_searches, make_shades
from auber.report.html.page import (
    TIME_COLOURS,
    Block,
    Drawing,
    Page,
    Section,
    curves_of,
    extra_sections,
    search_caption,
    search_start,
    settings_rows,
    time_parts,
)
from auber.report.layers import Head, Run
from auber.report.records import RunRecord
from auber.report.results_file import ResultsFile

_MORE_RUNS = (
    "For a verdict: auber study with several seeds and the control original+tuning, then auber "
    "report of its folder."
)
_RANKINGS = {
    "state": "State before any removal",
    "importance": "Importance (how much the loss depends on the head)",
    "confidence": "Confidence (mean largest attention weight)",
    "gates": "Gates (higher means more open)",
}


def make_run_page(runs: Sequence[Run], extras: Sequence[ResultsFile] = ()) -> Page:
    """Return everything about some runs."""
    first, alone = runs[0].record, len(runs) == 1
    if alone:
        title = f"{first.title} on {first.task}"
        subtitle = f"{first.model}, protocol {first.protocol}, seed {first.seed}"
    else:
        title = f"{len(runs)} runs side by side"
        subtitle = "; ".join(f"{run.label}: {run.record}" for run in runs)
    # What is put behind names of figures and before their titles.
    ends = [("", "") if alone else (f"-{n}", f"{run.label}: ") for n, run in enumerate(runs, 1)]
    pruned = [(run, end) for run, end in zip(runs, ends, strict=True) if not run.record.is_start]
    has_values = any(run.values for run in runs)
    every = settings_rows({run.label: [run.record] for run in runs})
    differing = [row for row in every if len({row[run.label] for run in runs}) > 1]
    sections = (
        Section("scores", "Scores", _list_scores(runs)),
        Section(
            "heads",
            "Heads, and the agent's values" if has_values else "Heads",
            *(_map_heads(run, *end) for run, end in pruned),
            *(_draw_widths(run, *end) for run, end in pruned),
        ),
        Section(
            "course",
            "Search and time",
            _draw_course(runs, ends),
            *(_list_layers(run) for run in runs if run.searched),
        ),
        *extra_sections(extras),
        Section(
            "settings",
            "Configuration",
            Block("Settings that differ", rows=differing),
            Block("All settings", rows=every, folded=True),
        ),
        Section("origins", "Provenance", _list_origins(runs)),
    )
    verdicts = (*_compare(runs), *(_judge(run, alone=alone) for run in runs))
    return Page(title, subtitle, verdicts, sections)


# --- verdicts ---


def _judge(run: Run, *, alone: bool) -> Verdict:
    record = run.record
    headline = f"Dev {record.metric} {100 * record.dev:.2f}, {_describe_size(record)}."
    return Verdict(run.label, headline, (*_judge_scores(record, alone), *_judge_searches(run)))


def _describe_size(record: RunRecord) -> str:
    """Return what was removed, and the size that remains if neurons went too."""
    total, neurons = record.layers * record.heads, record.neurons
    heads = f"{record.removed} of {total} heads removed" if record.removed else "no head removed"
    if neurons is None or not neurons.removed or record.remaining is None:
        return heads
    share = f"{100 * record.remaining.multiply_adds:.1f} % of the multiply-adds remain"
    removed = f"{record.removed} of {total} heads"
    return f"{removed} and {neurons.removed:,} of {neurons.total:,} neurons removed, {share}"


def _judge_scores(record: RunRecord, alone: bool) -> Iterator[str]:
    gap = 100 * (record.train - record.dev)
    side = "above" if gap > 0 else "below"
    yield f"Train {100 * record.train:.2f}, {abs(gap):.2f} points {side} dev."
    if record.one_class:
        yield "Careful: the model gives every dev row the same answer, so its score means nothing."
    elif record.equals_majority:
        yield "Careful: the score is exactly that of always giving the most frequent class."
    elif record.metric == "accuracy" and record.above_constant < 0:
        share = 100 * (record.majority or 0)
        yield f"Careful: always giving the most frequent class scores {share:.2f}."
    if alone:
        yield f"One run proves nothing.{_doubt(record)} {_MORE_RUNS}"


def _judge_searches(run: Run) -> Iterator[str]:
    record = run.record
    below = [layer.index for layer in run.layers if layer.is_worse]
    if below:
        start = search_start([run])
        yield f"The choice scored below {start} on the reward set in {_name_layers(below)}."
    missed = [100 * layer.missed for layer in run.layers if layer.missed is not None]
    if run.size_was_given:
        yield (
            "The number of heads was given: the layers share it so that the sum of gains is "
            "largest."
        )
    elif missed and max(missed) > 0:
        yield (
            f"In {sum(points > 0 for points in missed)} of {len(missed)} layers the search had "
            f"scored a better mask than the chosen one, by up to {max(missed):.2f} points of "
            "reward."
        )
    before = record.removed - sum(len(layer.removed) for layer in run.layers)
    if run.searched and before:
        yield f"{before} of the heads were removed before this run."
    if record.rewards_asked:
        yield (
            f"{record.rewards_asked} rewards requested, {record.rewards_computed} computed; "
            f"{record.seconds:.0f} s in total."
        )


def _name_layers(layers: Sequence[int]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"


def _compare(runs: Sequence[Run]) -> Iterator[Verdict]:
    """Compare runs with the first one if their scores mean the same."""
    if len(runs) < 2:
        return
    first = runs[0].record
    if len({(run.record.data, run.record.metric) for run in runs}) > 1:
        headline = "These runs have different rows or metrics: their scores are not comparable."
        points = ["Heads, searches and times are shown all the same."]
    else:
        headline = "Single runs do not show a difference between methods or settings."
        points = [
            f"{run.label}: {100 * (run.record.dev - first.dev):+.2f} points on dev, "
            f"{run.record.removed - first.removed:+d} heads removed, against {runs[0].label}."
            for run in runs[1:]
        ]
        same_start = len({run.record.start for run in runs}) == 1
        start = "" if same_start else " They did not start from the same fine-tuned weights."
        points.append(f"{_MORE_RUNS}{_doubt(first)}{start}")
    yield Verdict("Side by side", headline, tuple(points))


def _doubt(record: RunRecord) -> str:
    error = standard_error(record)
    if error is None:
        return ""
    return f" A score on {record.dev_rows} rows has a standard error of about {error:.1f} points."


def standard_error(record: RunRecord) -> float | None:
    """Return the standard error of an accuracy in points, None for other metrics.

    Two right and two wrong answers are added (Agresti and Coull); otherwise a perfect score would
    seem certain.
    """
    if record.metric != "accuracy":
        return None
    rows = record.dev_rows + 4
    share = (record.dev * record.dev_rows + 2) / rows
    return 100 * math.sqrt(share * (1 - share) / rows)


# --- scores ---


def _list_scores(runs: Sequence[Run]) -> Block:
    rows = [
        {
            "run": run.label,
            "task": record.task,
            "method": record.title,
            "seed": str(record.seed),
            "dev": f"{100 * record.dev:.2f}",
            "standard error": "" if (error := standard_error(record)) is None else f"{error:.1f}",
            "train": f"{100 * record.train:.2f}",
            "gap": f"{100 * (record.train - record.dev):+.2f}",
            "heads removed": f"{record.removed} of {record.layers * record.heads}",
            "rewards computed": str(record.rewards_computed),
            "tuning steps": str(record.tuning_steps),
            "fold model steps": str(record.scout_steps),
            "seconds": f"{record.seconds:.1f}",
        }
        for run, record in ((run, run.record) for run in runs)
    ]
    note = "Standard error: of an accuracy on this number of rows, not over seeds."
    return Block("Scores in points (the metric times 100), and costs", rows=rows, notes=[note])


# --- heads ---


def _map_heads(run: Run, end: str, prefix: str) -> Block:
    """Map what was removed, what the method ranked heads by, and the agent's values."""
    layers, heads = range(run.record.layers), range(run.record.heads)

    def grid(values: Mapping[Head, float], width: int) -> list[list[float | None]]:
        return [[values.get((layer, head)) for head in range(width)] for layer in layers]

    texts = [["; ".join(_head_facts(run, layer, head)) for head in heads] for layer in layers]
    removed = frozenset((layer, head) for layer, gone in run.plan.heads.items() for head in gone)
    title = f"{len(removed)} of {len(layers) * len(heads)} heads removed"
    counts = [f"-{n}" if (n := len(run.plan.heads.get(layer, ()))) else "" for layer in layers]
    legend = "Red: removed. Right: number of removed heads."
    shades = make_shades(grid(dict.fromkeys(removed, 1.0), len(heads)), "counts")
    maps = [HeadMap(title, shades, texts, legend, removed, counts=counts)]
    caption = "Each square is a head; a crossed one is removed. Point at it, or use the arrow keys."
    scores = run.scores or run.states
    if scores:
        legend = f"Stronger means higher: {min(scores.values()):.3g} to {max(scores.values()):.3g}."
        shades = make_shades(grid(scores, len(heads)), "range")
        maps.append(HeadMap(_RANKINGS[run.ranking or "state"], shades, texts, legend, removed))
    if run.states:
        caption += (
            " State: the norms of a layer's heads, standardised and through a softmax, as the "
            "agent sees them first."
        )
    if run.values:
        stops = {
            each.index: search.q_values[-1] for each, search in run.searched if search.q_values
        }
        values = run.values | {(layer, len(heads)): number for layer, number in stops.items()}
        most = max(map(abs, values.values()))
        words = [f"value {stops[i]:+.3f} points" if i in stops else "not recorded" for i in layers]
        maps.append(
            HeadMap(
                "The agent's values, points of reward",
                make_shades(grid(values, len(heads) + 1), "signed"),
                [[*texts[i], f"layer {i}, stopping at once: {words[i]}"] for i in layers],
                f"Blue: gain, red: loss, full colour at {most:.2f} points.",
                removed,
                stop=True,
            )
        )
        caption += (
            " Values: the points of reward that the trained agent expects of "
            f"{'changing' if run.has_prior else 'removing'} a head first, or of stopping. It "
            "judges again after each action, so a head of low value may go later."
        )
    drawing = Drawing(f"heads{end}", f"{prefix}{title}", partial(draw_heads, [maps]))
    return Block(f"{prefix}{caption}", [drawing], maps)


def _head_facts(run: Run, index: int, head: int) -> Iterator[str]:
    """Yield everything known about a head."""
    yield f"layer {index}, head {head}: " + (
        "removed" if head in run.plan.heads.get(index, ()) else "kept"
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


def _draw_widths(run: Run, end: str, prefix: str) -> Block:
    """Draw the number of neurons left in each layer, if any went."""
    neurons = run.record.neurons
    if neurons is None or not neurons.removed:
        return Block()
    bars = {
        f"layer {layer}": {"left": neurons.per_layer - len(run.plan.neurons.get(layer, ()))}
        for layer in range(run.record.layers)
    }
    draw = partial(draw_bars, {"": bars}, {"left": GAIN}, "neurons")
    caption = f"{prefix}Feed-forward neurons left in each layer, of {neurons.per_layer:,}."
    return Block(caption, [Drawing(f"widths{end}", f"{prefix}Neurons left", draw)])


# --- search and time ---


def _draw_course(runs: Sequence[Run], ends: Iterable[tuple[str, str]]) -> Block:
    """Return the figures of the searches, and of where the time went."""
    drawings: list[Drawing] = []
    for run, (end, prefix) in zip(runs, ends, strict=True):
        asked, computed = run.record.rewards_asked, run.record.rewards_computed
        title = f"{prefix}{asked} rewards requested, {computed} computed"
        panels = {layer: [curve] for layer, curve in curves_of(run).items()}
        if panels:
            drawings.append(Drawing(f"search{end}", title, partial(draw_searches, panels)))
    times = {"": {run.label: time_parts(run.record) for run in runs}}
    draw = partial(draw_bars, times, TIME_COLOURS, "seconds")
    drawings.append(Drawing("time", "Where the time went", draw))
    caption = ""
    if any(run.searched for run in runs):
        caption = f"{search_caption(runs)}. The dot is the choice, layers are in search order. "
    return Block(f"{caption}Where the time went: seconds of the run.", drawings)


def _list_layers(run: Run) -> Block:
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
            "left": str(run.record.heads - len(run.plan.heads.get(layer.index, ()))),
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
        layers = _name_layers(untaught)
        notes.append(f"The agent made no update in {layers}: its plan there is not learned.")
    return Block(f"{run.label}: layer by layer", rows=rows, notes=notes, folded=True)


def _list_origins(runs: Iterable[Run]) -> Block:
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
        }
    names = next(iter(columns.values()))
    rows = [
        {"": name, **{label: facts[name] for label, facts in columns.items()}} for name in names
    ]
    return Block("Where the numbers come from", rows=rows)
