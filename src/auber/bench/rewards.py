"""Rewards three ways side by side: plain float32, plain in the scorer's precision, and the scorer.

The plain ways cost the same for every layer, so they are timed once, on masks of several layers; the scorer is then asked
for the same masks, and what it answers is compared. Every timed reward has a mask of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

import numpy as np
import torch
from torch import Tensor

from auber.bench.arithmetic import Work
from auber.bench.catalogue import Limits
from auber.bench.clock import each_seconds, timed
from auber.bench.plain import PlainScorer
from auber.bench.record import AgreementRecord, LayerRecord, PlainRecord, RewardsRecord, TotalRecord
from auber.bench.subjects import Subject
from auber.models.plan import PruningPlan
from auber.scoring import LayerScorer
from auber.system import seeds
from auber.system.progress import Progress

_PLAIN_BATCH = 32
_SORTED_BATCH = {"cuda": 256}  # elsewhere as the plain batch
_MOST_AT_ONCE = 64


@dataclass(frozen=True)
class _Check:
    """A mask scored plainly in float32, to compare others with."""

    layer: int
    removed: tuple[int, ...]
    score: float
    logits: Tensor  # (rows, labels)

    @property
    def plan(self) -> PruningPlan:
        return PruningPlan({self.layer: self.removed})


@dataclass(frozen=True)
class ScorerTimes:
    """Seconds of one layer's scorer."""

    prepare: float  # from nothing to the first reward
    reward: float  # the median of those after it


def compare_rewards(
    subject: Subject,
    layers: Sequence[int],
    flops_per_second: float,
    limits: Limits,
    progress: Progress,
) -> RewardsRecord:
    """Time the three ways and compare what they answer."""
    work = Work.of(subject.encoder, subject.rows.lengths)
    progress.plan(2 + len(layers))
    checks, plain = _time_float32(subject, layers, limits, progress)
    low_precision, low_agreement = _time_low_precision(subject, checks, limits, progress)
    layer_records, answers = [], []
    for layer in layers:
        progress.begin(f"layer {layer}: rewards", limits.repeats)
        scorer, times = time_scorer(subject, layer, limits, progress)
        floor = 1000 * work.reward_flops(layer) / flops_per_second
        layer_records.append(
            _layer_record(
                layer,
                times,
                _time_many(subject, scorer, times.reward, limits),
                plain,
                low_precision,
                floor,
            )
        )
        answers += [
            _answer(subject, scorer, check.removed) for check in checks if check.layer == layer
        ]
        del scorer  # its memory is the next one's
        progress.end()
    # The answers came layer by layer, the checks were made in ascending order of layers.
    return RewardsRecord(
        plain,
        low_precision,
        tuple(layer_records),
        _total(layer_records, plain, low_precision),
        low_agreement,
        _compare(subject, checks, answers),
    )


def random_masks(heads: Sequence[int], count: int, seed: int, layer: int) -> list[tuple[int, ...]]:
    """Masks of a layer as a search meets them: any number of heads may be gone, but one stays."""
    random = seeds.generator(seed, "bench masks", layer)
    masks = []
    for _ in range(count):
        number = int(random.integers(1, len(heads))) if len(heads) > 1 else 0
        chosen = random.choice(heads, number, replace=False)  # nosec B311 # a sample, no secret
        masks.append(tuple(int(head) for head in np.sort(chosen)))
    return masks


def _time_float32(
    subject: Subject, layers: Sequence[int], limits: Limits, progress: Progress
) -> tuple[list[_Check], PlainRecord]:
    scorer = PlainScorer(
        subject.model,
        subject.rows,
        subject.task.metric,
        dtype=torch.float32,
        batch_size=_PLAIN_BATCH,
        padded_to=subject.config.max_length,
    )
    checks: list[_Check] = []

    def score(layer: int, removed: tuple[int, ...]) -> None:
        value = scorer.score(PruningPlan({layer: removed}))
        assert scorer.logits is not None
        checks.append(_Check(layer, removed, value, scorer.logits))
        progress.step(len(checks))

    # From the lowest layer upwards, spread over all, so that a single pass checks the layer with most above it.
    places = [
        round(index * (len(layers) - 1) / max(1, limits.repeats - 1))
        for index in range(limits.repeats)
    ]
    calls = []
    for number, place in enumerate(places):
        layer = layers[place]
        masks = random_masks(
            subject.encoder.present(layer), limits.repeats, subject.config.seed, layer
        )
        calls.append(partial(score, layer, masks[number]))
    progress.begin("plain float32", limits.repeats)
    scorer.warm_up()
    times = each_seconds(calls, subject.hardware.device, limits.seconds)
    progress.end()
    padding = f"every row to {subject.config.max_length}"
    return checks, _plain_record("float32", _PLAIN_BATCH, padding, times)


