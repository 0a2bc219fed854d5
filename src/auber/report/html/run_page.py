"""The page of one run, or of several runs side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from auber.data import TASKS
from auber.report.figures import Bar, HeadMap, ScoreRow, draw_bars, draw_heads, draw_scores
from auber.report.html.page import (
    Drawing,
    Drawings,
    Grid,
    HeadMaps,
    Page,
    Verdict,
    make_grid,
    make_sections,
)
from auber.report.html.shared import (
    begun_from,
    curves_of,
    draw_times,
    drawings,
    extra_parts,
    search_drawing,
    settings_grids,
    time_parts,
)
from auber.report.layers import Layer, Run, Scores
from auber.report.records import RunRecord
from auber.report.results_file import ResultsFile
from auber.report.words import commit_of, device_of, method_of, slug, versions_of

_RANKINGS = {
    "state": "State before any removal",
    "importance": "Importance (how much the loss depends on the head)",
    "confidence": "Confidence (mean largest attention weight)",
    "gates": "Gates (higher means more open)",
}


def make_run_page(runs: Sequence[Run], extras: Sequence[ResultsFile] = ()) -> Page:
    """Return everything about some runs."""
    first = runs[0].record
    records = {run.label: run.record for run in runs}
    if len(runs) == 1:
        title = f"{method_of(first)} on {first.task}"
        subtitle = f"{first.model}, protocol {first.protocol}, seed {first.seed}"
    else:
        title = f"{len(runs)} runs side by side"
        subtitle = "; ".join(f"{run.label}: {run.record}" for run in runs)
    has_values = any(search.values for run in runs for _, search in run.searched)
    course = [_searches(runs), _timelines(runs), _times(runs)]
    if len(runs) == 1:  # the figures of one run fit side by side
        found = [block for block in course if block is not None]
        figures = [drawing for block in found for drawing in block.drawings]
        course = [drawings(" ".join(block.caption for block in found), figures)]
    sections = make_sections([
        ("scores", "Scores", [_scores(runs), _scores_grid(runs)]),
        ("heads", "Heads, and the agent's values" if has_values else "Heads", _heads(runs)),
        ("course", "Search, removals and time", [*course, *map(_layers_grid, runs)]),
        *extra_parts(extras),
        ("settings", "Configuration", settings_grids(records)),
        ("origins", "Provenance", [_origins(runs)]),
    ])  # fmt: skip
    verdicts = (*_comparison(runs), *(_verdict(run, alone=len(runs) == 1) for run in runs))
    return Page(title, subtitle, verdicts, sections)


# --- verdicts ---


def _verdict(run: Run, *, alone: bool) -> Verdict:
    record = run.record
    total = record.layers * record.heads
    removed = f"{record.removed} of {total} heads removed" if record.removed else "no head removed"
    headline = f"Dev {record.metric} {100 * record.dev:.2f}, {removed}."
    return Verdict(run.label, headline, tuple(_points(run, alone=alone)))


def _points(run: Run, *, alone: bool) -> Iterable[str]:
    record = run.record
    gap = 100 * (record.train - record.dev)
    yield (
        f"Train {100 * record.train:.2f}, {abs(gap):.2f} points "
        f"{'above' if gap > 0 else 'below'} dev."
    )
    if record.one_class:
        yield "Careful: the model gives every dev row the same answer, so its score means nothing."
    elif record.equals_majority:
        yield "Careful: the score is exactly that of always giving the most frequent class."
    elif record.metric == "accuracy" and record.above_constant < 0:
        yield (
            "Careful: always giving the most frequent class scores "
            f"{100 * (record.majority or 0):.2f}."
        )
    if alone:
        yield f"One run proves nothing.{_doubt(record)} For a verdict: {_more_runs(record)}."
    below = [
        index
        for index, search in run.searched
        if search.chosen is not None
        and search.begun is not None
        and search.chosen < search.begun - 1e-12
    ]
    if below:
        layers = f"layer{'s' if len(below) > 1 else ''} {', '.join(map(str, below))}"
        yield f"The choice scored below {begun_from([run])} on the reward set in {layers}."
    missed = [100 * amount for _, search in run.searched if (amount := search.missed) is not None]
    if run.size_was_given:
        yield (
            "The number of heads was given: the layers share it so that the sum of gains is "
            "largest."
        )
    elif missed and max(missed) > 0:
        yield (
            f"In {sum(amount > 0 for amount in missed)} of {len(missed)} layers the search "
            "had scored a "
            f"better mask than the chosen one, by up to {max(missed):.2f} points of reward."
        )
    if run.removed_before:
        yield f"{run.removed_before} of the heads were removed before this run."
    if record.rewards_asked:
        yield (
            f"{record.rewards_asked} rewards requested, {record.rewards_computed} computed; "
            f"{record.seconds:.0f} s in total."
        )


def _comparison(runs: Sequence[Run]) -> Iterable[Verdict]:
    """Compare runs with the first one if their scores mean the same."""
    if len(runs) < 2:
        return
    first = runs[0].record
    if not _are_comparable(runs):
        headline = "These runs have different rows or metrics: their scores are not comparable."
        yield Verdict(
            "Side by side", headline, ("Heads, searches and times are shown all the same.",)
        )
        return
    words = [
        f"{run.label}: {100 * (run.record.dev - first.dev):+.2f} points on dev, "
        f"{run.record.removed - first.removed:+d} heads removed, against {runs[0].label}."
        for run in runs[1:]
    ]
    same_start = len({run.record.start for run in runs}) == 1
    start = "" if same_start else " They did not start from the same fine-tuned weights."
    headline = "Single runs do not show a difference between methods or settings."
    more = f"For a verdict: {_more_runs(first)}.{_doubt(first)}{start}"
    yield Verdict("Side by side", headline, (*words, more))


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


def _scores(runs: Sequence[Run]) -> Drawings | None:
    if len(runs) < 2 or not _are_comparable(runs):
        return None
    rows = []
    for run in runs:
        score, error = 100 * run.record.dev, standard_error(run.record)
        low, high = (None, None) if error is None else (score - error, score + error)
        rows.append(ScoreRow(run.label, (score,), score, low, high))
    record = runs[0].record
    is_share = record.metric == "accuracy" and record.majority is not None
    majority = 100 * (record.majority or 0) if is_share else None
    title = f"{record.task}: dev {record.metric}"
    alt = "Dev scores: " + "; ".join(f"{row.name} {row.mean:.2f}" for row in rows)
    draw = partial(draw_scores, rows, f"dev {record.metric}, points", majority, "standard error")
    caption = (
        "Dev scores. Bars: one standard error for this number of rows, no interval over seeds."
    )
    return Drawings(caption, (Drawing("scores", title, alt, draw),))


def _scores_grid(runs: Sequence[Run]) -> Grid | None:
    rows = []
    for run in runs:
        record = run.record
        rows.append({
            "run": run.label,
            "task": record.task,
            "method": method_of(record),
            "seed": str(record.seed),
            "dev": f"{100 * record.dev:.2f}",
            "train": f"{100 * record.train:.2f}",
            "gap": f"{100 * (record.train - record.dev):+.2f}",
            "heads removed": f"{record.removed} of {record.layers * record.heads}",
            "rewards computed": str(record.rewards_computed),
            "tuning steps": str(record.tuning_steps),
            "fold model steps": str(record.scout_steps),
            "seconds": f"{record.seconds:.1f}",
        })  # fmt: skip
    return make_grid("Scores in points (the metric times 100), and costs", rows)


# --- heads ---


def _heads(runs: Sequence[Run]) -> list[HeadMaps | None]:
    return [_head_maps(run, runs) for run in runs if not run.record.is_start]


def _head_maps(run: Run, runs: Sequence[Run]) -> HeadMaps:
    """Map what was removed, what the method ranked heads by, and the agent's values."""
    layers, heads = range(run.record.layers), range(run.record.heads)
    describe = _describe(run)
    texts = [[describe(layer, head) for head in heads] for layer in layers]
    removed = frozenset((layer, head) for layer, gone in run.plan.items() for head in gone)

    def rows(scores: Scores) -> list[list[float | None]]:
        return [[scores.get(layer, {}).get(head) for head in heads] for layer in layers]

    title = f"{run.record.removed} of {len(layers) * len(heads)} heads removed"
    maps = [
        HeadMap(
            title,
            [[float((layer, head) in removed) for head in heads] for layer in layers],
            texts,
            "Red: removed. Right: number of removed heads.",
            removed,
            is_gain=False,
            from_zero=True,
            counts=[f"-{n}" if (n := len(run.plan.removed(layer))) else "" for layer in layers],
        )
    ]
    caption = "Each square is a head; a crossed one is removed. Point at it, or use the arrow keys."
    states = {index: search.state for index, search in run.searched if search.state}
    name, scores = run.ranking or ("state", states)
    if any(scores.values()):
        found = HeadMap(_RANKINGS[name], rows(scores), texts, removed=removed)
        low, high = found.limits
        maps.append(replace(found, legend=f"Stronger means higher: {low:.3g} to {high:.3g}."))
    if states:
        caption += (
            " State: the norms of a layer's heads, standardised and through a softmax, as "
            "the agent "
            "sees them first."
        )
    values = {index: search.values for index, search in run.searched if search.values}
    if values:
        maps.append(_value_map(run, rows(values), texts, removed))
        what = "changing" if run.has_prior else "removing"
        caption += (
            f" Values: the points of reward that the trained agent expects of {what} a head first, "
            "or of stopping. It judges again after each action, so a head of low value may "
            "go later."
        )
    went = "; ".join(f"layer {index}: {', '.join(map(str, run.plan[index]))}" for index in run.plan)
    drawing = Drawing(
        slug("heads", run.label),
        _titled(run, title, runs),
        f"Heads removed. {went or 'None'}.",
        partial(draw_heads, maps),
    )
    return HeadMaps(_titled(run, caption, runs), tuple(maps), (drawing,))


