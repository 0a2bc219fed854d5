"""Random rows to compare two forms of a model on, or to time one with: any token may stand anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from auber.export.source import Source, in_float32
from auber.models.random_rows import random_rows

# (rows, length, padded): one token, one row, one padded row, uneven batches, and longer than what a graph is traced with
_CHECKED = (
    (1, 1, False),
    (1, 9, False),
    (1, 16, True),
    (2, 1, False),
    (3, 32, True),
    (5, 128, True),
    (4, 128, False),
)
CHECKED_ROWS = sum(rows for rows, _, _ in _CHECKED)

Compute = Callable[[dict[str, Tensor]], Any]  # from a batch to an output such as the model's own


@torch.inference_mode()
def largest_difference(source: Source, compute: Compute) -> float:
    """The largest difference of a logit between the model in float32 and another form of it; at padding nobody reads them."""
    model, outputs, longest = in_float32(source.model), source.outputs, source.encoder.num_positions
    found = []
    for seed, (rows, length, padded) in enumerate(_CHECKED):
        batch = random_rows(
            source.encoder,
            source.inputs,
            rows=rows,
            length=min(length, longest),
            padded=padded,
            seed=seed,
        )
        own, other = (
            outputs.pack(outputs.logits(output), batch["attention_mask"])
            for output in (model(**batch), compute(batch))
        )
        found.append((own - other).abs().max())
    return float(torch.stack(found).max())  # torch's maximum hands a NaN on, Python's may lose it