def _time_low_precision(
    subject: Subject, checks: Sequence[_Check], limits: Limits, progress: Progress
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
    times: list[float] = []
    answers: list[tuple[float, Tensor]] = []
    # Every checked mask is scored, whatever it takes; further repeats stop at the limit.
    for number in range(limits.repeats):
        if number >= len(checks) and sum(times) >= limits.seconds:
            break
        check = checks[number % len(checks)]
        value, taken = timed(partial(scorer.score, check.plan), hardware.device)
        times.append(taken)
        if number < len(checks):
            assert scorer.logits is not None
            answers.append((value, scorer.logits))
        progress.step(number + 1)
    progress.end()
    record = _plain_record(
        hardware.precision, batch_size, "sorted by length, to the longest of a batch", times
    )
    return record, _compare(subject, checks, answers)


def _plain_record(precision: str, batch_size: int, padding: str, times: list[float]) -> PlainRecord:
    middle = median(times)
    return PlainRecord(precision, batch_size, padding, 1000 * middle, len(times), 1 / middle)


def time_scorer(
    subject: Subject, layer: int, limits: Limits, progress: Progress
) -> tuple[LayerScorer, ScorerTimes]:
    """A scorer of a layer, with what it took."""
    device = subject.hardware.device
    masks = random_masks(subject.encoder.present(layer), limits.repeats, subject.config.seed, layer)

    def first_reward() -> LayerScorer:
        scorer = LayerScorer(
            subject.model, layer, subject.rows, subject.task.metric, subject.hardware
        )
        scorer.score(masks[0])
        return scorer

    scorer, prepare_seconds = timed(first_reward, device)
    scorer.score(masks[-1])

    def reward(number: int) -> None:
        scorer.score(masks[number])
        progress.step(number + 1)

    calls = [partial(reward, number) for number in range(limits.repeats)]
    return scorer, ScorerTimes(prepare_seconds, median(each_seconds(calls, device, limits.seconds)))


def _time_many(
    subject: Subject, scorer: LayerScorer, single: float, limits: Limits
) -> tuple[int, float]:
    """How many masks were scored at once, and the seconds a reward then took."""
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
    """The scorer's metric and its logits in the order of the rows."""
    found = scorer.logits(removed)  # (rows, labels), longest row first
    order = torch.tensor(
        sorted(range(len(subject.rows)), key=lambda row: -subject.rows.lengths[row])
    )
    logits = torch.empty_like(found)
    logits[order.to(found.device)] = found
    return scorer.score(removed), logits


def _layer_record(
    layer: int,
    times: ScorerTimes,
    many: tuple[int, float],
    plain: PlainRecord,
    low_precision: PlainRecord,
    floor_milliseconds: float,
) -> LayerRecord:
    milliseconds = 1000 * times.reward
    return LayerRecord(
        layer=layer,
        prepare_seconds=times.prepare,
        milliseconds=milliseconds,
        rewards_per_second=1000 / milliseconds,
        many=many[0],
        many_milliseconds=1000 * many[1],
        ratio=plain.milliseconds / milliseconds,
        low_precision_ratio=low_precision.milliseconds / milliseconds,
        floor_milliseconds=floor_milliseconds,
        floor_share=floor_milliseconds / milliseconds,
    )


def _total(
    records: Sequence[LayerRecord], plain: PlainRecord, low_precision: PlainRecord
) -> TotalRecord:
    """Every layer counts by its time, so the ratios are those of summed times."""
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
    subject: Subject, checks: Sequence[_Check], answers: Sequence[tuple[float, Tensor]]
) -> AgreementRecord:
    """How far answers (metric, logits) are from the plain ones to the same masks."""
    pairs = list(zip(checks, answers, strict=True))
    differences = [abs(check.score - score) for check, (score, _) in pairs]
    differing = 0
    if not subject.rows.is_regression:
        differing = sum(
            int((check.logits.argmax(1) != logits.argmax(1)).sum()) for check, (_, logits) in pairs
        )
    return AgreementRecord(
        masks=len(pairs),
        largest_logit_difference=max(
            float((check.logits - logits).abs().max()) for check, (_, logits) in pairs
        ),
        logit_spread=fmean(float(check.logits.std(0).mean()) for check in checks),
        disagreements=differing,
        predictions=len(pairs) * len(subject.rows),
        largest_metric_difference=max(differences),
        mean_metric_difference=fmean(differences),
    )
