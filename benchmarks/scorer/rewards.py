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


@dataclass(frozen=True)
class Check:
    """A mask and its plain float32 score, to compare other answers with."""

    layer: int
    removed: tuple[int, ...]
    score: float
    logits: Tensor  # (rows, labels)

    @property
    def plan(self) -> PruningPlan:
        """The mask as a plan."""
        return PruningPlan({self.layer: self.removed})


@dataclass(frozen=True)
class ScorerTimes:
    """Seconds of one layer's scorer."""

    prepare: float  # until the first reward
    reward: float  # median of those after it


def compare_rewards(
    subject: Subject,
    layers: Sequence[int],
    flops_per_second: float,
    limits: Limits,
    progress: Progress,
) -> RewardsRecord:
    """Time the three ways and compare their answers."""
    work = Work.of(subject.encoder, subject.rows.lengths)
    progress.plan(2 + len(layers))
    checks, plain = _time_float32(subject, layers, limits, progress)
    low_precision, low_agreement = _time_low_precision(subject, checks, limits, progress)
    records, answers = [], []
    for layer in layers:
        progress.begin(f"layer {layer}: rewards", limits.repeats)
        scorer, times = time_scorer(subject, layer, limits)
        many, many_seconds = _time_many(subject, scorer, times.reward, limits)
        milliseconds, floor = 1000 * times.reward, 1000 * work.count_flops(layer) / flops_per_second
        records.append(
            LayerRecord(
                layer=layer,
                prepare_seconds=times.prepare,
                milliseconds=milliseconds,
                rewards_per_second=1000 / milliseconds,
                many=many,
                many_milliseconds=1000 * many_seconds,
                ratio=plain.milliseconds / milliseconds,
                low_precision_ratio=low_precision.milliseconds / milliseconds,
                floor_milliseconds=floor,
                floor_share=floor / milliseconds,
            )
        )
        answers += [
            _answer(subject, scorer, each.removed) for each in checks if each.layer == layer
        ]
        del scorer  # frees its memory for the next layer
        progress.end()
    # Answers come layer by layer, and checks ascend by layer, so both are in the same order.
    return RewardsRecord(
        plain=plain,
        low_precision=low_precision,
        layers=tuple(records),
        total=_total(records, plain, low_precision),
        low_precision_agreement=low_agreement,
        scorer_agreement=_compare(subject, checks, answers),
    )


def random_masks(heads: Sequence[int], count: int, seed: int, layer: int) -> list[tuple[int, ...]]:
    """Return masks as a search meets them: any number of heads may be removed, but one stays."""
    random = seeds.generator(seed, "bench masks", layer)
    masks = []
    for _ in range(count):
        number = int(random.integers(1, len(heads))) if len(heads) > 1 else 0
        chosen = random.choice(heads, number, replace=False)
        masks.append(tuple(int(head) for head in np.sort(chosen)))
    return masks


def time_scorer(subject: Subject, layer: int, limits: Limits) -> tuple[LayerScorer, ScorerTimes]:
    """Return the scorer of a layer and its times."""
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
    return scorer, ScorerTimes(prepare_seconds, median(seconds))


def _time_float32(
    subject: Subject, layers: Sequence[int], limits: Limits, progress: Progress
) -> tuple[list[Check], PlainRecord]:
    length = subject.config.max_length
    scorer = PlainScorer(
        subject.model,
        subject.rows,
        subject.task.metric,
        dtype=torch.float32,
        batch_size=_PLAIN_BATCH,
        padded_to=length,
    )
    checks: list[Check] = []

    def check(layer: int, removed: tuple[int, ...]) -> None:
        score, logits = scorer.score(PruningPlan({layer: removed}))
        checks.append(Check(layer, removed, score, logits))

    # Spread over all layers from the lowest, so that a single pass checks the one with most above.
    step = (len(layers) - 1) / max(1, limits.repeats - 1)
    calls = []
    for number in range(limits.repeats):
        layer = layers[round(number * step)]
        heads = subject.encoder.present(layer)
        mask = random_masks(heads, limits.repeats, subject.config.seed, layer)[number]
        calls.append(partial(check, layer, mask))
    progress.begin("plain float32", limits.repeats)
    scorer.warm_up()
    seconds = time_each(calls, subject.hardware.device, limits.seconds)
    progress.end()
    return checks, _plain_record("float32", _PLAIN_BATCH, f"every row to {length}", seconds)


