"""The answers of a report: what a run kept and cost, and whether pruning helped in a study.

Every sentence follows by a rule from the numbers, so the words claim no more than the runs show.
The page and the terminal print the same sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from auber.metrics.statistics import FEWEST_PAIRS
from auber.report.analysis import OTHER_START, Row, Section
from auber.report.layers import Run
from auber.report.records import CONTROL, RunRecord, count
from auber.run.summary import describe_agreement, describe_change, describe_choice

_MORE_RUNS = (
    f"For a verdict: auber study with at least {FEWEST_PAIRS} seeds and the control {CONTROL}, "
    "then auber report of its folder."
)
_Z = 1.959964  # of a 95 % interval


@dataclass(frozen=True)
class Verdict:
    """What to know first: one sentence and its reasons."""

    about: str
    headline: str
    points: tuple[str, ...]
    label: str | None = None  # that runs are missing


# --- runs ---


def judge_runs(runs: Sequence[Run]) -> tuple[Verdict, ...]:
    """Return a comparison of several runs, and what each of them kept and cost."""
    alone = len(runs) == 1
    own = (
        Verdict(_name_size(run), f"{describe(run.record)}.", tuple(_judge(run, alone=alone)))
        for run in runs
    )
    return (*_compare(runs), *own)


def _name_size(run: Run) -> str:
    chosen, sizes = run.record.chosen, run.record.sizes
    return run.label if chosen is None else f"{run.label}, {chosen.keep:g} of {len(sizes)} sizes"


def describe(record: RunRecord) -> str:
    """Return the size, score and time of a run beside those of its fine-tuned model."""
    words = describe_change({**record.to_json(), "provenance": {"device": record.device}})
    if words is None:
        words = f"dev {record.measure} is {100 * record.dev:.1f}"
        words = f"{_describe_share(record)}, {words}" if record.removed else f"D{words[1:]}"
    return words


def _describe_share(record: RunRecord) -> str:
    units = "multiply-adds" if record.remaining else "heads"
    return f"With {100 * record.share_left:.0f} % of the {units}"


def find_interval(record: RunRecord, score: float | None = None) -> tuple[float, float] | None:
    """Return the 95 % interval of an accuracy or of its change in points, None for other metrics.

    `score` is that of one of several sizes; without it, the run's. The interval is that of Agresti
    and Coull, of a difference that of Agresti and Caffo: without pseudo-rows a perfect score would
    seem certain. The two models of a difference are treated as independent, so it is conservative.
    """
    if record.metric != "accuracy" or not record.dev_rows:
        return None
    score = record.dev if score is None else score
    if record.before is None or record.answered:  # the unpruned model agrees with itself
        centre, error = _share(score, record.dev_rows, 4)
        return 100 * max(0.0, centre - _Z * error), 100 * min(1.0, centre + _Z * error)
    was, now = (_share(each, record.dev_rows, 2) for each in (record.before.score, score))
    change, error = now[0] - was[0], math.hypot(now[1], was[1])
    return 100 * max(-1.0, change - _Z * error), 100 * min(1.0, change + _Z * error)


def _share(score: float, rows: int, added: int) -> tuple[float, float]:
    """Return a share of rows and its standard error after adding rows, half of them right."""
    share = (score * rows + added / 2) / (rows + added)
    return share, math.sqrt(share * (1 - share) / (rows + added))


def search_start(runs: Iterable[Run]) -> str:
    """Return what the searches count their gains from."""
    has_prior = any(run.has_prior for run in runs)
    return "the plan the search started from" if has_prior else "the unpruned layer"


def name_layers(layers: Sequence[int]) -> str:
    """Return layers in words."""
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"


def _judge(run: Run, *, alone: bool) -> Iterator[str]:
    record = run.record
    gap = 100 * (record.train - record.dev)
    if record.chosen is not None:
        choice = describe_choice(record.to_json(), f"{record.chosen.keep:g}")
        if choice is not None:
            yield f"{choice[0].upper()}{choice[1:]}."
    if (agreement := describe_agreement(record.to_json())) is not None:
        yield f"{agreement[0].upper()}{agreement[1:]}."
    yield f"Train {record.measure} is {100 * record.train:.1f}, {gap:+.1f} points against dev."
    if record.one_class:
        yield "Warning: the model gives every dev row the same answer, so its score means nothing."
    elif record.equals_majority:
        yield "Warning: the score is exactly that of always giving the most frequent class."
    elif record.metric == "accuracy" and record.above_constant < 0:
        share = 100 * (record.majority or 0)
        yield f"Warning: always giving the most frequent class scores {share:.2f}."
    if alone:
        yield f"One run proves nothing. {_MORE_RUNS}"
    below = [layer.index for layer in run.layers if layer.is_worse]
    if below:
        start = search_start([run])
        yield f"The choice scored below {start} on the reward set in {name_layers(below)}."
    if run.size_was_given:
        yield "The layers share the given number of heads so that the sum of gains is largest."
    before = record.removed - sum(len(layer.removed) for layer in run.layers)
    if run.searched and before:
        yield f"{before} of the heads were removed before this run."


def _compare(runs: Sequence[Run]) -> Iterator[Verdict]:
    """Compare runs if their scores mean the same."""
    if len(runs) < 2:
        return
    first = runs[0].record
    if len({(run.record.data, run.record.metric) for run in runs}) > 1:
        headline = "These runs have different rows or metrics: their scores are not comparable."
        yield Verdict("Side by side", headline, ("Heads, searches and times are still shown.",))
        return
    best = max(runs, key=lambda run: (run.record.dev, -run.record.share_left))
    smallest = min(runs, key=lambda run: (run.record.share_left, -run.record.dev))
    headline = f"Best dev {first.measure}: {_name(best)}"
    headline += " (also the smallest)." if best is smallest else f". Smallest: {_name(smallest)}."
    same_start = len({run.record.start for run in runs}) == 1
    start = "" if same_start else " They did not start from the same fine-tuned weights."
    caution = "Single runs do not show a difference between methods or settings."
    yield Verdict("Side by side", headline, (f"{caution} {_MORE_RUNS}{start}",))


def _name(run: Run) -> str:
    share = _describe_share(run.record).removeprefix("With ")
    return f"{run.label}, {100 * run.record.dev:.1f} with {share}"


# --- studies ---


def control_row(rows: Iterable[Row]) -> Row | None:
    """Return the comparison of the subject with the control."""
    return next((row for row in rows if row["against"] == CONTROL), None)


def gap_row(section: Section) -> Row | None:
    """Return the comparison of the subject's overfitting with the control's."""
    return next((row for row in section.gaps if row["method"] == section.subject), None)


def direction(row: Row | None) -> int:
    """Return 1 for a significant gain, -1 for a significant loss, else 0."""
    if row is None or not row["significant"]:
        return 0
    return 1 if row["difference"] > 0 else -1


def own_seconds(section: Section, method: str) -> float | None:
    """Return the mean time of a method's runs over the tasks, without the first tuning."""
    seconds = [row["own seconds"] for row in section.methods if row["method"] == method]
    return fmean(seconds) if seconds else None


