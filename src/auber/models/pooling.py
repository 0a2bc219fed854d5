"""The pooling of a sentence encoder: how the hidden states of a row become one vector.

It is no part of the transformers model but of what follows it in sentence-transformers, so it is
attached to the live model; `models.sentence_files` reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ATTRIBUTE = "auber_modules"  # of a live model


class Pooling(NamedTuple):
    """How the hidden states of a row become one vector."""

    mode: Literal["mean", "cls", "max"] = "mean"
    is_normalized: bool = True

    def pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the vectors (rows, hidden) of a padded batch (rows, length, hidden)."""
        hidden = hidden.float()
        if self.mode == "cls":
            pooled = hidden[:, 0]
        elif self.mode == "max":
            pooled = hidden.masked_fill(mask[..., None] == 0, -torch.inf).amax(1)
        else:
            weights = mask[..., None].to(hidden.dtype)
            pooled = (hidden * weights).sum(1) / weights.sum(1)
        return self.normalize(pooled)

    def normalize(self, pooled: Tensor) -> Tensor:
        """Return vectors (rows, hidden) of length 1, if the model normalises."""
        return F.normalize(pooled, dim=-1) if self.is_normalized else pooled


class Modules(NamedTuple):
    """What follows an encoder, and the settings beside it: the text of each file by name."""

    pooling: Pooling
    settings: Mapping[str, str]


def modules_of(model: PreTrainedModel) -> Modules | None:
    """Return the modules attached to a live model."""
    modules: Modules | None = getattr(model, _ATTRIBUTE, None)
    return modules


def attach_modules(model: PreTrainedModel, modules: Modules | None) -> None:
    """Make a live encoder a sentence encoder; without modules, leave it as it is."""
    if modules is not None:
        setattr(model, _ATTRIBUTE, modules)


def pooling_of(model: Any) -> Pooling:
    """Return the pooling of a live encoder."""
    modules = modules_of(model)
    return Pooling() if modules is None else modules.pooling
