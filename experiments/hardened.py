"""Tuning with heads missing at random, so that a model's scores under masks foretell what it could do after tuning without the heads.

It is what one-shot architecture search does: one model learns to serve for all its parts, and the parts are compared by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from auber.encoders import encoder_of


@contextmanager
def heads_missing(model: Any, most: float) -> Iterator[None]:
    """While it is tuned, each row misses each head by chance, in every layer at a rate of its own between 0 and `most`."""
    encoder = encoder_of(model)

    def drop(output: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (context,) = arguments  # (rows, tokens, present_heads * head_dim)
        if not output.training:
            return arguments
        by_head = context.view(*context.shape[:-1], -1, encoder.head_dim)
        rows, heads = len(by_head), by_head.shape[-2]
        rates = most * torch.rand(rows, 1, device=context.device)
        kept = (torch.rand(rows, heads, device=context.device) >= rates).to(context.dtype)
        return ((by_head * kept[:, None, :, None]).flatten(-2),)

    handles = [
        encoder.parts(layer).output.register_forward_pre_hook(drop) for layer in range(encoder.num_layers) if most
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
