"""Results of the scorer benchmark as tables and a figure, for terminal and documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pandas

from benchmarks.common import describe_origin
from benchmarks.scorer.record import (
    Bench,
    GrowthSeries,
    RewardsRecord,
    SearchRecord,
    TimeRecord,
    TuningRecord,
)

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
        yield "One reward, mean over the searched layers", _rewards_table(rewards)
        yield "One reward by searched layer: ms (share of the floor)", _layers_table(rewards)
        yield "Answers, compared with plain float32", _agreement_table(rewards)
    tunings = [(name_of(bench), bench.tuning) for bench in benches if bench.tuning]
    if tunings:
        yield "Tuning steps per second", _tuning_table(tunings)
    for bench in benches:
        if bench.search:
            title = f"Seconds of a whole run: preset {bench.search.preset}, {name_of(bench)}"
            yield title, _run_table(bench.search)
    for bench in benches:
        if bench.growth:
            yield f"Growth of a reward of layer 0: {name_of(bench)}", _growth_table(bench.growth)


def _rewards_table(found: Sequence[tuple[str, RewardsRecord]]) -> pandas.DataFrame:
    rows = [
        {
            "measured": name,
            "masks": masks,
            "plain float32, ms": _short(rewards.plain.milliseconds),
            "plain sorted, ms": _short(rewards.low_precision.milliseconds),
            "scorer, ms": _short(times.milliseconds),
            "floor, ms": "-" if floor is None else _short(floor),
            "times float32": f"{times.ratio:.1f}",
            "times sorted": f"{times.low_precision_ratio:.1f}",
            "of the floor": "-" if floor is None else _share(floor / times.milliseconds),
            "prepare, s": _short(times.prepare_seconds),
        }
        for name, rewards in found
        for masks, times, floor in _kinds(rewards)
    ]
    return pandas.DataFrame(rows)


def _kinds(rewards: RewardsRecord) -> Iterator[tuple[str, TimeRecord, float | None]]:
    """Yield the times of each kind of mask, and their floor."""
    yield "heads", rewards.total, rewards.total.floor_milliseconds
    if rewards.neurons:
        yield "neurons", rewards.neurons.total, rewards.neurons.total.floor_milliseconds
    if rewards.plans:
        yield f"whole model, {100 * rewards.plans.kept:.0f} % kept", rewards.plans, None


def _share(share: float) -> str:
    # Nothing is faster than its floor: something else kept the device busy meanwhile.
    return f"{100 * share:.0f} %" + " (invalid)" * (share > 1)


def _layers_table(found: Sequence[tuple[str, RewardsRecord]]) -> pandas.DataFrame:
    columns = {
        name: {
            layer.layer: f"{_short(layer.milliseconds)} ({100 * layer.floor_share:.0f} %)"
            for layer in of_kind.layers
        }
        for name, rewards in found
        for name, of_kind in ((name, rewards), (f"{name}, neurons", rewards.neurons))
        if of_kind
    }
    table = pandas.DataFrame(columns).sort_index().fillna("-")
    return table.rename_axis("layer").reset_index()


def _agreement_table(found: Sequence[tuple[str, RewardsRecord]]) -> pandas.DataFrame:
    rows = [
        {
            "measured": name,
            "way": way,
            "masks": agreement.masks,
            "other predictions": f"{agreement.disagreements} of {agreement.predictions:,}",
            "metric, mean points": f"{100 * agreement.mean_metric_difference:.2f}",
            "largest": f"{100 * agreement.largest_metric_difference:.2f}",
            "largest logit difference": f"{agreement.largest_logit_difference:.2g}",
        }
        for name, rewards in found
        for way, agreement in (
            (f"plain sorted, {rewards.low_precision.precision}", rewards.low_precision_agreement),
            ("scorer", rewards.scorer_agreement),
        )
    ]
    return pandas.DataFrame(rows)


def _tuning_table(found: Sequence[tuple[str, TuningRecord]]) -> pandas.DataFrame:
    rows = [
        {
            "measured": name,
            "steps": tuning.tune.steps,
            "batch": tuning.batch_size,
            "Trainer": _short(tuning.plain.steps_per_second),
            "auber": _short(tuning.tune.steps_per_second),
            "times": f"{tuning.ratio:.2f}",
        }
        for name, tuning in found
    ]
    return pandas.DataFrame(rows)


def _run_table(run: SearchRecord) -> pandas.DataFrame:
    seconds = run.seconds.to_json(drop_none=True)
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


def _growth_table(growth: Sequence[GrowthSeries]) -> pandas.DataFrame:
    rows = []
    for series in growth:
        steps = [
            (upper.milliseconds - lower.milliseconds) / (upper.size - lower.size)
            for lower, upper in pairwise(series.points)
        ]
        points = (f"{point.size:,}: {_short(point.milliseconds)}" for point in series.points)
        rows.append(
            {
                "of": series.axis,
                "size: ms": ", ".join(points),
                "ms for each further one": ", ".join(f"{step:.2g}" for step in steps),
                "exponent": f"{series.exponent:.2f}",
                "floor's exponent": f"{series.floor_exponent:.2f}",
            }
        )
    return pandas.DataFrame(rows)


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
            label = f"{name_of(bench)} (exponent {series.exponent:.2f})"
            (line,) = panel.plot(sizes, times, marker="o", label=label)
            panel.plot(sizes, floor, linestyle=":", color=line.get_color(), label="floor")
        panel.set(xscale="log", yscale="log", title=f"ms per reward by {axis}", xlabel=axis)
        panel.legend(fontsize="xx-small")
    return figure


def _short(value: float) -> str:
    """Format a number with three digits and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")
