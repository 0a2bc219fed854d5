"""A record as tables of words, for a terminal and for a page alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from auber.bench.record import (
    AgreementRecord,
    Bench,
    GrowthSeries,
    PlainRecord,
    RewardsRecord,
    SearchRecord,
    TuningRecord,
)


@dataclass(frozen=True)
class Table:
    """Cells under a title; what the title cannot say is the note."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def title_of(bench: Bench) -> str:
    """What was measured where, in a line."""
    subject = bench.subject
    return f"{subject.model}, {subject.task} rows, {device_of(bench)}"


def device_of(bench: Bench) -> str:
    """The device, with the threads where they are what computes."""
    device = bench.device
    threads = (
        f", {device.threads} thread{'s' if device.threads > 1 else ''}"
        if device.name == "cpu"
        else ""
    )
    return f"{device.name}{threads}"


def describe(bench: Bench) -> str:
    """The sizes of what was measured, and the device's own speed."""
    subject, device = bench.subject, bench.device
    # Other processes beside it change what a CPU measures, and not by the same factor for every way.
    load = (
        f"; load average before: {device.load:.1f}"
        if device.name == "cpu" and device.load is not None
        else ""
    )
    return (
        f"{subject.layers} layers of {subject.heads} heads, hidden size {subject.hidden_size}, feed-forward "
        f"{subject.intermediate_size}, {_short(subject.parameters / 1e6)} million parameters; "
        f"{subject.rows:,} reward rows of {subject.tokens:,} tokens, mean {subject.tokens / subject.rows:.1f}, "
        f"longest {subject.longest}; the device multiplies {device.matrix_size} x {device.matrix_size} matrices in "
        f"{device.precision} at {_short(device.teraflops)} TFLOP/s{load}"
    )


def all_tables(bench: Bench) -> Iterator[Table]:
    """Every table the record has numbers for."""
    if bench.rewards is not None:
        yield ways_table(bench.rewards)
        yield layers_table(bench.rewards)
        yield agreement_table(bench.rewards)
    if bench.tuning is not None:
        yield tuning_table(bench.tuning)
    if bench.search is not None:
        yield search_table(bench.search)
    if bench.growth is not None:
        yield growth_table(bench.growth)


def ways_table(rewards: RewardsRecord) -> Table:
    """The three ways and the floor."""
    total = rewards.total
    doubt = ""
    if total.floor_share > 1:
        doubt = (
            " Not valid: nothing can be faster than its floor, so something else kept the device busy while its matrix rate "
            "was measured, and perhaps the plain ways; measure again on an idle machine."
        )

    def plain_row(name: str, way: PlainRecord, ratio: float) -> list[str]:
        share = total.floor_milliseconds / way.milliseconds
        return [
            name,
            _short(way.milliseconds),
            _short(way.rewards_per_second),
            f"{ratio:.1f}",
            _percent(share),
        ]

    return Table(
        f"One reward: milliseconds, {_mean_of(rewards)}",
        ["way", "ms", "a second", "x plain", "of floor"],
        [
            plain_row("plain transformers, float32", rewards.plain, 1.0),
            plain_row(
                f"plain transformers, {rewards.low_precision.precision}, sorted",
                rewards.low_precision,
                rewards.plain.milliseconds / rewards.low_precision.milliseconds,
            ),
            [
                "this scorer",
                _short(total.milliseconds),
                _short(total.rewards_per_second),
                f"{total.ratio:.1f}",
                _percent(total.floor_share),
            ],
            [
                "the floor: the arithmetic left",
                _short(total.floor_milliseconds),
                _short(1000 / total.floor_milliseconds),
                f"{rewards.plain.milliseconds / total.floor_milliseconds:.1f}",
                _percent(1.0),
            ],
        ],
        f"Plain: {_way(rewards.plain)}. Plain and sorted: {_way(rewards.low_precision)}.{doubt}",
    )


def layers_table(rewards: RewardsRecord) -> Table:
    """The scorer layer by layer, and all together."""
    columns = [
        "layer",
        "ms",
        "a second",
        "x plain",
        "x sorted",
        "floor, ms",
        "of floor",
        "many, ms",
        "prepare, s",
    ]
    rows = [
        [
            str(layer.layer),
            _short(layer.milliseconds),
            _short(layer.rewards_per_second),
            f"{layer.ratio:.1f}",
            f"{layer.low_precision_ratio:.1f}",
            _short(layer.floor_milliseconds),
            _percent(layer.floor_share),
            f"{_short(layer.many_milliseconds)} ({layer.many})",
            _short(layer.prepare_seconds),
        ]
        for layer in rewards.layers
    ]
    total = rewards.total
    rows.append(
        [
            "all",
            _short(total.milliseconds),
            _short(total.rewards_per_second),
            f"{total.ratio:.1f}",
            f"{total.low_precision_ratio:.1f}",
            _short(total.floor_milliseconds),
            _percent(total.floor_share),
            "-",
            _short(total.prepare_seconds),
        ]
    )
    return Table(
        "This scorer, by searched layer",
        columns,
        rows,
        "Milliseconds a reward, rewards a second, times faster than the plain ways, share of the floor. Many: a reward's time "
        "when as many masks as in brackets are scored at once. Prepare: from nothing to the layer's first reward. All: "
        "means, and ratios of summed times.",
    )


