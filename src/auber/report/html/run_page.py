"""The page of one run, or of several runs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from auber.data import TASKS
from auber.report.figures import (
    GAIN,
    HeadMap,
    ScoreRow,
    draw_bars,
    draw_heads,
    draw_scores,
    make_shades,
)
from auber.report.html.page import Block, Drawing, Page, Section, Verdict, make_slugs
from auber.report.html.shared import (
    curves_of,
    describe_searches,
    draw_curves,
    draw_times,
    extra_sections,
    settings_rows,
    time_parts,
)
from auber.report.layers import Layer, Run
from auber.report.records import RunRecord
from auber.report.results_file import ResultsFile
from auber.report.words import commit_of, device_of, method_of, versions_of

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
        title = f"{method_of(first)} on {first.task}"
        subtitle = f"{first.model}, protocol {first.protocol}, seed {first.seed}"
    else:
        title = f"{len(runs)} runs side by side"
        subtitle = "; ".join(f"{run.label}: {run.record}" for run in runs)
    slugs = make_slugs(run.label for run in runs)
    has_values = any(layer.values for run in runs for layer in run.layers)
    pruned = [run for run in runs if not run.record.is_start]
    heads = [_map_heads(run, slugs[run.label], alone=alone) for run in pruned]
    every = settings_rows({run.label: [run.record] for run in runs})
    differing = [row for row in every if len({row[run.label] for run in runs}) > 1]
    sections = (
        Section("scores", "Scores", _draw_scores(runs), _list_scores(runs)),
        Section("heads", "Heads, and the agent's values" if has_values else "Heads", *heads),
        Section(
            "course",
            "Search, removals and time",
            _course(runs, slugs),
            *(_list_layers(run) for run in runs if run.searched),
        ),
        *extra_sections(extras),
        Section(
            "settings",
            "Configuration",
            Block("Settings that differ", rows=differing),
            Block("All settings", rows=every, folded=True),
        ),
        Section("origins", "Provenance", _origins(runs)),
    )
    verdicts = (*_compare(runs), *(_judge(run, alone=alone) for run in runs))
    return Page(title, subtitle, verdicts, sections)


# --- verdicts ---


def _judge(run: Run, *, alone: bool) -> Verdict:
    record = run.record
    total = record.layers * record.heads
    removed = f"{record.removed} of {total} heads removed" if record.removed else "no head removed"
    headline = f"Dev {record.metric} {100 * record.dev:.2f}, {removed}."
    return Verdict(run.label, headline, (*_judge_scores(record, alone), *_judge_searches(run)))


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
        yield f"One run proves nothing.{_doubt(record)} For a verdict: {_more_runs(record)}."


def _judge_searches(run: Run) -> Iterator[str]:
    record = run.record
    below = [
        str(layer.index)
        for layer in run.layers
        if layer.chosen is not None
        and layer.begun is not None
        and layer.chosen < layer.begun - 1e-12
    ]
    if below:
        layers = f"layer{'s' if len(below) > 1 else ''} {', '.join(below)}"
        begun, _ = describe_searches([run])
        yield f"The choice scored below {begun} on the reward set in {layers}."
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


def _compare(runs: Sequence[Run]) -> Iterator[Verdict]:
    """Compare runs with the first one if their scores mean the same."""
    if len(runs) < 2:
        return
    first = runs[0].record
    if not _are_comparable(runs):
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
        points.append(f"For a verdict: {_more_runs(first)}.{_doubt(first)}{start}")
    yield Verdict("Side by side", headline, tuple(points))


def _are_comparable(runs: Sequence[Run]) -> bool:
    return len({(run.record.data, run.record.metric) for run in runs}) == 1


def _more_runs(record: RunRecord) -> str:
    files = "" if record.task in TASKS else ", the files of your rows"
    return (
        f"auber study with several seeds{files} and the control original+tuning, then auber report "
        "of its folder"
    )


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


def _draw_scores(runs: Sequence[Run]) -> Block:
    if len(runs) < 2 or not _are_comparable(runs):
        return Block()
    rows = {}
    for run in runs:
        score, error = 100 * run.record.dev, standard_error(run.record)
        ends = (None, None) if error is None else (score - error, score + error)
        rows[run.label] = ScoreRow((score,), score, *ends)
    record = runs[0].record
    is_share = record.metric == "accuracy" and record.majority is not None
    majority = {record.task: 100 * (record.majority or 0)} if is_share else {}
    alt = "Dev scores: " + "; ".join(f"{name} {row.mean:.2f}" for name, row in rows.items())
    x_label = f"dev {record.metric}, points"
    draw = partial(draw_scores, {record.task: rows}, x_label, majority, "standard error")
    caption = "Dev scores. Bars: one standard error for this number of rows, not over seeds."
    return Block(caption, [Drawing("scores", f"{record.task}: dev {record.metric}", alt, draw)])


def _list_scores(runs: Sequence[Run]) -> Block:
    rows = [
        {
            "run": run.label,
            "task": record.task,
            "method": method_of(record),
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


def _map_heads(run: Run, name: str, *, alone: bool) -> Block:
    """Map what was removed, what the method ranked heads by, and the agent's values."""
    layers, heads = range(run.record.layers), range(run.record.heads)
    texts = _describe_heads(run)
    removed = frozenset((layer, head) for layer, gone in run.plan.heads.items() for head in gone)
    gone = [[float((layer, head) in removed) for head in heads] for layer in layers]
    title = f"{len(removed)} of {len(layers) * len(heads)} heads removed"
    counts = [f"-{n}" if (n := len(run.plan.heads.get(layer, ()))) else "" for layer in layers]
    legend = "Red: removed. Right: number of removed heads."
    maps = [HeadMap(title, make_shades(gone, "counts"), texts, legend, removed, counts=counts)]
    caption = "Each square is a head; a crossed one is removed. Point at it, or use the arrow keys."
    states = {
        (layer.index, head): value for layer in run.layers for head, value in layer.state.items()
    }
    ranking, scores = (run.ranking, run.scores) if run.scores else ("state", states)
    if scores:
        numbers = [[scores.get((layer, head)) for head in heads] for layer in layers]
        known = scores.values()
        legend = f"Stronger means higher: {min(known):.3g} to {max(known):.3g}."
        shades = make_shades(numbers, "range")
        maps.append(HeadMap(_RANKINGS[ranking], shades, texts, legend, removed))
    if states:
        caption += (
            " State: the norms of a layer's heads, standardised and through a softmax, as the "
            "agent sees them first."
        )
    if any(layer.values for layer in run.layers):
        maps.append(_map_values(run, texts, removed))
        what = "changing" if run.has_prior else "removing"
        caption += (
            f" Values: the points of reward that the trained agent expects of {what} a head first, "
            "or of stopping. It judges again after each action, so a head of low value may go "
            "later."
        )
    went = "; ".join(
        f"layer {index}: {', '.join(map(str, heads))}" for index, heads in run.plan.heads.items()
    )
    prefix = "" if alone else f"{run.label}: "
    alt = f"Heads removed. {went or 'None'}."
    drawing = Drawing(f"heads-{name}", f"{prefix}{title}", alt, partial(draw_heads, [maps]))
    return Block(f"{prefix}{caption}", [drawing], maps)


