"""What a forward pass must multiply, counted from the widths of the layers.

Counted are the matrix products: all layers, and what else is projected or convolved, for every token; attention for every
pair of tokens, with relative positions where content attends to them; and what stands behind the layers for one token where
a classifier reads the first or the mean, for every token where it answers token by token. A window saves nothing here: most
implementations compute what they mask. Norms, activations, softmax and table look-ups are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from auber.models.encoders import encoder_of
from auber.models.encoders.attention import Attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BEHIND_THE_LAYERS = ("pooler", "pre_classifier", "head", "classifier")


def count_parameters(model: PreTrainedModel) -> int:
    """All weights of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_multiply_adds(model: PreTrainedModel, length: int) -> int:
    """The multiply-adds of one row of so many tokens, alone in its batch."""
    encoder = encoder_of(model)
    a_token = a_row = 0
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Conv1d)):
            is_behind = any(part in _BEHIND_THE_LAYERS for part in name.split("."))
            if is_behind and not encoder.kind.reads_all:
                a_row += module.weight.numel()
            else:
                a_token += module.weight.numel()
    widths = sum(encoder.parts(layer).output.in_features for layer in range(encoder.num_layers))
    positions = sum(_position_features(attention) for attention in encoder.attentions(length))
    # Positions are projected once, from the hidden size, then met by every token. Attention is scores and mixing.
    return (
        a_row
        + length * a_token
        + (encoder.hidden_size + length) * positions
        + 2 * widths * length**2
    )


def _position_features(attention: Attention) -> int:
    """Numbers in the projected relative positions of a layer."""
    if attention.disentangled is None:
        return 0
    tables = (attention.disentangled.position_keys, attention.disentangled.position_queries)
    return sum(table.numel() for table in tables if table is not None)
