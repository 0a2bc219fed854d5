"""The scores a run has computed: an append-only file, one JSON line a score.

A score is found again only under the same key (weights, rows, precision, scorer), layer and mask. A line that was torn by
a kill is cut off when the ledger is opened next; any other damage is an error that names the line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from auber.errors import RunError


class Ledger:
    """Scores by (key, layer, removed heads)."""

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self._path, self._writable = path, writable
        self._scores: dict[tuple[str, int, tuple[int, ...]], float] = {}
        self._file: TextIO | None = None
        if path.exists():
            self._read(cut_torn_line=writable)

    def __len__(self) -> int:
        return len(self._scores)

    def find(self, key: str, layer: int, removed: tuple[int, ...]) -> float | None:
        """The score, if it is known."""
        return self._scores.get((key, layer, removed))

    def add(self, key: str, layer: int, removed: tuple[int, ...], score: float) -> None:
        """Remember a score, on disk first."""
        if self._writable:
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8")
            entry = {"key": key, "layer": layer, "removed": list(removed), "score": score}
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        self._scores[key, layer, removed] = score

    def complete(
        self,
        key: str,
        layer: int,
        masks: Sequence[tuple[int, ...]],
        compute: Callable[[list[tuple[int, ...]]], list[float]],
    ) -> list[float]:
        """The score of each mask; those that are not known are computed together and remembered."""
        ordered = [tuple(sorted(mask)) for mask in masks]
        missing = [mask for mask in dict.fromkeys(ordered) if (key, layer, mask) not in self._scores]
        if missing:
            for mask, score in zip(missing, compute(missing), strict=True):
                self.add(key, layer, mask, score)
        return [self._scores[key, layer, mask] for mask in ordered]

    def close(self) -> None:
        """Let go of the file; the next score opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, *, cut_torn_line: bool) -> None:
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if cut_torn_line and whole < len(data):
            os.truncate(self._path, whole)
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                entry = json.loads(line)
                where = (entry["key"], entry["layer"], tuple(entry["removed"]))
                self._scores[where] = float(entry["score"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise RunError(
                    f"{self._path}, line {number}: not a score ({error}); remove the line, its score is computed again"
                ) from error
