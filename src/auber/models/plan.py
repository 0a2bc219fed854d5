"""A pruning plan: the heads to remove from each layer.

Layers and heads are counted from 0 and always refer to the unpruned model, so that a plan keeps its
meaning after some of its heads are gone. A plan is an immutable, ordered value; two plans are equal
if they remove the same heads.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from auber.errors import PlanError
from auber.system.records import read_json

_LAYER_KEY = re.compile("[0-9]{1,9}")  # Python refuses to parse integers of thousands of digits


class PruningPlan(Mapping[int, tuple[int, ...]]):
    """The heads to remove, by layer: `PruningPlan({0: [3, 5], 2: [1]})`.

    Layers without heads to remove are left out.
    """

    __slots__ = ("_removed",)

    def __init__(self, removed: Mapping[int, Iterable[int]] | None = None) -> None:
        checked: dict[int, tuple[int, ...]] = {}
        if removed is not None and not isinstance(removed, Mapping):
            raise PlanError(
                "a plan maps layers to heads, such as {0: [3, 5]}, found "
                f"{type(removed).__name__}"
            )
        for key, given in (removed or {}).items():
            layer = _index("layer", key, where="plan")
            if not isinstance(given, Iterable):
                raise PlanError(f"layer {layer}: a list of heads is needed, found {given!r:.40}")
            heads = [_index("head", head, where=f"layer {layer}") for head in given]
            if layer in checked:  # equal tensors are different keys
                raise PlanError(f"layer {layer}: is named twice; name all its heads at once")
            if len(set(heads)) != len(heads):
                raise PlanError(
                    f"layer {layer}: each head may be named once, the plan has {heads!s:.60}; "
                    "remove the repeats"
                )
            if heads:
                checked[layer] = tuple(sorted(heads))
        self._removed = dict(sorted(checked.items()))

    def __getitem__(self, layer: int) -> tuple[int, ...]:
        return self._removed[layer]

    def __iter__(self) -> Iterator[int]:
        return iter(self._removed)

    def __len__(self) -> int:
        return len(self._removed)

    def __hash__(self) -> int:
        return hash(tuple(self._removed.items()))

    def __repr__(self) -> str:
        return f"PruningPlan({ {layer: list(heads) for layer, heads in self._removed.items()} })"

    def __or__(self, other: Mapping[int, Iterable[int]]) -> PruningPlan:
        """Return the plan that removes the heads of both."""
        other = PruningPlan(other)
        return PruningPlan(
            {layer: {*self.removed(layer), *other.removed(layer)} for layer in {*self, *other}}
        )

    @property
    def num_removed(self) -> int:
        """The number of heads to remove, over all layers."""
        return sum(len(heads) for heads in self._removed.values())

    def removed(self, layer: int) -> tuple[int, ...]:
        """Return the heads to remove from a layer, in order."""
        return self._removed.get(layer, ())

    def kept(self, layer: int, num_heads: int) -> tuple[int, ...]:
        """Return the heads of a layer that stay, in order."""
        gone = set(self.removed(layer))
        return tuple(head for head in range(num_heads) if head not in gone)

    def check(self, num_layers: int, num_heads: int, *, allow_empty_layers: bool = False) -> None:
        """Raise `PlanError` unless the plan fits a model with these sizes."""
        for layer, heads in self.items():
            if layer >= num_layers:
                raise PlanError(
                    f"layer {layer}: the model has layers 0 to {num_layers - 1}; correct the plan"
                )
            if heads[-1] >= num_heads:
                raise PlanError(
                    f"layer {layer}: its heads are numbered 0 to {num_heads - 1}, the plan removes "
                    f"head {heads[-1]}; correct the plan"
                )
            if len(heads) == num_heads and not allow_empty_layers:
                raise PlanError(
                    f"layer {layer}: the plan removes all {num_heads} heads; at least one must stay"
                )

    def to_json(self) -> dict[str, list[int]]:
        """Return a plain JSON object, with layer numbers as strings."""
        return {str(layer): list(heads) for layer, heads in self.items()}

    @classmethod
    def from_json(cls, data: Any, where: str = "plan") -> PruningPlan:
        """Return the plan that `to_json` wrote; a `PlanError` names `where`."""
        if not isinstance(data, dict):
            raise PlanError(
                f"{where}: a plan is an object of layer: [heads], found {type(data).__name__}"
            )
        removed: dict[int, list[int]] = {}
        for key, heads in data.items():
            if not isinstance(key, str) or not _LAYER_KEY.fullmatch(key):
                raise PlanError(
                    f"{where}: a layer must be a whole number from 0, found {key!r:.60}"
                )
            if not isinstance(heads, list):
                raise PlanError(
                    f"{where}: layer {key}: heads must be a list, found {type(heads).__name__}"
                )
            if int(key) in removed:
                raise PlanError(f"{where}: layer {int(key)} is named twice")
            removed[int(key)] = heads
        return cls(removed)

    @classmethod
    def read(cls, path: str | Path) -> PruningPlan:
        """Return the plan in a JSON file."""
        data = read_json(path, 'write JSON such as {"0": [3, 5]}', error=PlanError)
        return cls.from_json(data, where=str(path))


def _index(kind: str, value: object, where: str) -> int:
    """Return a whole number from 0 of Python, NumPy or torch as a Python int."""
    is_bool = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
    try:
        found = -1 if is_bool else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = -1
    if found < 0:
        raise PlanError(f"{where}: a {kind} must be a whole number from 0, found {value!r:.60}")
    return found
