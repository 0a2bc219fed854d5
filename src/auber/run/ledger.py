"""The scores a run has computed: an append-only file, one JSON line per score.

A score is found again only under the same key (weights, rows, precision, scorer), layer and mask.
Scores that were computed together are written together or not at all, because the last bits of a
score may depend on the other masks in its pass. A line that was cut by a kill is removed when the
ledger is opened; any other damage is an error that names the line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from pydantic import ValidationError

from auber.errors import RunError
from auber.run.records import ScoreLine
from auber.search.methods import Mask
from auber.system.files import cut_torn_line


class Ledger:
    """Scores by (key, layer, removed heads)."""

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self._path, self._writable = path, writable
        self._scores: dict[tuple[str, int, Mask], float] = {}
        self._file: FileIO | None = None
        if os.path.lexists(path):  # a broken link must not pass for an empty ledger
            self._read()

    def __len__(self) -> int:
        return len(self._scores)

    def complete(
        self,
        key: str,
        layer: int,
        masks: Sequence[Mask],
        compute: Callable[[list[Mask]], list[float]],
    ) -> list[float]:
        """Return the score of each mask; compute and store the unknown ones together."""
        ordered = [tuple(sorted(mask)) for mask in masks]
        missing = [
            mask for mask in dict.fromkeys(ordered) if (key, layer, mask) not in self._scores
        ]
        if missing:
            self.add(key, layer, dict(zip(missing, compute(missing), strict=True)))
        return [self._scores[key, layer, mask] for mask in ordered]

    def add(self, key: str, layer: int, scores: Mapping[Mask, float]) -> None:
        """Store scores, on disk first."""
        if self._writable:
            entries = (
                {"key": key, "layer": layer, "removed": list(mask), "score": score}
                for mask, score in scores.items()
            )
            self._write("".join(json.dumps(entry) + "\n" for entry in entries).encode())
        self._scores |= {(key, layer, mask): score for mask, score in scores.items()}

    def close(self) -> None:
        """Close the file; the next score opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, data: bytes) -> None:
        """Append all data or nothing."""
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        size = os.fstat(self._file.fileno()).st_size
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with suppress(OSError):
                os.truncate(self._file.fileno(), size)
            raise

    def _read(self) -> None:
        try:
            if self._writable:
                cut_torn_line(self._path)
            data = self._path.read_bytes()
        except OSError as error:
            raise RunError(
                f"{self._path}: cannot be read ({error.strerror}); put a copy of it back"
            ) from error
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
            try:
                entry = ScoreLine.model_validate_json(line)
            except ValidationError as invalid:
                problem = invalid.errors(include_url=False)[0]
                where = ".".join(map(str, problem["loc"]))
                raise RunError(
                    f"{self._path}, line {number}: not a score "
                    f"({where + ': ' if where else ''}{problem['msg']}); "
                    "remove the line, its score is computed again"
                ) from invalid
            self._scores[entry.key, entry.layer, entry.removed] = entry.score
