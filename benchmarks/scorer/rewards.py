"""Rewards three ways: plain float32, plain in the scorer's precision, and the scorer.

A plain reward is a forward pass of transformers over all rows, with heads or neurons masked. It
costs the same for every mask, so the plain ways are timed once, on masks of all kinds and several
layers; the scorers then answer the same masks, and the answers are compared. Every timed reward has
its own mask.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from statistics import fmean, median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auber.config import Config
from auber.data.encoding import EncodedRows, pad_batch
from auber.metrics.task_metrics import get_metric
from auber.models.plan import PruningPlan
from auber.models.surgery import masked
from auber.scoring import LayerScorer, PlanScorer
from auber.scoring.scorer import PackedScorer
from auber.system import seeds
from auber.system.progress import Progress
from auber.training.devices import Hardware
from benchmarks.scorer.floor import Workload, time_each, timed
from benchmarks.scorer.record import (
    AgreementRecord,
    GrowthPoint,
    GrowthSeries,
    PlainRecord,
    RewardsRecord,
    ScorerRecord,
)
from benchmarks.scorer.subjects import LEAST_ROWS, RowShape, Size, Subject, make_subject

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PLAIN_BATCH = 32
_SORTED_BATCH = {"cuda": 256}  # elsewhere the plain batch
_WARM_UP_SECONDS = 2.0

Answer = tuple[float, Tensor]  # the metric, and the logits (rows, labels), longest row first
Target = tuple[str, int | None]  # a kind of mask, and the layer; None for the whole model


@dataclass(frozen=True)
class Limits:
    """How often a way or a layer is timed."""

    repeats: int = 9
    seconds: float = 60.0  # no further repeat begins after this


class PlainScorer:
    """Score plans by whole forward passes, over rows sorted by length.

    With `padded_to` None a batch is padded to its longest row. Batches are padded and moved to the
    device in advance, which favours the plain ways a little.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        rows: EncodedRows,
        metric: str,
        *,
        dtype: torch.dtype,
        batch_size: int,
        padded_to: int | None,
    ) -> None:
        self._model = model if model.dtype == dtype else copy.deepcopy(model).to(dtype)
        self._metric = get_metric(metric)
        order = sorted(range(len(rows)), key=lambda row: -rows.lengths[row])
        self._batches: list[dict[str, Tensor]] = []
        for start in range(0, len(order), batch_size):
            chosen = [rows[row] for row in order[start : start + batch_size]]
            batch = pad_batch(chosen, rows.pad_token_id, padded_to or 1)
            del batch["labels"]
            self._batches.append({name: tensor.to(model.device) for name, tensor in batch.items()})
        self._labels = rows.labels[torch.tensor(order)].to(model.device)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Do one pass, cut short if it takes long."""
        started = time.perf_counter()
        for batch in self._batches:
            self._model(**batch).logits.sum().item()
            if time.perf_counter() - started > _WARM_UP_SECONDS:
                break

    @torch.inference_mode()
    def score(self, plan: PruningPlan) -> Answer:
        """Return the metric and the logits without the plan's units."""
        with masked(self._model, plan):
            logits = torch.cat([self._model(**batch).logits for batch in self._batches]).float()
        return float(self._metric.compute(logits, self._labels)), logits