def _map_values(run: Run, texts: list[list[str]], removed: frozenset[tuple[int, int]]) -> HeadMap:
    """Map the Q-values, with a last column for stopping."""
    numbers: list[list[float | None]] = [[None] * (run.record.heads + 1) for _ in texts]
    stops = ["not recorded"] * len(texts)
    for layer, search in run.searched:
        for head, value in layer.values.items():
            numbers[layer.index][head] = value
        if search.q_values:
            numbers[layer.index][-1] = search.q_values[-1]
            stops[layer.index] = f"value {search.q_values[-1]:+.3f} points"
    most = max(abs(value) for row in numbers for value in row if value is not None)
    return HeadMap(
        "The agent's values, points of reward",
        make_shades(numbers, "signed"),
        [
            [*row, f"layer {layer}, stopping at once: {stop}"]
            for layer, (row, stop) in enumerate(zip(texts, stops, strict=True))
        ],
        f"Blue: gain, red: loss, full colour at {most:.2f} points.",
        removed,
        stop=True,
    )


def _describe_heads(run: Run) -> list[list[str]]:
    """Return everything known about each head, by layer."""
    layers = {layer.index: layer for layer in run.layers}
    return [
        ["; ".join(_head_facts(run, i, head, layers.get(i))) for head in range(run.record.heads)]
        for i in range(run.record.layers)
    ]


def _head_facts(run: Run, index: int, head: int, layer: Layer | None) -> Iterator[str]:
    yield f"layer {index}, head {head}: " + (
        "removed" if head in run.plan.heads.get(index, ()) else "kept"
    )
    if layer is not None and layer.search is not None:
        if head in layer.state:
            yield f"state {layer.state[head]:.4f}"
        if head in layer.values:
            action = "putting it back" if head in layer.search.given else "removing it"
            yield f"value of {action} first {layer.values[head]:+.3f} points"
        if layer.search.best:
            yield f"{'in' if head in layer.search.best else 'not in'} the best mask scored"
    if (index, head) in run.scores:
        yield f"{run.ranking} {run.scores[index, head]:.4g}"


# --- search and time ---


