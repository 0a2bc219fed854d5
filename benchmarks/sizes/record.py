"""The models of the study, to JSON and back; blocks are merged into one file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from auber.errors import RunError
from auber.system.files import write_text
from auber.system.records import Count, Name, Number, Record, read

_REMEDY = "run the block again"
Key = tuple[str, int, str, str, float]


class Model(Record):
    """One model: its scores in points, its shape, and where it comes from."""

    task: Name
    seed: Count
    start: Name  # digest of the fine-tuned model of its block
    arm: Name
    keep: Number | None  # target size; None: the arm has none
    dev: Number
    train: Number
    loss: Number | None
    int8: Number | None  # dev score of its int8 graph; None: not measured
    heads: tuple[Count, ...]  # left in each layer
    neurons: tuple[Count, ...]
    multiply_adds: Count  # of a row of 128 tokens
    parameters: Count
    seconds: Number  # of the run, which may have made several sizes
    command: str
    provenance: dict[str, Any]

    @property
    def key(self) -> Key:
        """What tells it from all other models."""
        return self.task, self.seed, self.start, self.arm, self.keep or 0.0

    @property
    def shape(self) -> str:
        """The name that its speed is measured by."""
        return self.arm if self.keep is None else f"{self.arm}-{self.keep:g}"


class Models(Record):
    """The models of a file."""

    format: Literal[1] = 1
    kind: Literal["sizes"] = "sizes"
    models: tuple[Model, ...]


def read_models(path: Path) -> tuple[Model, ...]:
    """Return the models of a file; none if there is no file."""
    return read(Models, path, _REMEDY).models if path.exists() else ()


def write_models(path: Path, models: Iterable[Model]) -> None:
    """Write models in order, one on each line."""
    head = '{"format": 1, "kind": "sizes", "models": ['
    ordered = sorted(models, key=lambda model: model.key)
    lines = ",\n".join(json.dumps(model.to_json()) for model in ordered)
    write_text(path, f"{head}\n{lines}\n]}}\n" if lines else f"{head}]}}\n", follow=True)


def merge(files: Iterable[Path]) -> list[Model]:
    """Return the models of several files; one may be in several of them."""
    found: dict[Key, Model] = {}
    for path in files:
        for model in read_models(path):
            if found.setdefault(model.key, model) != model:
                raise RunError(
                    f"{path}: {model.task} seed {model.seed}, {model.arm} was evaluated twice with "
                    "one fine-tuned model; leave out the file of the second time"
                )
    return list(found.values())
