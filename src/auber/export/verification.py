"""Write an exported folder, and keep it only if it computes what it should."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from auber.errors import CheckpointError
from auber.export.source import Source, in_float32
from auber.models.random_rows import random_rows
from auber.system.progress import Progress

ALLOWED_DIFFERENCE = 1e-3  # between logits; rounding alone stays far below
# Batches to compare on: rows, length, whether padded. One token, one row, one padded row, uneven
# batches, and batches longer than those that a graph is traced with.
_BATCHES = (
    (1, 1, False),
    (1, 9, False),
    (1, 16, True),
    (2, 1, False),
    (3, 32, True),
    (5, 128, True),
    (4, 128, False),
)

Compute = Callable[[dict[str, Tensor]], Any]  # from a batch to an output like the model's


class Check(Protocol):
    """The finding of a check that an export has passed."""

    @property
    def words(self) -> str:
        """The finding as lines of text."""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON types."""


@dataclass(frozen=True)
class LogitCheck:
    """How far logits are from the model's own."""

    rows: int
    largest_difference: float

    @property
    def words(self) -> str:
        """The finding as a line of text."""
        return (
            f"checked on {self.rows} random rows: largest logit difference "
            f"{self.largest_difference:.2g} (allowed: {ALLOWED_DIFFERENCE:g})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON types."""
        return {**asdict(self), "allowed": ALLOWED_DIFFERENCE}


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    to: str
    place: Path
    source: Source
    files: dict[str, int]  # name: bytes
    check: Check
    graph: Path | None = None  # the ONNX file, if there is one


def check_logits(source: Source, compute: Compute) -> LogitCheck:
    """Raise `CheckpointError` unless the logits are the model's own."""
    difference = largest_difference(source, compute)
    if not difference <= ALLOWED_DIFFERENCE:  # true for NaN too
        raise CheckpointError(
            f"the logits must be the model's own to {ALLOWED_DIFFERENCE:g}, found a difference of "
            f"{difference:.3g}; nothing was kept, please report it with the versions of torch and "
            "transformers"
        )
    return LogitCheck(sum(rows for rows, _, _ in _BATCHES), difference)


def write_verified(
    to: str,
    source: Source,
    place: Path,
    write: Callable[[Source, Path], None],
    load: Callable[[Source, Path], Compute],
    progress: Progress,
    check: Callable[[Source, Compute], Check] = check_logits,
) -> Exported:
    """Write a new folder, check what `load` finds in it, and move it to its place.

    Until then it lies in a private folder beside its place, so that a failure leaves nothing.
    """
    require_free(place)
    progress.plan(2)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
            fresh = Path(scratch) / "new"
            fresh.mkdir()
            progress.begin(f"writing {to}", 0)
            write(source, fresh)
            progress.end()
            progress.begin("checking", 0)
            try:
                checked = check(source, load(source, fresh))
            except CheckpointError as error:
                raise CheckpointError(f"{place}: {error}") from error
            progress.end()
            files = {path.name: path.stat().st_size for path in sorted(fresh.iterdir())}
            if place.exists():
                place.rmdir()  # it is empty
            shutil.move(fresh, place)
    except OSError as error:
        raise CheckpointError(
            f"{place}: cannot be written ({error}); choose another --out"
        ) from error
    return Exported(to, place, source, files, checked)


def require_free(place: Path) -> None:
    """Raise `CheckpointError` unless `place` is new or an empty folder."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise CheckpointError(f"{place}: must be a new or an empty folder; choose another --out")


@torch.inference_mode()
def largest_difference(source: Source, compute: Compute) -> float:
    """Return the largest difference of a logit from the model's, outside padding, in float32."""
    model, outputs, encoder = in_float32(source.model), source.outputs, source.encoder
    found = []
    for seed, (rows, length, padded) in enumerate(_BATCHES):
        length = min(length, encoder.num_positions)
        batch = random_rows(
            encoder, source.inputs, rows=rows, length=length, padded=padded, seed=seed
        )
        own, other = (
            outputs.pack(outputs.logits(output), batch["attention_mask"])
            for output in (model(**batch), compute(batch))
        )
        found.append((own - other).abs().max())
    return float(torch.stack(found).max())  # unlike Python's max, torch's propagates NaN
