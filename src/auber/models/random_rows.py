"""Random rows, to compare two forms of a model or to time one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auber.models.encoders.base import Encoder


def random_rows(
    encoder: Encoder,
    inputs: Sequence[str],
    *,
    rows: int,
    length: int,
    padded: bool = False,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Return a batch of inputs (rows, length); padded rows have 1 to `length` tokens."""
    generator = torch.Generator().manual_seed(seed)
    config = encoder.model.config
    pad = config.pad_token_id or 0
    drawn = torch.randint(0, config.vocab_size - 1, (rows, length), generator=generator)
    lengths = torch.tensor([[length]])
    if padded:
        lengths = torch.randint(1, length + 1, (rows, 1), generator=generator)
    is_token = (torch.arange(length) < lengths).expand(rows, length)
    tokens = drawn + (drawn >= pad)  # every token except padding
    batch = {
        "input_ids": tokens.where(is_token, torch.tensor(pad)),
        "attention_mask": is_token.long(),
    }
    if "token_type_ids" in inputs:
        types = torch.randint(0, config.type_vocab_size, (rows, length), generator=generator)
        batch["token_type_ids"] = types * is_token
    return batch
