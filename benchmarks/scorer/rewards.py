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
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from auber.data.encoding import EncodedRows, pad_batch
from auber.metrics.task_metrics import get_metric
from auber.models.plan import PruningPlan
from auber.models.surgery import masked
from auber.scoring import LayerScorer, PlanScorer
from auber.scoring.scorer import PackedScorer
from auber.system import seeds
from auber.system.progress import Progress
from benchmarks.scorer.floor import Work, time_each, timed
from benchmarks.scorer.record import (
    AgreementRecord,
    KindRecord,
    LayerRecord,
    PlainRecord,
    PlansRecord,
    RewardsRecord,
    TotalRecord,
)
from benchmarks.scorer.subjects import Subject

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PLAIN_BATCH = 32
_SORTED_BATCH = {"cuda": 256}  # elsewhere the plain batch
_MOST_AT_ONCE = 64
_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """How often a way or a layer is timed."""

    repeats: int = 9
    seconds: float = 60.0  # no further repeat begins after this


class PlainScorer:
    """Score plans by whole forward passes.

    With `padded_to` None the rows are sorted by length and a batch is padded to its longest row.
    Batches are padded and moved to the device in advance, which favours the plain ways a little.
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
        order = list(range(len(rows)))
        if padded_to is None:
            order.sort(key=lambda row: -rows.lengths[row])
        self._batches: list[dict[str, Tensor]] = []
        for start in range(0, len(order), batch_size):
            chosen = [rows[row] for row in order[start : start + batch_size]]
            batch = pad_batch(chosen, rows.pad_token_id, padded_to or 1)
            del batch["labels"]
            self._batches.append({name: tensor.to(model.device) for name, tensor in batch.items()})
        self._labels = rows.labels[torch.tensor(order)].to(model.device)
        self._places = torch.tensor(order).argsort().to(model.device)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Do one pass, cut short if it takes long."""
        started = time.perf_counter()
        for batch in self._batches:
            self._model(**batch).logits.sum().item()
            if time.perf_counter() - started > _WARM_UP_SECONDS:
                break

    @torch.inference_mode()
    def score(self, plan: PruningPlan) -> tuple[float, Tensor]:
        """Return the metric without the plan's units, and the logits (rows, labels)."""
        with masked(self._model, plan):
            logits = torch.cat([self._model(**batch).logits for batch in self._batches]).float()
        return float(self._metric.compute(logits, self._labels)), logits[self._places]


Answer = tuple[float, Tensor]  # the metric, and the logits (rows, labels)
Place = tuple[str, int]  # a kind of mask, and the layer; the lowest layer for plans
KINDS = ("heads", "neurons", "plans")


def compare_rewards(
    subject: Subject,
    layers: Sequence[int],
    flops_per_second: float,
    limits: Limits,
    progress: Progress,
) -> RewardsRecord:
    """Time the three ways and compare their answers."""
    work, length = Work.of(subject.encoder, subject.rows.lengths), subject.config.max_length
    places = [(kind, layer) for kind in KINDS[:2] for layer in layers] + [("plans", layers[0])]
    progress.plan(2 + len(places))
    masks = _spread_masks(subject, layers, limits.repeats)
    plans = [plan for _, plan in masks]
    plain, expected = _time_plain(
        subject, plans, 1, "float32", _PLAIN_BATCH, length, limits, progress
    )
    plans = plans[: len(expected)]
    # Every mask is answered, however long it takes; only further repeats stop at the limit.
    low_precision, found = _time_plain(
        subject,
        [plans[number % len(plans)] for number in range(limits.repeats)],
        len(plans),
        subject.hardware.precision,
        _SORTED_BATCH.get(subject.hardware.device.type, _PLAIN_BATCH),
        None,
        limits,
        progress,
    )
    plain_seconds = plain.milliseconds, low_precision.milliseconds
    records: dict[str, list[LayerRecord]] = {"heads": [], "neurons": []}
    answers: dict[int, Answer] = {}
    for place in places:
        kind, layer = place
        progress.begin(f"{kind}, layer {layer}: rewards", limits.repeats)
        scorer, prepare_seconds, seconds = time_scorer(subject, kind, layer, limits)
        times = _relate(1000 * seconds, *plain_seconds)
        if kind == "plans":
            of_plans = PlansRecord(
                prepare_seconds=prepare_seconds, kept=_kept(subject, limits.repeats), **times
            )
        else:
            many, many_seconds = _time_many(subject, scorer, place, seconds, limits)
            floor = 1000 * work.count_flops(layer, kind) / flops_per_second
            records[kind].append(
                LayerRecord(
                    layer=layer,
                    prepare_seconds=prepare_seconds,
                    many=many,
                    many_milliseconds=1000 * many_seconds,
                    floor_milliseconds=floor,
                    floor_share=floor / times["milliseconds"],
                    **times,
                )
            )
        for number in range(len(expected)):
            if masks[number][0] == place:
                answers[number] = _answer(subject, scorer, plans[number])
        del scorer  # frees its memory for the next layer
        progress.end()
    return RewardsRecord(
        plain=plain,
        low_precision=low_precision,
        layers=tuple(records["heads"]),
        total=_total(records["heads"], plain_seconds),
        neurons=KindRecord(
            layers=tuple(records["neurons"]), total=_total(records["neurons"], plain_seconds)
        ),
        plans=of_plans,
        low_precision_agreement=_compare(subject, expected, found[: len(plans)]),
        scorer_agreement=_compare(
            subject, expected, [answers[number] for number in range(len(expected))]
        ),
    )