def _value_map(
    run: Run,
    values: list[list[float | None]],
    texts: list[list[str]],
    removed: frozenset[tuple[int, int]],
) -> HeadMap:
    stops = {index: search.stop_value for index, search in run.searched}

    def stop_text(layer: int) -> str:
        value = stops.get(layer)
        words = "not recorded" if value is None else f"value {value:+.3f} points"
        return f"layer {layer}, stopping at once: {words}"

    found = HeadMap(
        "The agent's values, points of reward",
        [[*row, stops.get(layer)] for layer, row in enumerate(values)],
        [[*row, stop_text(layer)] for layer, row in enumerate(texts)],
        removed=removed,
        is_signed=True,
        stop=True,
    )
    return replace(
        found, legend=f"Blue: gain, red: loss, full colour at {found.limits[1]:.2f} points."
    )


def _describe(run: Run) -> Callable[[int, int], str]:
    """Return a function that tells everything known about a head."""
    searches = dict(run.searched)

    def describe(layer: int, head: int) -> str:
        state = "removed" if head in run.plan.removed(layer) else "kept"
        parts = [f"layer {layer}, head {head}: {state}"]
        search = searches.get(layer)
        if search is not None:
            if head in search.state:
                parts.append(f"state {search.state[head]:.4f}")
            if head in search.values:
                action = "putting it back" if head in search.record.given else "removing it"
                parts.append(f"value of {action} first {search.values[head]:+.3f} points")
            if search.record.best:
                place = "in" if head in search.record.best else "not in"
                parts.append(f"{place} the best mask scored")
        if run.ranking is not None:
            name, scores = run.ranking
            if head in scores.get(layer, {}):
                parts.append(f"{name} {scores[layer][head]:.4g}")
        return "; ".join(parts)

    return describe