def _course(runs: Sequence[Run], slugs: dict[str, str]) -> Block:
    """Return the figures of the searches, of the layers in time, and of where the time went."""
    drawings: list[Drawing] = []
    for run in runs:
        prefix = "" if len(runs) == 1 else f"{run.label}: "
        name, record = slugs[run.label], run.record
        title = f"{record.rewards_asked} rewards requested, {record.rewards_computed} computed"
        panels = {curve.title: [curve] for curve in curves_of(run)}
        drawings += draw_curves(f"search-{name}", f"{prefix}{title}", panels)
        if run.searched:
            drawings.append(_draw_timeline(run, f"when-{name}", prefix))
    times = {run.label: time_parts(run.record) for run in runs}
    drawings.append(draw_times("time", "Where the time went", {"": times}))
    caption = ""
    if any(run.searched for run in runs):
        _, caption = describe_searches(runs)
        caption += ". The dot is the choice. Layers are in the order of the search."
        if any(search.change_cost for run in runs for _, search in run.searched):
            caption += " Each changed head had to gain a margin, which is not subtracted here."
        caption += (
            " When heads were removed: without the tunings before and after the layers; beside "
            "each layer the number of heads removed, behind its bar the seconds. "
        )
    return Block(f"{caption}Where the time went: seconds of the run.", drawings)


def _draw_timeline(run: Run, name: str, prefix: str) -> Drawing:
    bars, words, spent = {}, [], 0.0
    for layer in run.layers:
        row = f"layer {layer.index}" + (f", -{len(layer.removed)}" if layer.removed else "")
        search = layer.search.seconds if layer.search else 0.0
        other = max(layer.seconds - search - layer.tuning_seconds, 0.0)
        parts = {"search": search, "tuning": layer.tuning_seconds, "other": other}
        bars[row] = {"_before": spent, **parts}
        words.append(f"{row}: {layer.seconds:.1f} s")
        spent += layer.seconds
    colours = {"_before": "none", "search": GAIN, "tuning": "#3a7d34", "other": "#c9d6e3"}
    alt = "Layers of the run in time, with removed heads: " + "; ".join(words)
    draw = partial(draw_bars, {"": bars}, colours, "seconds")
    return Drawing(name, f"{prefix}When heads were removed", alt, draw)


def _list_layers(run: Run) -> Block:
    begun = "started from" if run.has_prior else "unpruned"
    # With a cost of each change the best score need not be what the search looked for.
    has_cost = any(search.change_cost for _, search in run.searched)
    best = "best after costs" if has_cost else "best scored"
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
            **dict(zip((begun, "chosen", best, "missed"), points, strict=True)),
            "rewards requested": str(search.rewards_asked) if search else "",
            "computed": str(search.rewards_computed) if search else "",
            "tuning steps": str(layer.tuning_steps),
            "seconds": f"{layer.seconds:.1f}",
        })  # fmt: skip
    legend = (
        f"{begun.capitalize()}, chosen, {best}: {measure} on the layer's reward set, in points. "
        f"Missed: {best} minus chosen."
    )
    notes = (legend, *_search_notes(run))
    return Block(f"{run.label}: layer by layer", rows=rows, notes=notes, folded=True)


def _search_notes(run: Run) -> Iterator[str]:
    given = sum(len(search.given) for _, search in run.searched)
    if given:
        changed = sum(len({*search.given} ^ {*layer.removed}) for layer, search in run.searched)
        yield (
            f"The searches started from a plan without {given} heads and changed {changed} of "
            "its choices."
        )
    costs = [search.change_cost for _, search in run.searched if search.change_cost]
    if costs:
        low, high = f"{min(costs):.3g}", f"{max(costs):.3g}"
        what, amount = "changed" if given else "removed", low if low == high else f"{low} to {high}"
        yield f"A {what} head had to gain {amount} points."
    untaught = [str(layer.index) for layer, search in run.searched if search.updates == 0]
    if untaught:
        layers = f"layer{'s' if len(untaught) > 1 else ''} {', '.join(untaught)}"
        yield f"The agent made no update in {layers}: its plan there is not learned."


def _origins(runs: Iterable[Run]) -> Block:
    columns = {run.label: _origin_facts(run.record) for run in runs}
    names = next(iter(columns.values()))
    rows = [
        {"": name, **{label: facts[name] for label, facts in columns.items()}} for name in names
    ]
    return Block("Where the numbers come from", rows=rows)


def _origin_facts(record: RunRecord) -> dict[str, str]:
    origin, peak = record.origin, record.peak_gpu_bytes
    return {
        "command": origin.command or "started from Python",
        "commit": commit_of(origin),
        "device": device_of(origin),
        "versions": versions_of(origin),
        "rows": f"{record.train_rows} train, {record.dev_rows} dev",
        "data (digest of all rows)": record.data,
        "start (digest of its weights)": record.start,
        "peak GPU memory": "not recorded" if peak is None else f"{peak / 2**30:.2f} GiB",
    }