def _total(records: Sequence[LayerRecord], plain_seconds: tuple[float, float]) -> TotalRecord:
    milliseconds, floor = (
        fmean(getattr(record, name) for record in records)
        for name in ("milliseconds", "floor_milliseconds")
    )
    return TotalRecord(
        layers=len(records),
        prepare_seconds=sum(record.prepare_seconds for record in records),
        floor_milliseconds=floor,
        floor_share=floor / milliseconds,
        **_relate(milliseconds, *plain_seconds),
    )


def _relate(milliseconds: float, plain: float, low_precision: float) -> dict[str, float]:
    return {
        "milliseconds": milliseconds,
        "rewards_per_second": 1000 / milliseconds,
        "ratio": plain / milliseconds,
        "low_precision_ratio": low_precision / milliseconds,
    }


def _spread_masks(
    subject: Subject, layers: Sequence[int], count: int
) -> list[tuple[Place, PruningPlan]]:
    """Return places with a mask each, of all kinds, spread over all layers from the lowest.

    A single pass then checks the layer with most layers above it.
    """
    step = (len(layers) - 1) / max(1, count - 1)
    found = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        place = kind, layers[0] if kind == "plans" else layers[round(number * step)]
        found.append((place, random_plans(subject, place, count)[number]))
    return found


def random_plans(
    subject: Subject, place: Place, count: int, purpose: str = "bench masks"
) -> list[PruningPlan]:
    """Return masks of a kind as a search meets them."""
    kind, layer = place
    encoder, seed = subject.encoder, subject.config.seed
    layers = range(encoder.num_layers) if kind == "plans" else [layer]
    removed: dict[str, list[dict[int, tuple[int, ...]]]] = {}
    for unit, present in (("heads", encoder.present), ("neurons", encoder.present_neurons)):
        chosen = {each: random_masks(present(each), count, seed, each, purpose) for each in layers}
        is_asked = kind in (unit, "plans")
        removed[unit] = [
            {each: masks[number] for each, masks in chosen.items()} if is_asked else {}
            for number in range(count)
        ]
    return list(map(PruningPlan, removed["heads"], removed["neurons"]))


def _kept(subject: Subject, count: int) -> float:
    """Return the share of multiply-adds that the timed plans leave, for rows of mean length."""
    length = round(fmean(subject.rows.lengths))
    plans = random_plans(subject, ("plans", 0), count)
    return fmean(plan.cost(subject.model, length).multiply_adds for plan in plans)


def random_masks(
    units: Sequence[int], count: int, seed: int, layer: int, purpose: str = "bench masks"
) -> list[tuple[int, ...]]:
    """Return sets of units: any number of them, but one stays."""
    random = seeds.generator(seed, purpose, layer)
    masks = []
    for _ in range(count):
        number = int(random.integers(1, len(units))) if len(units) > 1 else 0
        chosen = random.choice(units, number, replace=False)
        masks.append(tuple(int(unit) for unit in np.sort(chosen)))
    return masks


