"""What an export leaves, and the one way a folder is written: checked first, then put in its place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from auber.errors import CheckpointError
from auber.export.rows import CHECKED_ROWS, Compute, largest_difference
from auber.export.source import Source
from auber.system.progress import Progress

ALLOWED_DIFFERENCE = 1e-3  # between logits; rounding alone stays some hundred times below


@dataclass(frozen=True)
class Exported:
    """What an export left."""

    to: str
    place: Path
    source: Source
    files: dict[str, int]  # name: bytes
    checked_rows: int
    largest_difference: float  # of a logit, from the model's own
    graph: Path | None = None  # the ONNX file, where there is one


def write_checked(
    to: str,
    source: Source,
    place: Path,
    write: Callable[[Source, Path], None],
    compute: Callable[[Source, Path], Compute],
    progress: Progress,
) -> Exported:
    """Write a new folder, compute logits with what lies in it, and put it in its place if they are the model's own.

    It lies in a private folder beside its place until then, so that whatever fails leaves nothing.
    """
    require_free(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
            fresh = Path(scratch) / "new"
            fresh.mkdir()
            progress.begin(f"writing {to}", 0)
            write(source, fresh)
            progress.end()
            progress.begin("checking", 0)
            difference = largest_difference(source, compute(source, fresh))
            progress.end()
            if not difference <= ALLOWED_DIFFERENCE:  # nor is a difference that is no number
                raise CheckpointError(
                    f"{place}: the logits must be the model's own to {ALLOWED_DIFFERENCE:g}, found a difference of "
                    f"{difference:.3g}; nothing was kept, please report it with the versions of torch and transformers"
                )
            files = {path.name: path.stat().st_size for path in sorted(fresh.iterdir())}
            if place.exists():
                place.rmdir()  # empty, as was required
            shutil.move(fresh, place)
    except OSError as error:
        raise CheckpointError(
            f"{place}: cannot be written ({error}); choose another --out"
        ) from error
    return Exported(to, place, source, files, CHECKED_ROWS, difference)


def require_free(place: Path) -> None:
    """Raise `CheckpointError` unless something can be written there."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise CheckpointError(f"{place}: must be a new or an empty folder; choose another --out")
