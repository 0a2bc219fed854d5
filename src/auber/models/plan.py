"""A pruning plan: the attention heads and the feed-forward neurons to remove from each layer.

Layers, heads and neurons are counted from 0 and always refer to the unpruned model, so that a plan
keeps its meaning after some of its units are gone. A plan is an immutable, ordered value; two plans
are equal if they remove the same units.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from auber.errors import PlanError
from auber.system.records import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Python refuses to parse integers of thousands of digits, and a range of them would fill the memory
_LAYER_KEY = re.compile("[0-9]{1,9}")
_SPAN = re.compile("([0-9]{1,7})(?:-([0-9]{1,7}))?")
MOST_NEURONS = 2**22  # in one plan; the largest encoders have a tenth of it

UnitsByLayer = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class Cost:
    """What remains of an unpruned model, as shares of 1."""

    multiply_adds: float  # of the encoder's layers
    parameters: float  # of the whole model, with embeddings and classifier


class PruningPlan:
    """The units to remove, by layer: `PruningPlan(heads={0: [3, 5]}, neurons={2: range(64)})`.

    Layers without units to remove are left out of `heads` and `neurons`.
    """

    __slots__ = ("heads", "neurons")

    heads: UnitsByLayer
    neurons: UnitsByLayer

    def __init__(
        self,
        heads: Mapping[int, Iterable[int]] | None = None,
        neurons: Mapping[int, Iterable[int]] | None = None,
    ) -> None:
        object.__setattr__(self, "heads", _checked("head", heads))
        object.__setattr__(self, "neurons", _checked("neuron", neurons))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a plan cannot be changed ({name}); make a new one")

    def __reduce__(self) -> tuple[Any, ...]:
        return PruningPlan, (dict(self.heads), dict(self.neurons))

    def __bool__(self) -> bool:
        return bool(self.heads or self.neurons)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PruningPlan):
            return NotImplemented
        return self.heads == other.heads and self.neurons == other.neurons

    def __hash__(self) -> int:
        return hash((tuple(self.heads.items()), tuple(self.neurons.items())))

    def __repr__(self) -> str:
        given = [
            f"{name}={dict(zip(units, map(list, units.values()), strict=True))}"
            for name, units in (("heads", self.heads), ("neurons", self.neurons))
            if units
        ]
        return f"PruningPlan({', '.join(given)})"

    def __or__(self, other: PruningPlan) -> PruningPlan:
        """Return the plan that removes the units of both."""
        pairs = (self.heads, other.heads), (self.neurons, other.neurons)
        return PruningPlan(*(
            {layer: {*mine.get(layer, ()), *more.get(layer, ())} for layer in {*mine, *more}}
            for mine, more in pairs
        ))  # fmt: skip

    def __sub__(self, other: PruningPlan) -> PruningPlan:
        """Return the plan without the units of another."""
        pairs = (self.heads, other.heads), (self.neurons, other.neurons)
        return PruningPlan(*(
            {layer: _without(units, less.get(layer, ())) for layer, units in mine.items()}
            for mine, less in pairs
        ))  # fmt: skip

    @classmethod
    def of(cls, plan: PruningPlan | Mapping[int, Iterable[int]]) -> PruningPlan:
        """Return a plan; a mapping from layers to heads is read as one."""
        return plan if isinstance(plan, PruningPlan) else cls(plan)

    @property
    def num_heads(self) -> int:
        """The number of heads to remove, over all layers."""
        return sum(map(len, self.heads.values()))

    @property
    def num_neurons(self) -> int:
        """The number of neurons to remove, over all layers."""
        return sum(map(len, self.neurons.values()))

    def cost(self, model: PreTrainedModel, length: int = 128) -> Cost:
        """Return the shares of multiply-adds and parameters that remain of a model.

        `model` may be pruned or not: the shares refer to the unpruned one. Multiply-adds are those
        of the encoder's layers for rows of `length` tokens.
        """
        from auber.models.costs import remaining_cost

        return remaining_cost(model, self, length)

    def check(
        self,
        num_layers: int,
        num_heads: int,
        num_neurons: int,
        *,
        allow_empty_layers: bool = False,
    ) -> None:
        """Raise `PlanError` unless the plan fits a model with these sizes."""
        for unit, by_layer, total in (
            ("head", self.heads, num_heads),
            ("neuron", self.neurons, num_neurons),
        ):
            for layer, units in by_layer.items():
                if layer >= num_layers:
                    raise PlanError(
                        f"layer {layer}: the model has layers 0 to {num_layers - 1}; correct the "
                        "plan"
                    )
                if units[-1] >= total:
                    raise PlanError(
                        f"layer {layer}: its {unit}s are numbered 0 to {total - 1}, the plan "
                        f"removes {unit} {units[-1]}; correct the plan"
                    )
                if len(units) == total and not allow_empty_layers:
                    raise PlanError(
                        f"layer {layer}: the plan removes all {total} {unit}s; at least one must "
                        "stay"
                    )

    def to_json(self) -> dict[str, Any]:
        """Return a plain JSON object; neurons as text such as "0-63,70", which stays short."""
        return {"heads": heads_to_json(self.heads), "neurons": neurons_to_json(self.neurons)}

    def identity(self) -> dict[str, Any]:
        """Return what stands for the plan in digests: the heads alone if no neuron is removed.

        Digests from before neurons could be removed keep their meaning.
        """
        return self.to_json() if self.neurons else heads_to_json(self.heads)

    @classmethod
    def from_json(cls, data: Any, where: str = "plan") -> PruningPlan:
        """Return the plan in JSON data; a `PlanError` names `where`.

        Either `{"heads": {...}, "neurons": {...}}`, with neurons as lists or text, or the older
        form with heads alone: `{"0": [3, 5]}`.
        """
        if not isinstance(data, dict):
            raise PlanError(
                f'{where}: a plan is an object such as {{"heads": {{"0": [3, 5]}}}}, found '
                f"{type(data).__name__}"
            )
        if data.keys() <= {"heads", "neurons"}:
            heads, neurons = data.get("heads", {}), data.get("neurons", {})
        else:
            heads, neurons = data, {}
        return cls(_parse("head", heads, where), _parse("neuron", neurons, where))

    @classmethod
    def read(cls, path: str | Path) -> PruningPlan:
        """Return the plan in a JSON file."""
        data = read_json(path, 'write JSON such as {"heads": {"0": [3, 5]}}', error=PlanError)
        return cls.from_json(data, where=str(path))


def kept_units(total: int, removed: Iterable[int]) -> tuple[int, ...]:
    """Return the units of a layer that stay, in order."""
    return _without(range(total), removed)


def heads_to_json(heads: UnitsByLayer) -> dict[str, list[int]]:
    """Return lists of heads, with layer numbers as strings."""
    return {str(layer): list(units) for layer, units in heads.items()}


def neurons_to_json(neurons: UnitsByLayer) -> dict[str, str]:
    """Return text of spans for each layer, such as "0-63,70"."""
    return {str(layer): _format_spans(units) for layer, units in neurons.items()}


def _checked(unit: str, given: Mapping[int, Iterable[int]] | None) -> UnitsByLayer:
    if given is not None and not isinstance(given, Mapping):
        example = "{0: [3, 5]}" if unit == "head" else "{0: range(64)}"
        raise PlanError(
            f"a plan maps layers to {unit}s, such as {example}, found {type(given).__name__}"
        )
    checked: dict[int, tuple[int, ...]] = {}
    for key, units in (given or {}).items():
        layer = _index("layer", key, where="plan")
        if not isinstance(units, Iterable):
            raise PlanError(f"layer {layer}: a list of {unit}s is needed, found {units!r:.40}")
        indices = [_index(unit, each, where=f"layer {layer}") for each in units]
        if layer in checked:  # equal tensors are different keys
            raise PlanError(f"layer {layer}: is named twice; name all its {unit}s at once")
        if len(set(indices)) != len(indices):
            raise PlanError(
                f"layer {layer}: each {unit} may be named once, the plan has {indices!s:.60}; "
                "remove the repeats"
            )
        if indices:
            checked[layer] = tuple(sorted(indices))
    return MappingProxyType(dict(sorted(checked.items())))


def _parse(unit: str, data: Any, where: str) -> dict[int, list[int]]:
    if not isinstance(data, dict):
        raise PlanError(
            f"{where}: {unit}s must be an object of layer: {unit}s, found {type(data).__name__}"
        )
    found: dict[int, list[int]] = {}
    count = 0
    for key, units in data.items():
        if not isinstance(key, str) or not _LAYER_KEY.fullmatch(key):
            raise PlanError(f"{where}: a layer must be a whole number from 0, found {key!r:.60}")
        place = f"{where}: layer {int(key)}"
        if unit == "neuron" and isinstance(units, str):
            units = _parse_spans(units, place, MOST_NEURONS - count)
        if not isinstance(units, list):
            raise PlanError(f"{place}: {unit}s must be a list, found {type(units).__name__}")
        if int(key) in found:
            raise PlanError(f"{place} is named twice")
        found[int(key)] = units
        count += len(units)
    return found


def _format_spans(units: Iterable[int]) -> str:
    # In a run of adjacent numbers, each is as far above its place as the first.
    grouped = groupby(enumerate(units), key=lambda placed: placed[1] - placed[0])
    runs = [[unit for _, unit in run] for _, run in grouped]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _parse_spans(text: str, where: str, most: int) -> list[int]:
    units: list[int] = []
    for word in text.split(",") if text else ():
        span = _SPAN.fullmatch(word)
        low, high = (int(span[1]), int(span[2] or span[1])) if span else (1, 0)
        if low > high:
            raise PlanError(
                f'{where}: neurons must be numbers and spans such as "0-63,70", found {word!r:.40}'
            )
        if len(units) + high - low >= most:
            raise PlanError(f"{where}: a plan may remove {MOST_NEURONS} neurons, this has more")
        units.extend(range(low, high + 1))
    return units


def _without(units: Iterable[int], removed: Iterable[int]) -> tuple[int, ...]:
    gone = set(removed)
    return tuple(unit for unit in units if unit not in gone)


def _index(kind: str, value: object, where: str) -> int:
    """Return a whole number from 0 of Python, NumPy or torch as a Python int."""
    if type(value) is int and value >= 0:  # plans have thousands of neurons
        return value
    is_bool = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
    try:
        found = -1 if is_bool else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = -1
    if found < 0:
        raise PlanError(f"{where}: a {kind} must be a whole number from 0, found {value!r:.60}")
    return found
