"""What the stages of a run are called; a stage's record and weights go by its name."""

from __future__ import annotations

_LAYER, _TUNING = "layer-", "tuning-"
REWIND = "rewind"  # the plan carried out on the model before any tuning, and that tuned as a start


def layer_stage(layer: int) -> str:
    """The stage that decides a layer, is tuned after it, or both."""
    return f"{_LAYER}{layer:02}"


def tuning_stage(layer: int) -> str:
    """The stage that is tuned after a layer where all layers were decided before."""
    return f"{_TUNING}{layer:02}"


def layer_of(stage: str) -> int | None:
    """The layer of a `layer_stage`, None of any other."""
    return int(stage.removeprefix(_LAYER)) if stage.startswith(_LAYER) else None


def tuned_layer_of(stage: str) -> int | None:
    """The layer after which a stage may have tuned, None where there is none."""
    return int(stage.removeprefix(_TUNING)) if stage.startswith(_TUNING) else layer_of(stage)
