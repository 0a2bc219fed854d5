"""What the stages of a run are called; a stage's record, weights and series of numbers go by its name."""

from __future__ import annotations

_LAYER, _TUNING = "layer-", "tuning-"
_MOST_DIGITS = 6  # of a name that a person may have made
PLAN = "plan"  # the heads of a method that names all of them at once
TIMING = "timing"  # how much of the model's time goes with a head
PRIOR = "prior"  # the plan that the searches begin from
BUDGET = "budget"  # the plan of a given size, out of all masks that were scored
REWIND = "rewind"  # the plan carried out on the model before any tuning, and that tuned as a start
_SERIES = "/tuning"


def layer_stage(layer: int) -> str:
    """The stage that decides a layer, is tuned after it, or both."""
    return f"{_LAYER}{layer:02}"


def tuning_stage(layer: int) -> str:
    """The stage that is tuned after a layer where all layers were decided before."""
    return f"{_TUNING}{layer:02}"


def scout_stage(fold: int) -> str:
    """The stage that makes the scout of a fold."""
    return f"scout-{fold}"


def is_layer_stage(stage: str) -> bool:
    """Whether a name says that it is a `layer_stage`; `layer_of` knows which, if any."""
    return stage.startswith(_LAYER)


def layer_of(stage: str) -> int | None:
    """The layer of a `layer_stage`, None of any other."""
    return _number_after(_LAYER, stage)


def tuned_layer_of(stage: str) -> int | None:
    """The layer after which a stage may have tuned, None where there is none."""
    layer = _number_after(_TUNING, stage)
    return layer_of(stage) if layer is None else layer


def tuning_series(stage: str, scout: int | None = None) -> str:
    """What the numbers of the tuning in a stage are called, each behind a further `/`; `scout` is the fold of one that is tuned.

    After a layer the name is the same whether the tuning is a part of the layer's stage or a stage of its own.
    """
    layer = tuned_layer_of(stage)
    name = f"{stage if layer is None else layer_stage(layer)}{_SERIES}"
    return name if scout is None else f"{scout_stage(scout)}/{name}"


def is_tuning_series(name: str, stage: str) -> bool:
    """Whether numbers of this name are of a tuning in a stage; in that of a scout there are several."""
    return name == tuning_series(stage) or (name.startswith(f"{stage}/") and name.endswith(_SERIES))


def _number_after(prefix: str, stage: str) -> int | None:
    digits = stage.removeprefix(prefix)
    known = (
        stage.startswith(prefix)
        and digits.isascii()
        and digits.isdigit()
        and len(digits) <= _MOST_DIGITS
    )
    return int(digits) if known else None