def time_scorer(
    subject: Subject, kind: str, layer: int, limits: Limits
) -> tuple[PackedScorer, float, float]:
    """Return a scorer, the seconds until its first reward, and of one after that."""
    device = subject.hardware.device
    masks = random_plans(subject, (kind, layer), limits.repeats)

    def prepare() -> PackedScorer:
        given = subject.rows, subject.task.metric, subject.hardware
        scorer = (
            PlanScorer(subject.model, *given)
            if kind == "plans"
            else LayerScorer(subject.model, layer, *given)
        )
        scorer.score(masks[0])
        return scorer

    scorer, prepare_seconds = timed(prepare, device)
    scorer.score(masks[-1])
    seconds = time_each([partial(scorer.score, mask) for mask in masks], device, limits.seconds)
    return scorer, prepare_seconds, median(seconds)


def _time_plain(
    subject: Subject,
    plans: Sequence[PruningPlan],
    least: int,
    precision: str,
    batch_size: int,
    padded_to: int | None,
    limits: Limits,
    progress: Progress,
) -> tuple[PlainRecord, list[Answer]]:
    """Time plain rewards of masks, at least so many of them."""
    scorer = PlainScorer(
        subject.model,
        subject.rows,
        subject.task.metric,
        dtype=torch.float32 if precision == "float32" else subject.hardware.dtype,
        batch_size=batch_size,
        padded_to=padded_to,
    )
    is_sorted = padded_to is None
    progress.begin(f"plain {precision}{', sorted' * is_sorted}", len(plans))
    scorer.warm_up()
    seconds: list[float] = []
    answers: list[Answer] = []
    for plan in plans:
        if len(seconds) >= least and sum(seconds) >= limits.seconds:
            break
        answer, taken = timed(partial(scorer.score, plan), subject.hardware.device)
        answers.append(answer)
        seconds.append(taken)
    progress.end()
    longest = "sorted by length, to the longest of a batch"
    record = PlainRecord(
        precision=precision,
        batch_size=batch_size,
        padding=longest if is_sorted else f"every row to {padded_to}",
        milliseconds=1000 * median(seconds),
        passes=len(seconds),
        rewards_per_second=1 / median(seconds),
    )
    return record, answers


def _time_many(
    subject: Subject, scorer: PackedScorer, place: Place, single: float, limits: Limits
) -> tuple[int, float]:
    """Return how many masks are scored at once, and the seconds per reward."""
    # As many as fit into a hundredth of the limit; the call is made twice, once to warm up.
    many = min(_MOST_AT_ONCE, int(limits.seconds / 100 / single))
    if many < 2:
        return 1, single
    masks = random_plans(subject, place, many, "bench masks at once")
    scorer.score_many(masks)
    return many, timed(lambda: scorer.score_many(masks), subject.hardware.device)[1] / many


def _answer(subject: Subject, scorer: PackedScorer, plan: PruningPlan) -> Answer:
    """Return the scorer's answer, with the logits in the order of the rows."""
    found = scorer.logits(plan)  # (rows, labels), longest row first
    lengths = subject.rows.lengths
    order = torch.tensor(sorted(range(len(lengths)), key=lambda row: -lengths[row]))
    logits = torch.empty_like(found)
    logits[order.to(found.device)] = found
    return scorer.score(plan), logits


def _compare(
    subject: Subject, expected: Sequence[Answer], found: Sequence[Answer]
) -> AgreementRecord:
    """Return the distance of answers from those of plain float32."""
    metric = [abs(ours[0] - theirs[0]) for ours, theirs in zip(expected, found, strict=True)]
    logits = [(ours[1], theirs[1]) for ours, theirs in zip(expected, found, strict=True)]
    return AgreementRecord(
        masks=len(metric),
        largest_logit_difference=max(float((ours - theirs).abs().max()) for ours, theirs in logits),
        logit_spread=fmean(float(ours.std(0).mean()) for ours, _ in logits),
        disagreements=sum(
            int((ours.argmax(1) != theirs.argmax(1)).sum()) for ours, theirs in logits
        ),
        predictions=len(metric) * len(subject.rows),
        largest_metric_difference=max(metric),
        mean_metric_difference=fmean(metric),
    )