def _time_low_precision(
    subject: Subject, checks: Sequence[Check], limits: Limits, progress: Progress
) -> tuple[PlainRecord, AgreementRecord]:
    hardware = subject.hardware
    batch_size = _SORTED_BATCH.get(hardware.device.type, _PLAIN_BATCH)
    scorer = PlainScorer(
        subject.model,
        subject.rows,
        subject.task.metric,
        dtype=hardware.dtype,
        batch_size=batch_size,
        padded_to=None,
    )
    progress.begin(f"plain {hardware.precision}, sorted", limits.repeats)
    scorer.warm_up()
    seconds: list[float] = []
    answers: list[tuple[float, Tensor]] = []
    for number in range(limits.repeats):
        # Every check is answered, however long it takes; further repeats stop at the limit.
        if number >= len(checks) and sum(seconds) >= limits.seconds:
            break
        plan = checks[number % len(checks)].plan
        answer, taken = timed(partial(scorer.score, plan), hardware.device)
        seconds.append(taken)
        if number < len(checks):
            answers.append(answer)
    progress.end()
    padding = "sorted by length, to the longest of a batch"
    record = _plain_record(hardware.precision, batch_size, padding, seconds)
    return record, _compare(subject, checks, answers)


def _plain_record(
    precision: str, batch_size: int, padding: str, seconds: Sequence[float]
) -> PlainRecord:
    return PlainRecord(
        precision=precision,
        batch_size=batch_size,
        padding=padding,
        milliseconds=1000 * median(seconds),
        passes=len(seconds),
        rewards_per_second=1 / median(seconds),
    )


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


def _answer(
    subject: Subject, scorer: LayerScorer, removed: tuple[int, ...]
) -> tuple[float, Tensor]:
    """Return the scorer's metric, and its logits in the order of the rows."""
    found = scorer.logits(removed)  # (rows, labels), longest row first
    lengths = subject.rows.lengths
    order = torch.tensor(sorted(range(len(lengths)), key=lambda row: -lengths[row]))
    logits = torch.empty_like(found)
    logits[order.to(found.device)] = found
    return scorer.score(removed), logits


def _total(
    records: Sequence[LayerRecord], plain: PlainRecord, low_precision: PlainRecord
) -> TotalRecord:
    milliseconds = fmean(record.milliseconds for record in records)
    floor = fmean(record.floor_milliseconds for record in records)
    return TotalRecord(
        layers=len(records),
        milliseconds=milliseconds,
        rewards_per_second=1000 / milliseconds,
        ratio=plain.milliseconds / milliseconds,
        low_precision_ratio=low_precision.milliseconds / milliseconds,
        floor_milliseconds=floor,
        floor_share=floor / milliseconds,
        prepare_seconds=sum(record.prepare_seconds for record in records),
    )


def _compare(
    subject: Subject, checks: Sequence[Check], answers: Sequence[tuple[float, Tensor]]
) -> AgreementRecord:
    """Return the distance of answers (metric, logits) from the checks."""
    pairs = [(check, *answer) for check, answer in zip(checks, answers, strict=True)]
    metric = [abs(check.score - score) for check, score, _ in pairs]
    differing = [
        int((check.logits.argmax(1) != found.argmax(1)).sum()) for check, _, found in pairs
    ]
    return AgreementRecord(
        masks=len(pairs),
        largest_logit_difference=max(
            float((check.logits - found).abs().max()) for check, _, found in pairs
        ),
        logit_spread=fmean(float(check.logits.std(0).mean()) for check in checks),
        disagreements=sum(differing),
        predictions=len(pairs) * len(subject.rows),
        largest_metric_difference=max(metric),
        mean_metric_difference=fmean(metric),
    )