# --- search and time ---


def _searches(runs: Sequence[Run]) -> Drawings | None:
    caption = (
        "Best reward found so far against the number of different masks scored, in points over "
        f"{begun_from(runs)} on the reward set. The dot is the choice. Layers are in the "
        "order of the "
        "search."
    )
    if any(search.record.change_cost for run in runs for _, search in run.searched):
        caption += " Each changed head had to gain a margin, which is not subtracted here."
    found = []
    for run in runs:
        title = (
            f"{run.record.rewards_asked} rewards requested, {run.record.rewards_computed} computed"
        )
        panels = {curve.title: [curve] for curve in curves_of(run)}
        name = slug("search", run.label)
        found.append(search_drawing(name, _titled(run, title, runs), panels))
    return drawings(caption, found)


def _timelines(runs: Sequence[Run]) -> Drawings | None:
    caption = (
        "The layers in the order they were decided, without the tunings before and after "
        "them. Behind "
        "each bar: heads removed and left."
    )
    return drawings(caption, [_timeline(run, runs) for run in runs if any(run.searched)])


def _timeline(run: Run, runs: Sequence[Run]) -> Drawing:
    bars, words, spent = [], [], 0.0
    for layer in run.layers:
        left = run.record.heads - len(run.plan.removed(layer.index))
        search = layer.search.record.seconds if layer.search else 0.0
        other = max(layer.seconds - search - layer.tuning_seconds, 0.0)
        parts = {"search": search, "tuning": layer.tuning_seconds, "other": other}
        note = f"-{len(layer.removed)}, {left} left" if layer.removed else f"{left} left"
        bars.append(Bar(f"layer {layer.index}", parts, spent, note))
        words.append(f"layer {layer.index}: {note}, {layer.seconds:.1f} s")
        spent += layer.seconds
    colours = {"search": "#0b5fa5", "tuning": "#3a7d34", "other": "#c9d6e3"}
    title = _titled(run, "When heads were removed", runs)
    alt = "Layers of the run in time: " + "; ".join(words)
    draw = partial(draw_bars, bars, colours, "seconds")
    return Drawing(slug("when", run.label), title, alt, draw)


