"""Voita's gates asked of rows that the models never saw: one set of gates for all scouts, each of which has the rows of its fold.

The gates of method voita learn on rows that the model was tuned on, where a head that has learned them by heart seems useful. Here
every row's loss is that of the scout that never saw it. Scouts are too sure of such rows, and closing a head would gain by making them less so; so
each scout's outputs have a scale and biases of their own, which begin where they fit best and learn along.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from auber.methods.voita import HardConcrete, Trial, search_penalty
from auber.plan import PruningPlan
from auber.surgery import gated_heads
from auber.tasks.encoding import EncodedRows, part_batch
from auber.tuning.batches import LengthGroups, RowCollator
from experiments.subject import Subject, calibration

_START_LOCATION = 2.0  # all gates begin open, as in the method
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
    sizes = [len(present) for present in heads.values()]
    chosen = search_penalty(
        lambda penalty: train_gates(subject, asked, list(heads), sizes, penalty),
        num_removed,
        sum(sizes),
        subject.config.voita.trials,
    )
    locations = iter(chosen.locations)
    scores = {layer: {head: next(locations) for head in present} for layer, present in heads.items()}
    return remove_lowest(scores, num_removed)


def _ask(subject: Subject, scout: Any, rows: EncodedRows) -> Asked:
    model = copy.deepcopy(scout).to(subject.hardware.device).eval().requires_grad_(False)
    fit = calibration(predict(model, rows), rows.labels.to(subject.hardware.device))
    return Asked(model, rows, fit.float())


def train_gates(
    subject: Subject, asked: Sequence[Asked], layers: Sequence[int], sizes: Sequence[int], penalty: float
) -> Trial:
    """The gates of all layers after their epochs, one batch of each scout in turn."""
    settings, device, seed = subject.config.voita, subject.hardware.device, subject.config.seed
    law = HardConcrete(settings.temperature, settings.stretch)
    location = torch.full((sum(sizes),), _START_LOCATION, device=device, requires_grad=True)  # (gates,)
    fits = [each.fit.clone().requires_grad_() for each in asked]
    optimizer = torch.optim.Adam(
        [{"params": [location], "lr": settings.learning_rate}, {"params": fits, "lr": _CALIBRATION_RATE}]
    )
    generator = torch.Generator().manual_seed(seeds.derive(seed, "voita/gates"))
    orders = [
        LengthGroups(each.rows.lengths, settings.batch_size, seeds.derive(seed, "voita/rows", fold))
        for fold, each in enumerate(asked)
    ]
    collators = [RowCollator(each.rows) for each in asked]
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=subject.hardware.precision == "bfloat16")
    losses: list[Tensor] = []
    for epoch in range(settings.epochs):
        losses.clear()
        for turn in zip_longest(*(_batches(order, epoch, settings.batch_size) for order in orders)):
            for each, fit, collate, numbers in zip(asked, fits, collators, turn, strict=True):
                if numbers is None:
                    continue
                batch = {name: tensor.to(device) for name, tensor in collate(numbers).items()}
                inputs, targets = part_batch(batch)
                uniform = torch.rand(len(numbers), len(location), generator=generator).to(device)
                gates = torch.split_with_sizes(law.draw(location, uniform), list(sizes), dim=1)
                with gated_heads(each.model, dict(zip(layers, gates, strict=True))), autocast:
                    logits = each.model(**inputs).logits
                outputs = logits.float() * fit[0] + fit[1:]
                task_losses = torch.nn.functional.cross_entropy(outputs, targets["labels"], reduction="none")
                loss = task_losses.mean() + penalty * law.open_probability(location).sum()
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(task_losses.detach())
    found = location.detach().cpu()
    return Trial(
        penalty=penalty,
        closed=int((law.value(found) == 0).sum()),
        expected_open=float(law.open_probability(found).sum()),
        loss=float(torch.cat(losses).mean()) if losses else math.nan,
        locations=tuple(found.tolist()),
    )


def _batches(order: LengthGroups, epoch: int, size: int) -> list[list[int]]:
    order.set_epoch(epoch)
    numbers = list(order)
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
