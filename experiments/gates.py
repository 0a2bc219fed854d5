"""Voita's gates asked of rows that the models never saw: one set of gates for all scouts, each of which has the rows of its fold.

The gates of method voita learn on rows that the model was tuned on, where a head that has learned them by heart seems useful. Here
every row's loss is that of the scout that never saw it. Scouts are too sure of such rows, and closing a head would gain by making them less so; so
each scout's outputs have a scale and biases of their own, which begin where they fit best and learn along.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auber import seeds
from auber.encoders import encoder_of
from auber.evaluation import predict
from auber.methods.passes import present_heads
from auber.methods.ranking import remove_lowest
from auber.methods.voita import Trial, learn_gates, search_penalty
from auber.plan import PruningPlan
from auber.surgery import gated_heads
from auber.tasks.encoding import EncodedRows, part_batch
from auber.tuning.batches import LengthGroups, RowCollator
from experiments.subject import Subject, calibration

_CALIBRATION_RATE = 0.01


@dataclass(frozen=True, eq=False)
class Asked:
    """A model that cannot learn, and rows it never saw."""

    model: Any
    rows: EncodedRows
    fit: Tensor  # (1 + classes,): the scale and biases under which its outputs fit the rows best


def crossed_gates(subject: Subject, scouts: Sequence[Any], folds: np.ndarray, num_removed: int) -> PruningPlan:
    """The plan of so many heads whose gates are lowest, by scouts and the fold of each row, (rows,)."""
    asked = [
        _ask(subject, scout, subject.rows.select(np.flatnonzero(folds == fold).tolist()))
        for fold, scout in enumerate(scouts)
    ]
    heads = present_heads(encoder_of(scouts[0]))
    chosen = search_penalty(
        lambda penalty: train_gates(subject, asked, heads, penalty),
        num_removed,
        sum(map(len, heads.values())),
        subject.config.voita.trials,
    )
    locations = iter(chosen.locations)
    scores = {layer: {head: next(locations) for head in present} for layer, present in heads.items()}
    return remove_lowest(scores, num_removed)


def _ask(subject: Subject, scout: Any, rows: EncodedRows) -> Asked:
    model = copy.deepcopy(scout).to(subject.hardware.device).eval().requires_grad_(False)
    fit = calibration(predict(model, rows), rows.labels.to(subject.hardware.device))
    return Asked(model, rows, fit.float())


def train_gates(subject: Subject, asked: Sequence[Asked], heads: dict[int, tuple[int, ...]], penalty: float) -> Trial:
    """The gates of all layers after their epochs, one batch of each scout in turn."""
    device, size = subject.hardware.device, subject.config.voita.batch_size
    sizes = [len(present) for present in heads.values()]
    fits = [each.fit.clone().requires_grad_() for each in asked]
    collators = [RowCollator(each.rows) for each in asked]
    orders = [
        LengthGroups(each.rows.lengths, size, seeds.derive(subject.config.seed, "voita/rows", fold))
        for fold, each in enumerate(asked)
    ]
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=subject.hardware.precision == "bfloat16")

    def ask(fold: int, numbers: list[int], gates: Tensor) -> Tensor:
        inputs, targets = part_batch({name: tensor.to(device) for name, tensor in collators[fold](numbers).items()})
        by_layer = torch.split_with_sizes(gates, sizes, dim=1)
        with gated_heads(asked[fold].model, dict(zip(heads, by_layer, strict=True))), autocast:
            logits = asked[fold].model(**inputs).logits
        outputs = logits.float() * fits[fold][0] + fits[fold][1:]
        return torch.nn.functional.cross_entropy(outputs, targets["labels"], reduction="none")

    def batches(epoch: int) -> Iterator[tuple[int, Callable[[Tensor], Tensor]]]:
        for turn in zip_longest(*(_batches(order, epoch, size) for order in orders)):
            for fold, numbers in enumerate(turn):
                if numbers is not None:
                    yield len(numbers), partial(ask, fold, numbers)

    beside = [{"params": fits, "lr": _CALIBRATION_RATE}]
    return learn_gates(sum(sizes), penalty, batches, subject.config, device, beside=beside)


def _batches(order: LengthGroups, epoch: int, size: int) -> list[list[int]]:
    order.set_epoch(epoch)
    numbers = list(order)
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
