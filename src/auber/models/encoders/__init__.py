"""The encoder families that can be pruned.

To add one: write a file with a subclass of `Encoder` and name the class in `FAMILIES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from auber.errors import ModelError
from auber.models.encoders.base import (
    INTERMEDIATE_SIZES,
    REMOVED_HEADS,
    REMOVED_NEURONS,
    Encoder,
)
from auber.models.encoders.bert import Bert, Electra, Roberta
from auber.models.encoders.deberta import DebertaV2
from auber.models.encoders.distilbert import DistilBert
from auber.models.encoders.modernbert import ModernBert
from auber.models.encoders.mpnet import MPNet

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "FAMILIES",
    "INTERMEDIATE_SIZES",
    "REMOVED_HEADS",
    "REMOVED_NEURONS",
    "Encoder",
    "encoder_of",
    "family_of",
]

FAMILIES: dict[str, type[Encoder]] = {
    adapter.family: adapter
    for adapter in (Bert, DebertaV2, DistilBert, Electra, ModernBert, MPNet, Roberta)
}

_CANNOT_BE_PRUNED = {
    "albert": "it shares one layer's weights over all layers, so nothing can be removed from one "
    "of them",
}


def family_of(model_type: object) -> type[Encoder]:
    """Return the adapter class for a `config.model_type`."""
    for adapter in FAMILIES.values():
        if model_type in adapter.model_types:
            return adapter
    reason = f" ({why})" if (why := _CANNOT_BE_PRUNED.get(str(model_type))) else ""
    supported = sorted(name for adapter in FAMILIES.values() for name in adapter.model_types)
    raise ModelError(
        f"A model of type '{model_type}' cannot be pruned{reason}; "
        f"use one of: {', '.join(supported)}"
    )


def encoder_of(model: PreTrainedModel) -> Encoder:
    """Return the adapter around a live model."""
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type is None or not hasattr(model, "base_model"):
        raise ModelError(
            f"A transformers model is needed, found {type(model).__name__}; unwrap it first"
        )
    return family_of(model_type)(model)
