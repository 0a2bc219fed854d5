"""Results of the scorer benchmark as tables and a figure, for terminal and documentation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING

import pandas

from benchmarks.common import describe_origin
from benchmarks.scorer.record import Bench, GrowthSeries, RewardsRecord, TuningRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WORDS = {"rest": "the rest", "total": "all"}


def name_of(bench: Bench) -> str:
    """Return what was measured and where, in a few words."""
    count = bench.device.threads
    threads = f", {count} thread{'s' * (count > 1)}" if bench.device.name == "cpu" else ""
    return f"{bench.subject.model}, {bench.subject.task} rows, {bench.device.name}{threads}"


def describe(bench: Bench) -> str:
    """Return the sizes of what was measured, the speed of the device and the origin."""
    subject, device = bench.subject, bench.device
    load = ""
    if device.name == "cpu" and device.load is not None:
        load = f", load average before: {device.load:.1f}"
    return (
        f"{subject.layers} layers of {subject.heads} heads, hidden size {subject.hidden_size}, "
        f"{_short(subject.parameters / 1e6)} million parameters; {subject.rows:,} reward rows of "
        f"{subject.tokens:,} tokens, longest {subject.longest}; {_short(device.teraflops)} TFLOP/s "
        f"in {device.precision}{load}; {describe_origin(bench.provenance)}"
    )


def make_tables(benches: Sequence[Bench]) -> Iterator[tuple[str, pandas.DataFrame]]:
    """Yield each table that the results have numbers for, with its title."""
    rewards = [(name_of(bench), bench.rewards) for bench in benches if bench.rewards]
    if rewards:
        times = [row for name, found in rewards for row in _rewards_rows(name, found)]
        yield "One reward, mean over the searched layers", pandas.DataFrame(times)
        yield "One reward by searched layer: ms (share of the floor)", _layers_table(rewards)
        answers = [row for name, found in rewards for row in _agreement_rows(name, found)]
        yield "Answers, compared with plain float32", pandas.DataFrame(answers)
    tunings = [_tuning_row(name_of(bench), bench.tuning) for bench in benches if bench.tuning]
    if tunings:
        yield "Tuning steps per second", pandas.DataFrame(tunings)
    for bench in benches:
        if bench.search:
            title = f"Seconds of a whole run: preset {bench.search.preset}, {name_of(bench)}"
            yield title, _run_table(bench.search.seconds)
    for bench in benches:
        if bench.growth:
            table = pandas.DataFrame(map(_growth_row, bench.growth))
            yield f"Growth of a reward of layer 0: {name_of(bench)}", table


def _rewards_rows(name: str, rewards: RewardsRecord) -> Iterator[dict[str, str]]:
    plain, plain_sorted = rewards.plain.milliseconds, rewards.plain_sorted.milliseconds
    for masks, group in groupby(rewards.scorers, lambda each: each.masks):
        found = list(group)
        milliseconds = fmean(each.milliseconds for each in found)
        floors = [each.floor_milliseconds for each in found if each.floor_milliseconds is not None]
        kept = found[0].kept
        yield {
            "measured": name,
            "masks": masks if kept is None else f"whole model, {100 * kept:.0f} % kept",
            "plain float32, ms": _short(plain),
            "plain sorted, ms": _short(plain_sorted),
            "scorer, ms": _short(milliseconds),
            "floor, ms": _short(fmean(floors)) if floors else "-",
            "times float32": f"{plain / milliseconds:.1f}",
            "times sorted": f"{plain_sorted / milliseconds:.1f}",
            "of the floor": _share(fmean(floors) / milliseconds) if floors else "-",
            "prepare, s": _short(sum(each.prepare_seconds for each in found)),
        }


def _share(share: float) -> str:
    # Nothing is faster than its floor: something else kept the device busy meanwhile.
    return f"{100 * share:.0f} %" + " (invalid)" * (share > 1)


def _layers_table(found: Sequence[tuple[str, RewardsRecord]]) -> pandas.DataFrame:
    columns: dict[str, dict[int, str]] = {}
    for name, rewards in found:
        for each in rewards.scorers:
            if each.layer is None or each.floor_milliseconds is None:
                continue
            title = name if each.masks == "heads" else f"{name}, {each.masks}"
            share = 100 * each.floor_milliseconds / each.milliseconds
            cell = f"{_short(each.milliseconds)} ({share:.0f} %)"
            columns.setdefault(title, {})[each.layer] = cell
    table = pandas.DataFrame(columns).sort_index().fillna("-")
    return table.rename_axis("layer").reset_index()


def _agreement_rows(name: str, rewards: RewardsRecord) -> Iterator[dict[str, object]]:
    plain = f"plain sorted, {rewards.plain_sorted.precision}"
    ways = {plain: rewards.plain_sorted_agreement, "scorer": rewards.scorer_agreement}
    for way, agreement in ways.items():
        yield {
            "measured": name,
            "way": way,
            "masks": agreement.masks,
            "other predictions": f"{agreement.disagreements} of {agreement.predictions:,}",
            "metric, mean points": f"{100 * agreement.mean_metric_difference:.2f}",
            "largest": f"{100 * agreement.largest_metric_difference:.2f}",
            "largest logit difference": f"{agreement.largest_logit_difference:.2g}",
        }


def _tuning_row(name: str, tuning: TuningRecord) -> dict[str, object]:
    return {
        "measured": name,
        "steps": tuning.steps,
        "batch": tuning.batch_size,
        "Trainer": _short(tuning.steps / tuning.plain_seconds),
        "auber": _short(tuning.steps / tuning.seconds),
        "times": f"{tuning.plain_seconds / tuning.seconds:.2f}",
    }


def _run_table(seconds: Mapping[str, float]) -> pandas.DataFrame:
    rows = [
        {
            "part": _WORDS.get(part, part),
            "seconds": f"{taken:.1f}",
            "share": f"{100 * taken / seconds['total']:.1f} %",
        }
        for part, taken in seconds.items()
        if taken
    ]
    return pandas.DataFrame(sorted(rows, key=lambda row: row["part"] == "all"))


def _growth_row(series: GrowthSeries) -> dict[str, str]:
    steps = [
        (upper.milliseconds - lower.milliseconds) / (upper.size - lower.size)
        for lower, upper in pairwise(series.points)
    ]
    points = (f"{point.size:,}: {_short(point.milliseconds)}" for point in series.points)
    return {
        "of": series.axis,
        "size: ms": ", ".join(points),
        "ms for each further one": ", ".join(f"{step:.2g}" for step in steps),
        "exponent": f"{_fit_exponent(series, 'milliseconds'):.2f}",
        "floor's exponent": f"{_fit_exponent(series, 'floor_milliseconds'):.2f}",
    }


def _fit_exponent(series: GrowthSeries, times: str) -> float:
    """Return the power of the size that fits the times best; 1 is linear growth."""
    sizes = [math.log(point.size) for point in series.points]
    logarithms = [math.log(getattr(point, times)) for point in series.points]
    return linear_regression(sizes, logarithms).slope


def draw_growth(benches: Sequence[Bench]) -> Figure:
    """Return one panel per size that grows, with logarithmic axes."""
    from matplotlib.figure import Figure

    grown = [bench for bench in benches if bench.growth]
    axes_names = [series.axis for series in grown[0].growth or ()]
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panels = figure.subplots(1, len(axes_names), squeeze=False)[0]
    for panel, axis in zip(panels, axes_names, strict=True):
        for bench in grown:
            series = next(each for each in bench.growth or () if each.axis == axis)
            sizes = [point.size for point in series.points]
            times = [point.milliseconds for point in series.points]
            floor = [point.floor_milliseconds for point in series.points]
            label = f"{name_of(bench)} (exponent {_fit_exponent(series, 'milliseconds'):.2f})"
            (line,) = panel.plot(sizes, times, marker="o", label=label)
            panel.plot(sizes, floor, linestyle=":", color=line.get_color(), label="floor")
        panel.set(xscale="log", yscale="log", title=f"ms per reward by {axis}", xlabel=axis)
        panel.legend(fontsize="xx-small")
    return figure


def _short(value: float) -> str:
    """Format a number with three digits and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")