def compare_rewards(
    subject: Subject,
    layers: Sequence[int],
    flops_per_second: float,
    limits: Limits,
    progress: Progress,
) -> RewardsRecord:
    """Time the three ways and compare their answers."""
    work = Workload.of(subject.encoder, subject.rows.lengths)
    targets: list[Target] = [(kind, layer) for kind in ("heads", "neurons") for layer in layers]
    targets.append(("plans", None))
    progress.plan([1.0] * (2 + len(targets)))
    checked = _spread_masks(subject, layers, limits.repeats)
    plans = [plan for _, plan in checked]
    plain, expected = _time_plain(subject, plans, 1, limits, progress, is_sorted=False)
    # Every mask is answered, however long it takes; only further repeats stop at the limit.
    least = len(expected)
    plans = list(islice(cycle(plans[:least]), limits.repeats))
    plain_sorted, found = _time_plain(subject, plans, least, limits, progress, is_sorted=True)
    records, answers = [], []  # an answer is beside the expected one
    for target in targets:
        kind, layer = target
        where = "whole model" if layer is None else f"layer {layer}"
        progress.begin(f"{kind}, {where}: rewards", limits.repeats)
        scorer, record = time_scorer(subject, target, limits)
        if layer is None:
            record = record.model_copy(update={"kept": _kept(subject, limits.repeats)})
        else:
            floor = 1000 * work.count_flops(layer, kind) / flops_per_second
            record = record.model_copy(update={"floor_milliseconds": floor})
        records.append(record)
        for (at, plan), answer in zip(checked, expected, strict=False):
            if at == target:
                answers.append((answer, (scorer.score(plan), scorer.logits(plan))))
        del scorer  # frees its memory for the next layer
        progress.end()
    return RewardsRecord(
        plain=plain,
        plain_sorted=plain_sorted,
        scorers=tuple(records),
        plain_sorted_agreement=_compare(list(zip(expected, found, strict=False))),
        scorer_agreement=_compare(answers),
    )


def _spread_masks(
    subject: Subject, layers: Sequence[int], count: int
) -> list[tuple[Target, PruningPlan]]:
    """Return targets with a mask each, of all kinds, spread over all layers from the lowest.

    A single pass then checks the layer with most layers above it.
    """
    step = (len(layers) - 1) / max(1, count - 1)
    found = []
    for number in range(count):
        kind = ("heads", "neurons", "plans")[number % 3]
        target = kind, None if kind == "plans" else layers[round(number * step)]
        found.append((target, random_plans(subject, target, count)[number]))
    return found


def random_plans(subject: Subject, target: Target, count: int) -> list[PruningPlan]:
    """Return masks of a kind as a search meets them: any number of units, but one stays."""
    kind, layer = target
    encoder = subject.encoder
    random = seeds.generator(subject.config.seed, f"bench masks/{kind}", layer)

    def draw(units: Sequence[int]) -> list[int]:
        number = int(random.integers(1, len(units))) if len(units) > 1 else 0
        chosen: list[int] = random.choice(units, number, replace=False).tolist()
        return chosen

    layers = range(encoder.num_layers) if layer is None else [layer]
    present = {"heads": encoder.present, "neurons": encoder.present_neurons}
    kinds = present if kind == "plans" else [kind]
    return [
        PruningPlan(**{each: {at: draw(present[each](at)) for at in layers} for each in kinds})
        for _ in range(count)
    ]


def _kept(subject: Subject, count: int) -> float:
    """Return the share of multiply-adds that the timed plans leave, for rows of mean length."""
    length = round(fmean(subject.rows.lengths))
    plans = random_plans(subject, ("plans", None), count)
    return fmean(plan.cost(subject.model, length).multiply_adds for plan in plans)


def time_scorer(
    subject: Subject, target: Target, limits: Limits
) -> tuple[PackedScorer, ScorerRecord]:
    """Return a scorer and the times of its rewards."""
    device, (kind, layer) = subject.hardware.device, target
    plans = random_plans(subject, target, limits.repeats)

    def prepare() -> PackedScorer:
        given = subject.rows, subject.task.metric, subject.hardware
        scorer = (
            PlanScorer(subject.model, *given)
            if layer is None
            else LayerScorer(subject.model, layer, *given)
        )
        scorer.score(plans[0])
        return scorer

    scorer, prepare_seconds = timed(prepare, device)
    scorer.score(plans[-1])
    seconds = time_each([partial(scorer.score, plan) for plan in plans], device, limits.seconds)
    return scorer, ScorerRecord(
        masks=kind,  # type: ignore[arg-type]
        layer=layer,
        milliseconds=1000 * median(seconds),
        prepare_seconds=prepare_seconds,
    )