def no_answer(pairs: int, subject: str) -> str:
    """Return the sentence that an answer needs more runs."""
    found = count(pairs, "pair") if pairs else "no pair"
    return (
        f"No answer yet: {found} of runs of {subject} and {CONTROL} with the same task and seed; "
        f"run at least {FEWEST_PAIRS}."
    )


def judge_section(section: Section) -> Verdict:
    """Return the verdict on a model and protocol."""
    row, gap = control_row(section.pooled), gap_row(section)
    learned = control_row(section.learned)
    headline = _headline(learned or row, gap, section.subject)
    if direction(learned):
        headline = f"{headline[:-1]}, on the tasks that {CONTROL} has learned."
    if section.missing:
        headline = f"Preliminary: {headline[0].lower()}{headline[1:]}"
    points = (*_scores(section, row, learned, gap), *_circumstances(section))
    return Verdict(section.name, headline, points, section.label)


def _headline(row: Row | None, gap: Row | None, subject: str) -> str:
    if row is None or row["pairs"] < FEWEST_PAIRS:
        return no_answer(row["pairs"] if row else 0, subject)
    if direction(row):
        yes, better = ("Yes", "better") if direction(row) > 0 else ("No", "worse")
        return (
            f"{yes}: removing what {subject} chose gives a significantly {better} dev score than "
            "tuning without pruning."
        )
    return {
        -1: "No significantly better dev score, but a significantly smaller gap to train.",
        0: "No: neither the dev score nor its gap to train is significantly better.",
        1: "No: no significantly better dev score, and a significantly larger gap to train.",
    }[direction(gap)]


def _scores(
    section: Section, row: Row | None, learned: Row | None, gap: Row | None
) -> Iterator[str]:
    if row is not None:
        power = ""
        if row["detectable"] and row["pairs"] >= FEWEST_PAIRS and not row["significant"]:
            power = (
                f" {row['pairs']} pairs detect a difference of {row['detectable']:.1f} points with "
                "a power of 80 %."
            )
        yield f"Dev score of {section.subject} against {CONTROL}: {row['verdict']}.{power}"
        if section.protocol in OTHER_START:
            yield OTHER_START[section.protocol]
    if learned is not None:
        yield (
            f"Only on tasks where {CONTROL} beats a constant answer "
            f"({', '.join(learned['tasks'])}): {learned['verdict']}."
        )
    if gap is not None:
        only = direction(gap) < 0 and direction(row) <= 0
        yield (
            f"Overfitting, train minus dev: {gap['gap']:+.1f} points, "
            f"{gap[f'gap of {CONTROL}']:+.1f} for {CONTROL}; {gap['verdict']}. Train changes by "
            f"{gap['train difference']:+.1f} points, dev by {gap['dev difference']:+.1f}."
            + " Dev does not gain: the model only fits the training rows less."
            * only
        )


def _circumstances(section: Section) -> Iterator[str]:
    subject = section.subject
    collapsed = [
        f"{row['task']}, {row['method']} ({flag})"
        for row in section.methods
        if row["method"] in (subject, CONTROL)
        for flag in row["collapse"]
    ]
    if collapsed:
        yield (
            f"Warning: a model with a constant answer has learned nothing: {'; '.join(collapsed)}."
        )
    own, control = own_seconds(section, subject), own_seconds(section, CONTROL)
    if own is not None and control is not None:
        yield (
            f"Cost: {own:.0f} s for a run of {subject}, {control:.0f} s for one of {CONTROL}, mean "
            "over the tasks and without the first tuning."
        )
    if section.missing:
        yield f"Missing: {'; '.join(section.missing)}."
    if section.presets:
        yield f"Settings: preset {' or '.join(section.presets)} with the changes of the study."