def _times(runs: Sequence[Run]) -> Drawings:
    rows = {run.label: time_parts(run.record) for run in runs}
    drawing = draw_times("time", "Where the time went", rows)
    return Drawings("Where the seconds of the run went.", (drawing,))


def _titled(run: Run, title: str, runs: Sequence[Run]) -> str:
    return title if len(runs) == 1 else f"{run.label}: {title}"


def _layers_grid(run: Run) -> Grid | None:
    if not any(run.searched):
        return None
    begun = "started from" if run.has_prior else "unpruned"
    # With a cost of each change the best score need not be what the search looked for.
    has_cost = any(search.record.change_cost for _, search in run.searched)
    best = "best after costs" if has_cost else "best scored"
    smooth = run.record.config.get("reward.measure") == "smooth"
    measure = "the smooth reward" if smooth else "the metric"
    notes = (
        f"{begun.capitalize()}, chosen, {best}: {measure} on the layer's reward set, in points. "
        f"Missed: {best} minus chosen.",
        *_search_notes(run),
    )
    rows = [_layer_row(run, layer, begun, best) for layer in run.layers]
    return make_grid(f"{run.label}: layer by layer", rows, notes, folded=True)


def _layer_row(run: Run, layer: Layer, begun: str, best: str) -> dict[str, str]:
    search = layer.search
    scores = (
        (search.begun, search.chosen, search.record.best_score, search.missed)
        if search
        else (None,) * 4
    )
    points = ["" if score is None else f"{100 * score:.2f}" for score in scores]
    return {
        "layer": str(layer.index),
        "removed": ", ".join(map(str, layer.removed)) or "none",
        "left": str(run.record.heads - len(run.plan.removed(layer.index))),
        **dict(zip((begun, "chosen", best, "missed"), points, strict=True)),
        "rewards requested": str(search.record.rewards_asked) if search else "",
        "computed": str(search.record.rewards_computed) if search else "",
        "tuning steps": str(layer.tuning_steps),
        "seconds": f"{layer.seconds:.1f}",
    }


def _search_notes(run: Run) -> Iterator[str]:
    records = {layer.index: layer.search.record for layer in run.layers if layer.search}
    given = sum(len(record.given) for record in records.values())
    if given:
        changed = sum(
            len({*layer.search.record.given} ^ {*layer.removed})
            for layer in run.layers
            if layer.search
        )
        yield (
            f"The searches started from a plan without {given} heads and changed {changed} of "
            "its choices."
        )
    costs = [record.change_cost for record in records.values() if record.change_cost]
    if costs:
        low, high = f"{min(costs):.3g}", f"{max(costs):.3g}"
        what, amount = "changed" if given else "removed", low if low == high else f"{low} to {high}"
        yield f"A {what} head had to gain {amount} points."
    untaught = [str(index) for index, record in records.items() if record.updates == 0]
    if untaught:
        layers = f"layer{'s' if len(untaught) > 1 else ''} {', '.join(untaught)}"
        yield f"The agent made no update in {layers}: its plan there is not learned."


def _origins(runs: Sequence[Run]) -> Grid | None:
    def gpu_memory(record: RunRecord) -> str:
        peak = record.peak_gpu_bytes
        return "not recorded" if peak is None else f"{peak / 2**30:.2f} GiB"

    facts: dict[str, Callable[[RunRecord], str]] = {
        "command": lambda record: record.origin.command or "started from Python",
        "commit": lambda record: commit_of(record.origin),
        "device": lambda record: device_of(record.origin),
        "versions": lambda record: versions_of(record.origin),
        "rows": lambda record: f"{record.train_rows} train, {record.dev_rows} dev",
        "data (digest of all rows)": lambda record: record.data,
        "start (digest of its weights)": lambda record: record.start,
        "peak GPU memory": gpu_memory,
    }
    rows = [
        {"": name, **{run.label: fact(run.record) for run in runs}} for name, fact in facts.items()
    ]
    return make_grid("Where the numbers come from", rows)
