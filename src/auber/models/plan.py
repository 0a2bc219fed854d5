"""A pruning plan: which heads of which layer go.

Layers and heads are counted from 0 and always mean the heads of the unpruned model, so that a plan keeps its meaning
after some of its heads are gone. A plan is a value: immutable, ordered, equal to any plan that removes the same heads.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from auber.errors import PlanError

_MOST_DIGITS = 9  # of a layer's number; Python does not even read numbers of thousands


class PruningPlan(Mapping[int, tuple[int, ...]]):
    """The heads to remove, by layer: `PruningPlan({0: [3, 5], 2: [1]})`; layers with nothing to remove are left out."""

    __slots__ = ("_removed",)

    def __init__(self, removed: Mapping[int, Iterable[int]] | None = None) -> None:
        checked: dict[int, tuple[int, ...]] = {}
        if removed is not None and not isinstance(removed, Mapping):
            raise PlanError(
                f"a plan maps layers to heads, such as {{0: [3, 5]}}, found {type(removed).__name__}"
            )
        for key, given in (removed or {}).items():
            layer = _index("layer", key, where="plan")
            if not isinstance(given, Iterable):
                raise PlanError(f"layer {layer}: a list of heads is needed, found {given!r:.40}")
            heads = [_index("head", head, where=f"layer {layer}") for head in given]
            if layer in checked:  # tensors of one number are keys of their own
                raise PlanError(f"layer {layer}: is named twice; name all its heads at once")
            if len(set(heads)) != len(heads):
                raise PlanError(
                    f"layer {layer}: each head may be named once, the plan has {heads!s:.60}; remove the repeats"
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
        """Both plans together."""
        merged = {layer: set(heads) for layer, heads in self.items()}
        for layer, heads in PruningPlan(other).items():
            merged.setdefault(layer, set()).update(heads)
        return PruningPlan({layer: sorted(heads) for layer, heads in merged.items()})

    @property
    def num_removed(self) -> int:
        """How many heads go, over all layers."""
        return sum(len(heads) for heads in self._removed.values())

    def removed(self, layer: int) -> tuple[int, ...]:
        """The heads of a layer that go, in order; empty where none does."""
        return self._removed.get(layer, ())

    def kept(self, layer: int, num_heads: int) -> tuple[int, ...]:
        """The heads of a layer that stay, in order."""
        gone = set(self.removed(layer))
        return tuple(head for head in range(num_heads) if head not in gone)

    def check(self, num_layers: int, num_heads: int, *, allow_empty_layers: bool = False) -> None:
        """Raise `PlanError` unless the plan fits a model of that many layers and heads."""
        for layer, heads in self.items():
            if layer >= num_layers:
                raise PlanError(
                    f"layer {layer}: the model has layers 0 to {num_layers - 1}; correct the plan"
                )
            if heads[-1] >= num_heads:
                raise PlanError(
                    f"layer {layer}: its heads are numbered 0 to {num_heads - 1}, the plan removes head {heads[-1]}; correct the plan"
                )
            if len(heads) == num_heads and not allow_empty_layers:
                raise PlanError(
                    f"layer {layer}: the plan removes all {num_heads} heads; at least one must stay"
                )

    def to_json(self) -> dict[str, list[int]]:
        """A plain JSON object, layer numbers as strings."""
        return {str(layer): list(heads) for layer, heads in self.items()}

    @classmethod
    def from_json(cls, data: Any, where: str = "plan") -> PruningPlan:
        """The plan `to_json` wrote; anything else raises `PlanError` naming `where`."""
        if not isinstance(data, dict):
            raise PlanError(
                f"{where}: a plan is an object of layer: [heads], found {type(data).__name__}"
            )
        removed: dict[int, list[int]] = {}
        for layer, heads in data.items():
            if not isinstance(layer, str) or not (
                layer.isascii() and layer.isdigit() and len(layer) <= _MOST_DIGITS
            ):
                raise PlanError(
                    f"{where}: a layer must be a whole number from 0, found {layer!r:.60}"
                )
            if not isinstance(heads, list):
                raise PlanError(
                    f"{where}: layer {layer}: heads must be a list, found {type(heads).__name__}"
                )
            if int(layer) in removed:
                raise PlanError(f"{where}: layer {int(layer)} is named twice")
            removed[int(layer)] = heads
        return cls(removed)

    @classmethod
    def read(cls, path: str | Path) -> PruningPlan:
        """The plan in a JSON file."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise PlanError(f"{path}: no such file; correct the path") from error
        except (OSError, ValueError, RecursionError) as error:
            raise PlanError(
                f'{path}: cannot be read as a plan ({error}); expected JSON such as {{"0": [3, 5]}}'
            ) from error
        return cls.from_json(data, where=str(path))


def _index(kind: str, value: object, where: str) -> int:
    """A whole number from 0 as Python's own, be it NumPy's or torch's."""
    is_bool = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
    try:
        found = -1 if is_bool else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = -1
    if found < 0:
        raise PlanError(f"{where}: a {kind} must be a whole number from 0, found {value!r:.60}")
    return found
