"""The names of a run's stages; its records, weights and series of numbers are named by them."""

from __future__ import annotations

import re

_LAYER, _TUNING = "layer-", "tuning-"
_MOST_DIGITS = 6  # of a name that a person may have made
ANSWERS = "answers"  # what the unpruned model answers to texts without labels
RATE = "rate"  # the learning rate of the tunings
PLAN = "plan"  # a ranking's plan
STEP = "step"  # a size on the way to the target: a ranking's plan, and the tuning after it
TIMING = "timing"  # the share of the model's time that a head takes
PRIOR = "prior"  # the plan that the searches begin from
BUDGET = "budget"  # the plan with a given number of heads, from all masks that were scored
REWIND = "rewind"  # the pretrained model without the plan's heads, after the first tuning
LAST = "last"  # the last tuning


def layer_stage(layer: int) -> str:
    """Return the stage that decides a layer, tunes after it, or both."""
    return f"{_LAYER}{layer:02}"


def tuning_stage(layer: int) -> str:
    """Return the stage that tunes after a layer if all layers were decided before."""
    return f"{_TUNING}{layer:02}"


def fold_model_stage(fold: int) -> str:
    """Return the stage that makes the fold model of a fold."""
    return f"scout-{fold}"  # the name is part of the format of run folders


def size_stage(stage: str, share: float) -> str:
    """Return the stage of a share: its plan (`PLAN`), a `STEP` there or the `LAST` tuning."""
    return f"{stage}-{share:g}"


def is_of(stage: str, *kinds: str) -> bool:
    """Return whether a stage is `PLAN`, `LAST` ..., of the run or of one of its target sizes."""
    return any(stage == kind or stage.startswith(f"{kind}-") for kind in kinds)


def is_layer_stage(stage: str) -> bool:
    """Return whether a name has the form of a `layer_stage`."""
    return stage.startswith(_LAYER)


def layer_of(stage: str) -> int | None:
    """Return the layer of a `layer_stage`, None for other names."""
    return _number_after(_LAYER, stage)


def tuned_layer_of(stage: str) -> int | None:
    """Return the layer after which a stage may tune, None if there is none."""
    layer = _number_after(_TUNING, stage)
    return layer_of(stage) if layer is None else layer


def tuning_series(stage: str, fold: int | None = None) -> str:
    """Return the prefix of the numbers that a stage's tuning reports.

    For the tuning of a fold model, `fold` is given. After a layer the name is the same whether the
    tuning is part of the layer's stage or has a stage of its own.
    """
    layer = tuned_layer_of(stage)
    name = f"{stage if layer is None else layer_stage(layer)}/tuning"
    return name if fold is None else f"{fold_model_stage(fold)}/{name}"


def _number_after(prefix: str, stage: str) -> int | None:
    found = re.fullmatch(rf"{prefix}([0-9]{{1,{_MOST_DIGITS}}})", stage)
    return int(found[1]) if found else None