def _time_plain(
    subject: Subject,
    plans: Sequence[PruningPlan],
    least: int,
    limits: Limits,
    progress: Progress,
    *,
    is_sorted: bool,
) -> tuple[PlainRecord, list[Answer]]:
    """Time plain rewards of at least `least` masks; sorted rows have the scorer's precision."""
    hardware = subject.hardware
    batch_size, padded_to = _PLAIN_BATCH, subject.config.max_length
    precision, padding = "float32", f"every row to {padded_to}"
    if is_sorted:
        batch_size = _SORTED_BATCH.get(hardware.device.type, _PLAIN_BATCH)
        precision, padding = hardware.precision, "sorted by length, to the longest of a batch"
    scorer = PlainScorer(
        subject.model,
        subject.rows,
        subject.task.metric,
        dtype=hardware.dtype if is_sorted else torch.float32,
        batch_size=batch_size,
        padded_to=None if is_sorted else padded_to,
    )
    progress.begin(f"plain {precision}{', sorted' * is_sorted}", len(plans))
    scorer.warm_up()
    seconds: list[float] = []
    answers: list[Answer] = []
    for plan in plans:
        if len(seconds) >= least and sum(seconds) >= limits.seconds:
            break
        answer, taken = timed(partial(scorer.score, plan), hardware.device)
        answers.append(answer)
        seconds.append(taken)
    progress.end()
    record = PlainRecord(
        precision=precision,
        batch_size=batch_size,
        padding=padding,
        milliseconds=1000 * median(seconds),
        passes=len(seconds),
    )
    return record, answers


def _compare(pairs: Sequence[tuple[Answer, Answer]]) -> AgreementRecord:
    """Return the distance of answers from the expected ones, which come first in each pair."""
    metric = [abs(expected[0] - found[0]) for expected, found in pairs]
    logits = [(expected[1], found[1]) for expected, found in pairs]
    return AgreementRecord(
        masks=len(pairs),
        largest_logit_difference=max(float((one - other).abs().max()) for one, other in logits),
        disagreements=sum(int((one.argmax(1) != other.argmax(1)).sum()) for one, other in logits),
        predictions=sum(len(one) for one, _ in logits),
        largest_metric_difference=max(metric),
        mean_metric_difference=fmean(metric),
    )


def measure_growth(
    size: Size,
    shape: RowShape,
    count: int | None,
    config: Config,
    hardware: Hardware,
    flops_per_second: float,
    limits: Limits,
    progress: Progress,
) -> tuple[GrowthSeries, ...]:
    """Return how the cost of a reward of layer 0, the most expensive one, grows with three sizes.

    Each series changes one size and holds the others. Heads are counted at one hidden size, which
    is cut into more and narrower heads, because a wider model multiplies larger matrices.
    """
    rows, layers, heads = count or shape.count, size.num_layers, size.num_heads
    half = max(1, layers // 2)
    row_counts = {max(LEAST_ROWS, number) for number in (rows // 4, rows // 2, rows, 2 * rows)}
    layer_counts = {max(2, half), layers, layers + half, 2 * layers}
    head_counts = {
        number
        for number in (heads // 2, heads, 2 * heads, 4 * heads)
        if number and size.hidden_size % number == 0
    }
    variants = {
        "rows": [(number, size, number) for number in row_counts],
        "layers": [(number, replace(size, num_layers=number), rows) for number in layer_counts],
        "heads": [(number, replace(size, num_heads=number), rows) for number in head_counts],
    }

    def measure(axis: str, number: int, variant: Size, row_count: int) -> GrowthPoint:
        progress.begin(f"growth: {number} {axis}", limits.repeats)
        subject = make_subject(variant, shape, row_count, config, hardware)
        _, record = time_scorer(subject, ("heads", 0), limits)
        flops = Workload.of(subject.encoder, subject.rows.lengths).count_flops(0)
        progress.end()
        floor = 1000 * flops / flops_per_second
        return GrowthPoint(size=number, milliseconds=record.milliseconds, floor_milliseconds=floor)

    return tuple(
        GrowthSeries(
            axis=axis,
            points=tuple(measure(axis, *each) for each in sorted(some, key=lambda each: each[0])),
        )
        for axis, some in variants.items()
    )