def agreement_table(rewards: RewardsRecord) -> Table:
    """How far the answers are from plain float32."""

    def row(name: str, agreement: AgreementRecord) -> list[str]:
        return [
            name,
            f"{agreement.disagreements} of {agreement.predictions:,}",
            f"{100 * agreement.mean_metric_difference:.2f}",
            f"{100 * agreement.largest_metric_difference:.2f}",
            f"{agreement.largest_logit_difference:.2g}",
        ]

    masks, spread = rewards.scorer_agreement.masks, rewards.scorer_agreement.logit_spread
    return Table(
        f"Against plain float32 on {masks} random mask{'s' if masks > 1 else ''}",
        ["way", "differing answers", "mean, points", "largest", "logit"],
        [
            row(
                f"plain transformers, {rewards.low_precision.precision}, sorted",
                rewards.low_precision_agreement,
            ),
            row("this scorer", rewards.scorer_agreement),
        ],
        "Predicted classes that differ, the mean and the largest difference of the metric in points, and the largest difference "
        "of a logit; the plain logits have a standard deviation of "
        f"{spread:.2g} over the rows.",
    )


def tuning_table(tuning: TuningRecord) -> Table:
    """Steps a second both ways."""
    return Table(
        f"Fine-tuning, {tuning.rows:,} rows, batches of {tuning.batch_size}",
        ["way", "steps", "seconds", "steps a second", "x Trainer"],
        [
            [
                name,
                str(way.steps),
                _short(way.seconds),
                _short(way.steps_per_second),
                f"{ratio:.2f}",
            ]
            for name, way, ratio in (
                ("Trainer with its defaults", tuning.plain, 1.0),
                ("auber.training", tuning.tune, tuning.ratio),
            )
        ],
        "Each as it comes. Trainer: float32, rows in random order. auber.training: the precision of the run, rows of like length together, on "
        "a GPU steps recorded as graphs where that can be done.",
    )


def search_table(search: SearchRecord) -> Table:
    """Where the seconds of a whole run went."""
    seconds = search.seconds
    parts = [("rewards", seconds.rewards), ("agent", seconds.agent), ("tuning", seconds.tuning)]
    further = [
        ("choosing", seconds.choosing),
        ("timing", seconds.timing),
    ]  # which not every run has
    parts += [(name, taken) for name, taken in further if taken]
    parts += [
        ("evaluation", seconds.evaluation),
        ("the rest", seconds.rest),
        ("all", seconds.total),
    ]
    return Table(
        f"A whole run, preset {search.preset}, {search.episodes} episodes a layer",
        ["part", "seconds", "share"],
        [[name, f"{taken:.1f}", _percent(taken / seconds.total)] for name, taken in parts],
        f"{search.rewards_computed:,} rewards computed for {search.rewards_asked:,} asked, {search.tuning_steps:,} tuning "
        f"steps, {search.heads_removed} of {search.heads} heads removed (protocol {search.protocol}).",
    )


def growth_table(growth: tuple[GrowthSeries, ...]) -> Table:
    """The points of each series, what each step up cost, and the exponents."""
    return Table(
        "How the cost of a reward grows (layer 0, the dearest)",
        ["of", "size: ms a reward", "ms for each further one", "exponent", "the floor's"],
        [
            [
                series.axis,
                ", ".join(
                    f"{point.size:,}: {_short(point.milliseconds)}" for point in series.points
                ),
                ", ".join(
                    f"{(upper.milliseconds - lower.milliseconds) / (upper.size - lower.size):.2g}"
                    for lower, upper in pairwise(series.points)
                ),
                f"{series.exponent:.2f}",
                f"{series.floor_exponent:.2f}",
            ]
            for series in growth
        ],
        "Exponent 1 is growth in proportion; equal steps for each further one are linear growth too, and give more than 1 where "
        "the first ones are cheaper, as a model's first and last layer are here. Heads are counted at one hidden size, cut "
        "into more and narrower heads.",
    )


def _mean_of(rewards: RewardsRecord) -> str:
    number = rewards.total.layers
    return (
        f"mean over {number} searched layers"
        if number > 1
        else f"searched layer {rewards.layers[0].layer}"
    )


def _way(way: PlainRecord) -> str:
    return (
        f"{way.precision}, batches of {way.batch_size}, padded: {way.padding}, {way.passes} timed "
        f"pass{'es' if way.passes > 1 else ''}"
    )


def _short(value: float) -> str:
    """Three digits, and no exponent at any size met here."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
