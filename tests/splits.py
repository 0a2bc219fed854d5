"""Read the rows of a run's stages back from its folder."""

from __future__ import annotations

from pathlib import Path

from auber.data.splits import LayerSplit, Splits
from auber.run.files import read_json


def read_splits(run: Path) -> Splits:
    """Return the content of `splits.json`."""
    data = read_json(run / "splits.json")
    lists = {
        name: tuple(data[name]) for name in ("first", "original_first", "last_train", "last_watch")
    }
    layers = (
        LayerSplit(tuple(layer["mini_train"]), tuple(layer["reward"])) for layer in data["layers"]
    )
    folds = tuple(map(tuple, data.get("folds", ())))
    return Splits(protocol=data["protocol"], layers=tuple(layers), folds=folds, **lists)
