"""The page of one run, or of several side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from auber.data import TASKS
from auber.report.html import bars, lines, maps
from auber.report.html.details import extra_sections, origins_grid, settings_grids
from auber.report.html.model import RunView, Search
from auber.report.html.page import (
    Figure,
    Figures,
    Grid,
    Heading,
    Page,
    Section,
    Verdict,
    figures,
    joined,
    section,
    slug,
)
from auber.report.record import RunRecord
from auber.report.results_file import ResultsFile

_SCORE_NAMES = {
    "importance": "Importance (how much the loss depends on the head)",
    "confidence": "Confidence (mean largest attention weight)",
    "gates": "Gates (the higher, the more open)",
}


def make_run_page(runs: Sequence[RunView], extras: Sequence[ResultsFile] = ()) -> Page:
    """Everything about some runs."""
    first = runs[0].record
    records = {run.label: run.record for run in runs}
    if len(runs) == 1:
        title = f"{_method(first)} on {first.task}"
        subtitle = f"{first.model}, protocol {first.protocol}, seed {first.seed}"
    else:
        title = f"{len(runs)} runs side by side"
        subtitle = "; ".join(f"{run.label}: {run.record.words}" for run in runs)
    heads = [_plan_figures(runs), _score_figures(runs), _value_figures(runs)]
    course = [_search_figures(runs), _timelines(runs), _times_figure(runs)]
    if (
        len(runs) == 1
    ):  # all of one run fits beside each other; of several, what is alike stands in a row
        heads, course = [joined(heads)], [joined(course)]
    sections: list[Section | None] = [
        section("scores", "Scores", [_scores_figure(runs), _scores_grid(runs)]),
        section("heads", "Heads, and the agent's values" if _has_values(runs) else "Heads", heads),
        section(
            "course", "Search, what was removed when, and time", [*course, *map(_stages_grid, runs)]
        ),
        *extra_sections(extras),
        section("settings", "Configuration", settings_grids(records)),
        section("origins", "Provenance", [origins_grid(records)]),
    ]
    verdicts = (*_comparison(runs), *(_verdict(run, alone=len(runs) == 1) for run in runs))
    return Page(title, subtitle, verdicts, tuple(part for part in sections if part is not None))


def _has_values(runs: Sequence[RunView]) -> bool:
    return any(search.values for run in runs for _, search in run.searched)


def _titled(run: RunView, words: str, runs: Sequence[RunView]) -> str:
    """What a figure shows, and of which run where there are several."""
    return words if len(runs) == 1 else f"{run.label}: {words[0].lower()}{words[1:]}"


def _method(record: RunRecord) -> str:
    return "Fine-tuned start" if record.is_start else record.method


def _verdict(run: RunView, *, alone: bool) -> Verdict:
    record = run.record
    total = record.layers * record.heads
    went = f"{record.removed} of {total} heads removed" if record.removed else "no head removed"
    headline = f"Dev {record.metric} {100 * record.dev:.2f}, {went}."
    return Verdict(run.label, headline, tuple(_points(run, alone=alone)))


def _points(run: RunView, *, alone: bool) -> Iterable[str]:
    record = run.record
    gap = 100 * (record.train - record.dev)
    side = (
        "above dev; overfitting less would make this distance smaller" if gap > 0 else "below dev"
    )
    yield f"Train {100 * record.train:.2f}, {abs(gap):.2f} points {side}."
    if record.one_class:
        yield "Careful: the model gives everything in dev the same answer, so its score says nothing of the rows."
    elif record.equals_majority:
        yield "Careful: the score is exactly that of always answering the most frequent class."
    elif (
        record.metric == "accuracy" and record.majority is not None and record.dev < record.majority
    ):
        yield f"Careful: always answering the most frequent class would score {100 * record.majority:.2f}."
    if alone:
        yield f"One run proves nothing.{_doubt(record)} To know more: {_more_runs(record)}."
    below = [layer for layer, search in run.searched if _is_below(search)]
    if below:
        which = f"layer{'s' if len(below) > 1 else ''} {', '.join(map(str, below))}"
        yield f"What was chosen scored below {begun_from([run])} on the reward set in {which}."
    missed = [100 * amount for _, search in run.searched if (amount := search.missed) is not None]
    if run.size_was_given:
        yield "How many heads go was given: of each layer its best mask of the size by which the layers share them out best."
    elif missed and max(missed) > 0:
        worse = sum(amount > 0 for amount in missed)
        yield (
            f"In {worse} of {len(missed)} layers the search had seen a better mask than the one chosen, by up to "
            f"{max(missed):.2f} points of reward."
        )
    if run.removed_before:
        yield f"{run.removed_before} of the heads had been removed before this run began."
    if record.rewards_asked:
        yield f"{record.rewards_asked} rewards asked for, {record.rewards_computed} of them computed; {record.seconds:.0f} s in all."


def _comparison(runs: Sequence[RunView]) -> Iterable[Verdict]:
    """The runs against the first, where their scores mean the same."""
    if len(runs) < 2:
        return
    first = runs[0].record
    if any((run.record.data, run.record.metric) != (first.data, first.metric) for run in runs):
        yield Verdict(
            "Side by side",
            "These runs are of different rows or metrics: their scores are not comparable.",
            ("Heads, searches and times are shown beside each other all the same.",),
        )
        return
    words = [
        f"{run.label} {100 * (run.record.dev - first.dev):+.2f} points on dev, "
        f"{run.record.removed - first.removed:+d} heads removed, against {runs[0].label}."
        for run in runs[1:]
    ]
    starts = (
        ""
        if len({run.record.start for run in runs}) == 1
        else " They did not begin with the same fine-tuned weights."
    )
    yield Verdict(
        "Side by side",
        "One run each shows no difference between methods or settings.",
        (
            *words,
            f"For a verdict the pairs of several seeds are needed: {_more_runs(first)}.{_doubt(first)}{starts}",
        ),
    )


def _more_runs(record: RunRecord) -> str:
    """What makes the pairs that a verdict needs."""
    files = "" if record.task in TASKS else ", the files of your rows"
    return f"auber study with several seeds{files} and the control original+tuning, then auber report of its folder"


def _doubt(record: RunRecord) -> str:
    error = standard_error(record)
    if error is None:
        return ""
    return f" A score on {record.dev_rows} rows has a standard error of about {error:.1f} points."


def standard_error(record: RunRecord) -> float | None:
    """Of an accuracy on so many rows, in points; None for other metrics.

    Two right and two wrong answers are added (Agresti and Coull), without which rows that are all right would seem certain.
    """
    if record.metric != "accuracy":
        return None
    rows = record.dev_rows + 4
    share = (record.dev * record.dev_rows + 2) / rows
    return 100 * math.sqrt(share * (1 - share) / rows)


def _is_below(search: Search) -> bool:
    return (
        search.chosen is not None
        and search.begun is not None
        and search.chosen < search.begun - 1e-12
    )


def _scores_figure(runs: Sequence[RunView]) -> Figures | None:
    if len(runs) < 2 or len({(run.record.data, run.record.metric) for run in runs}) > 1:
        return None
    rows = []
    for run in runs:
        score, error = 100 * run.record.dev, standard_error(run.record)
        ends = (None, None) if error is None else (score - error, score + error)
        rows.append(bars.ScoreRow(run.label, (("dev", score),), score, *ends))
    record = runs[0].record
    label = "Dev scores: " + "; ".join(f"{row.name} {row.mean:.2f}" for row in rows)
    majority = (
        100 * record.majority
        if record.metric == "accuracy" and record.majority is not None
        else None
    )
    svg = bars.draw_scores(
        rows,
        x_title=f"dev {record.metric}, points",
        majority=majority,
        label=label,
        interval="standard error",
    )
    caption = "Dev scores. A bar is one standard error of a score on so many rows to either side, no interval over seeds."
    return Figures(caption, (Figure("scores", f"{record.task}: dev {record.metric}", svg),))


def _scores_grid(runs: Sequence[RunView]) -> Grid:
    titles = (
        "task",
        "method",
        "seed",
        "dev",
        "train",
        "gap",
        "heads removed",
        "rewards computed",
        "tuning steps",
        "scout steps",
        "seconds",
    )
    rows = [
        (
            run.label,
            run.record.task,
            _method(run.record),
            str(run.record.seed),
            f"{100 * run.record.dev:.2f}",
            f"{100 * run.record.train:.2f}",
            f"{100 * (run.record.train - run.record.dev):+.2f}",
            f"{run.record.removed} of {run.record.layers * run.record.heads}",
            str(run.record.rewards_computed),
            str(run.record.tuning_steps),
            str(run.record.scout_steps),
            f"{run.record.seconds:.1f}",
        )
        for run in runs
    ]
    columns = (Heading("run"), *(Heading(title, title in ("task", "method")) for title in titles))
    return Grid("Scores in points (the metric times 100), and what they took", columns, tuple(rows))


def _plan_figures(runs: Sequence[RunView]) -> Figures | None:
    caption = "Each square is a head; a crossed one is gone. Point at a square, or step through them with the arrow keys, for its numbers."
    return figures(caption, [_plan_figure(run, runs) for run in runs if not run.record.is_start])


def _plan_figure(run: RunView, runs: Sequence[RunView]) -> Figure:
    record = run.record
    went = "; ".join(
        f"layer {layer}: {', '.join(map(str, heads))}" for layer, heads in run.plan.items()
    )
    svg = maps.draw_plan(
        run.plan,
        record.layers,
        record.heads,
        title=_head_words(run),
        label=f"Heads removed. {went or 'None'}.",
    )
    words = f"{record.removed} of {record.layers * record.heads} heads removed"
    return Figure(slug("heads", run.label), _titled(run, words, runs), svg)


def _score_figures(runs: Sequence[RunView]) -> Figures | None:
    found = []
    for run in runs:
        states = {layer: search.state for layer, search in run.searched if search.state}
        if run.ranking is not None:
            name = run.ranking.name
            found.append(_score_figure(run, runs, run.ranking.scores, name, _SCORE_NAMES[name]))
        elif states:
            found.append(_score_figure(run, runs, states, "state", "State before any removal"))
    caption = "What the method went by in each head: the stronger the colour, the higher."
    if any(search.state for run in runs for _, search in run.searched):
        caption += " State: the norms of a layer's heads, standardised and through a softmax, as the agent sees them at first."
    return figures(caption, found)


def _score_figure(
    run: RunView, runs: Sequence[RunView], scores: maps.Scores, name: str, words: str
) -> Figure | None:
    if not any(scores.values()):
        return None
    label = f"{run.label}: {words} of every head; removed heads are crossed"
    svg = maps.draw_scores(
        scores, run.plan, run.record.layers, run.record.heads, title=_head_words(run), label=label
    )
    return Figure(slug(name, run.label), _titled(run, words, runs), svg)


def _head_words(run: RunView) -> Callable[[int, int], str]:
    searches = dict(run.searched)

    def words(layer: int, head: int) -> str:
        parts = [
            f"layer {layer}, head {head}: {'removed' if head in run.plan.removed(layer) else 'kept'}"
        ]
        search = searches.get(layer)
        if search is not None and head in search.state:
            parts.append(f"state {search.state[head]:.4f}")
        if search is not None and head in search.values:
            first = "putting it back" if head in search.given else "removing it"
            parts.append(f"value of {first} first {search.values[head]:+.3f} points")
        if search is not None and search.best_mask:
            parts.append(f"{'in' if head in search.best_mask else 'not in'} the best mask seen")
        score = None if run.ranking is None else run.ranking.scores.get(layer, {}).get(head)
        if run.ranking is not None and score is not None:
            parts.append(f"{run.ranking.name} {score:.4g}")
        return "; ".join(parts)

    return words


def begun_from(runs: Iterable[RunView]) -> str:
    """What the searches of some runs count their gains from, in words."""
    return (
        "what the search began from" if any(run.has_prior for run in runs) else "the unpruned layer"
    )


def layer_curves(run: RunView) -> list[lines.LayerCurve]:
    """The searches of a run as gains over what they began from, in points."""
    found = []
    for layer, search in run.searched:
        if search.curve and search.begun is not None:
            base = search.begun
            curve = [(count, 100 * (score - base)) for count, score in search.curve]
            chosen = None if search.chosen is None else 100 * (search.chosen - base)
            found.append(lines.LayerCurve(layer, curve, search.rewards_computed, chosen))
    return found


def _search_figures(runs: Sequence[RunView]) -> Figures | None:
    caption = (
        f"Rewards: the best one found against the masks scored, as points over {begun_from(runs)} on the reward set; masks asked for again "
        "cost nothing and are not counted. The dot is what was chosen in the end. Layers in the order they were searched."
    )
    if any(search.change_cost for run in runs for _, search in run.searched):
        caption += " Each change of a head had to gain something, which is not taken off here: the best reward need not be worth most."
    return figures(caption, [_search_figure(run, runs) for run in runs])


def _search_figure(run: RunView, runs: Sequence[RunView]) -> Figure | None:
    curves = layer_curves(run)
    if not curves:
        return None
    ends = "; ".join(f"layer {each.layer} {each.curve[-1][1]:+.2f}" for each in curves)
    label = f"Best gain of each layer's search in points: {ends}"
    asked = f"{run.record.rewards_asked} rewards asked, {run.record.rewards_computed} computed"
    return Figure(
        slug("search", run.label), _titled(run, asked, runs), lines.draw_layers(curves, label=label)
    )


def _value_figures(runs: Sequence[RunView]) -> Figures | None:
    found = []
    for run in runs:
        values = {layer: search.values for layer, search in run.searched if search.values}
        stops = {
            layer: search.stop_value
            for layer, search in run.searched
            if search.stop_value is not None
        }
        if values:
            record, label = run.record, f"{run.label}: the agent's values of each first action"
            svg = maps.draw_values(
                values,
                stops,
                run.plan,
                record.layers,
                record.heads,
                action="change head" if run.has_prior else "remove head",
                title=_head_words(run),
                label=label,
            )
            found.append(
                Figure(
                    slug("values", run.label),
                    _titled(run, "The agent's values, points of reward", runs),
                    svg,
                )
            )
    first = "removing each head first, and of stopping at once, with all heads still there"
    if any(run.has_prior for run in runs):
        first = "changing each head first (putting it back where the plan it began from removes it), and of stopping at once"
    caption = (
        f"The agent's values: what it expects, once trained, of {first}; the heads that went are crossed. After the first action it judges "
        "anew, so a head of low value here may go later."
    )
    return figures(caption, found)


def _timelines(runs: Sequence[RunView]) -> Figures | None:
    caption = (
        "What was removed when: the layers in the order they were gone through, one after the other; the tunings before them and the last one "
        "are left out. At the right the heads removed and left."
    )
    return figures(caption, [_timeline(run, runs) for run in runs])


def _timeline(run: RunView, runs: Sequence[RunView]) -> Figure | None:
    if not run.searched:
        return None
    rows = []
    for stage in run.stages:
        left = run.record.heads - len(run.plan.removed(stage.layer))
        went = (
            f"heads {', '.join(map(str, stage.removed))} removed"
            if stage.removed
            else "nothing removed"
        )
        rows.append(
            bars.TimelineRow(
                f"layer {stage.layer}",
                stage.search.seconds if stage.search else 0.0,
                stage.tuning_seconds,
                stage.seconds,
                f"{-len(stage.removed)}, {left} left",
                f"layer {stage.layer}: {went}, {left} left; {stage.seconds:.1f} s, of them tuning {stage.tuning_seconds:.1f} s",
            )
        )
    label = "Stages of the run in time: " + "; ".join(row.title for row in rows)
    return Figure(
        slug("when", run.label),
        _titled(run, "What was removed when", runs),
        bars.draw_timeline(rows, label=label),
    )


def _stages_grid(run: RunView) -> Grid | None:
    if not run.searched:
        return None
    begun = "begun from" if run.has_prior else "unpruned"
    # Where each change of a head has its cost, what scores best need not be what the search was after.
    best = "worth most" if any(search.change_cost for _, search in run.searched) else "best seen"
    titles = (
        "removed",
        "left",
        begun,
        "chosen",
        best,
        "missed",
        "rewards asked",
        "computed",
        "tuning steps",
        "seconds",
    )
    rows = []
    for stage in run.stages:
        search = stage.search
        rows.append(
            (
                str(stage.layer),
                ", ".join(map(str, stage.removed)) or "none",
                str(run.record.heads - len(run.plan.removed(stage.layer))),
                _points_cell(search.begun if search else None),
                _points_cell(search.chosen if search else None),
                _points_cell(search.best if search else None),
                _points_cell(search.missed if search else None),
                str(search.rewards_asked) if search else "",
                str(search.rewards_computed) if search else "",
                str(stage.tuning_steps),
                f"{stage.seconds:.1f}",
            )
        )
    columns = (
        Heading("layer", is_text=False),
        *(Heading(title, title == "removed") for title in titles),
    )
    smooth = run.record.config.get("reward.measure") == "smooth"
    what = "what smooth rewards measure" if smooth else "the metric"
    notes = (
        f"{begun.capitalize()}, chosen, {best}: {what} on the layer's reward set, in points. Missed: {best} minus chosen.",
        *_search_notes(run),
    )
    return Grid(f"{run.label}: layer by layer", columns, tuple(rows), notes, folded=True)


def _search_notes(run: RunView) -> Iterator[str]:
    """What the searches began from, what their departures had to gain, and where the agent learned nothing."""
    given = sum(len(search.given) for _, search in run.searched)
    if given:
        changed = sum(
            len({*stage.search.given} ^ {*stage.removed}) for stage in run.stages if stage.search
        )
        yield f"The searches began without {given} of the heads and changed {changed or 'none'}."
    costs = [search.change_cost for _, search in run.searched if search.change_cost]
    if costs:
        low, high = f"{min(costs):.3g}", f"{max(costs):.3g}"
        what = "changed" if given else "removed"
        yield f"A {what} head had to gain {low if low == high else f'{low} to {high}'} points."
    untaught = [str(layer) for layer, search in run.searched if search.updates == 0]
    if untaught:
        yield f"The agent made no update in layer{'s' if len(untaught) > 1 else ''} {', '.join(untaught)}: its plan there is not learned."


def _points_cell(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.2f}"


def time_parts(record: RunRecord) -> dict[str, float]:
    """Where a run's seconds went; what the result does not name is other."""
    parts = {part: record.times.get(part, 0.0) for part in bars.PARTS if part != "other"}
    return {**parts, "other": max(record.seconds - sum(parts.values()), 0.0)}


def _times_figure(runs: Sequence[RunView]) -> Figures:
    rows = [(run.label, time_parts(run.record)) for run in runs]
    label = "Seconds: " + "; ".join(f"{name} {sum(parts.values()):.0f}" for name, parts in rows)
    svg = bars.draw_times(rows, label=label)
    return Figures(
        "Where the seconds of the run's own work went.",
        (Figure("time", "Where the time went", svg),),
    )
