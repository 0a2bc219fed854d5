"""Rewards three ways: plain float32, plain in the scorer's precision, and the scorer.

A plain reward is a forward pass of transformers over all rows, with the heads of one layer masked.
It costs the same for every layer, so the plain ways are timed once, on masks of several layers; the
scorer then answers the same masks, and the answers are compared. Every timed reward has its own
mask.
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
from auber.scoring import LayerScorer
from auber.system import seeds
from auber.system.progress import Progress
from benchmarks.scorer.floor import Work, time_each, timed
from benchmarks.scorer.record import (
    AgreementRecord,
    LayerRecord,
    PlainRecord,
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
        """Return the metric without the plan's heads, and the logits (rows, labels)."""
        with masked(self._model, plan):
            logits = torch.cat([self._model(**batch).logits for batch in self._batches]).float()
        return float(self._metric.compute(logits, self._labels)), logits[self._places]


Answer = tuple[float, Tensor]  # the metric, and the logits (rows, labels)


def compare_rewards(
    subject: Subject,
    layers: Sequence[int],
    flops_per_second: float,
    limits: Limits,
    progress: Progress,
) -> RewardsRecord:
    """Time the three ways and compare their answers."""
    work, length = Work.of(subject.encoder, subject.rows.lengths), subject.config.max_length
    progress.plan(2 + len(layers))
    masks = _spread_masks(subject, layers, limits.repeats)
    plain, expected = _time_plain(
        subject, masks, 1, "float32", _PLAIN_BATCH, length, limits, progress
    )
    masks = masks[: len(expected)]
    # Every mask is answered, however long it takes; only further repeats stop at the limit.
    low_precision, found = _time_plain(
        subject,
        [masks[number % len(masks)] for number in range(limits.repeats)],
        len(masks),
        subject.hardware.precision,
        _SORTED_BATCH.get(subject.hardware.device.type, _PLAIN_BATCH),
        None,
        limits,
        progress,
    )
    plain_seconds = plain.milliseconds, low_precision.milliseconds
    records, answers = [], []
    for layer in layers:
        progress.begin(f"layer {layer}: rewards", limits.repeats)
        scorer, prepare_seconds, seconds = time_scorer(subject, layer, limits)
        many, many_seconds = _time_many(subject, scorer, seconds, limits)
        floor = 1000 * work.count_flops(layer) / flops_per_second
        records.append(
            LayerRecord(
                layer=layer,
                prepare_seconds=prepare_seconds,
                many=many,
                many_milliseconds=1000 * many_seconds,
                **_relate(1000 * seconds, floor, *plain_seconds),
            )
        )
        answers += [_answer(subject, scorer, mask) for of, mask in masks if of == layer]
        del scorer  # frees its memory for the next layer
        progress.end()
    milliseconds, floor = (
        fmean(getattr(record, name) for record in records)
        for name in ("milliseconds", "floor_milliseconds")
    )
    total = TotalRecord(
        layers=len(records),
        prepare_seconds=sum(record.prepare_seconds for record in records),
        **_relate(milliseconds, floor, *plain_seconds),
    )
    # Answers come layer by layer, and masks ascend by layer, so both are in the same order.
    return RewardsRecord(
        plain=plain,
        low_precision=low_precision,
        layers=tuple(records),
        total=total,
        low_precision_agreement=_compare(subject, expected, found[: len(masks)]),
        scorer_agreement=_compare(subject, expected, answers),
    )


def _relate(
    milliseconds: float, floor: float, plain: float, low_precision: float
) -> dict[str, float]:
    return {
        "milliseconds": milliseconds,
        "rewards_per_second": 1000 / milliseconds,
        "ratio": plain / milliseconds,
        "low_precision_ratio": low_precision / milliseconds,
        "floor_milliseconds": floor,
        "floor_share": floor / milliseconds,
    }


def _spread_masks(
    subject: Subject, layers: Sequence[int], count: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Return layers with a mask each, spread over all layers from the lowest.

    A single pass then checks the layer with most layers above it.
    """
    step = (len(layers) - 1) / max(1, count - 1)
    found = []
    for number in range(count):
        layer = layers[round(number * step)]
        heads = subject.encoder.present(layer)
        mask = random_masks(heads, count, subject.config.seed, layer)[number]
        found.append((layer, mask))
    return found


def random_masks(heads: Sequence[int], count: int, seed: int, layer: int) -> list[tuple[int, ...]]:
    """Return masks as a search meets them: any number of heads may be removed, but one stays."""
    random = seeds.generator(seed, "bench masks", layer)
    masks = []
    for _ in range(count):
        number = int(random.integers(1, len(heads))) if len(heads) > 1 else 0
        chosen = random.choice(heads, number, replace=False)
        masks.append(tuple(int(head) for head in np.sort(chosen)))
    return masks


def time_scorer(subject: Subject, layer: int, limits: Limits) -> tuple[LayerScorer, float, float]:
    """Return the scorer of a layer, the seconds until its first reward, and of one after that."""
    device = subject.hardware.device
    masks = random_masks(subject.encoder.present(layer), limits.repeats, subject.config.seed, layer)

    def prepare() -> LayerScorer:
        rows, metric = subject.rows, subject.task.metric
        scorer = LayerScorer(subject.model, layer, rows, metric, subject.hardware)
        scorer.score(masks[0])
        return scorer

    scorer, prepare_seconds = timed(prepare, device)
    scorer.score(masks[-1])
    seconds = time_each([partial(scorer.score, mask) for mask in masks], device, limits.seconds)
    return scorer, prepare_seconds, median(seconds)


def _time_plain(
    subject: Subject,
    masks: Sequence[tuple[int, tuple[int, ...]]],
    least: int,
    precision: str,
    batch_size: int,
    padded_to: int | None,
    limits: Limits,
    progress: Progress,
) -> tuple[PlainRecord, list[Answer]]:
    """Time plain rewards of layers and masks, at least so many of them."""
    scorer = PlainScorer(
        subject.model,
        subject.rows,
        subject.task.metric,
        dtype=torch.float32 if precision == "float32" else subject.hardware.dtype,
        batch_size=batch_size,
        padded_to=padded_to,
    )
    is_sorted = padded_to is None
    progress.begin(f"plain {precision}{', sorted' * is_sorted}", len(masks))
    scorer.warm_up()
    seconds: list[float] = []
    answers: list[Answer] = []
    for layer, mask in masks:
        if len(seconds) >= least and sum(seconds) >= limits.seconds:
            break
        plan = PruningPlan({layer: mask})
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
    subject: Subject, scorer: LayerScorer, single: float, limits: Limits
) -> tuple[int, float]:
    """Return how many masks are scored at once, and the seconds per reward."""
    # As many as fit into a hundredth of the limit; the call is made twice, once to warm up.
    many = min(_MOST_AT_ONCE, int(limits.seconds / 100 / single))
    if many < 2:
        return 1, single
    masks = random_masks(scorer.present, many, subject.config.seed + 1, scorer.layer)
    scorer.score_many(masks)
    return many, timed(lambda: scorer.score_many(masks), subject.hardware.device)[1] / many


def _answer(subject: Subject, scorer: LayerScorer, removed: tuple[int, ...]) -> Answer:
    """Return the scorer's answer, with the logits in the order of the rows."""
    found = scorer.logits(removed)  # (rows, labels), longest row first
    lengths = subject.rows.lengths
    order = torch.tensor(sorted(range(len(lengths)), key=lambda row: -lengths[row]))
    logits = torch.empty_like(found)
    logits[order.to(found.device)] = found
    return scorer.score(removed), logits


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
