"""The scores a run has computed: an append-only file, one JSON line a score.

A score is found again only under the same key (weights, rows, precision, scorer), layer and mask. Scores that were computed
together are written together or not at all, for the last bits of a score may hang on what else was in its pass. A line that was
torn by a kill is cut off when the ledger is opened next; any other damage is an error that names the line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from auber.errors import RunError


class Ledger:
    """Scores by (key, layer, removed heads)."""

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self._path, self._writable = path, writable
        self._scores: dict[tuple[str, int, tuple[int, ...]], float] = {}
        self._file: FileIO | None = None
        if os.path.lexists(
            path
        ):  # also where it is a link to nothing, which must not pass for an empty ledger
            self._read(cut_torn_line=writable)

    def __len__(self) -> int:
        return len(self._scores)

    def complete(
        self,
        key: str,
        layer: int,
        masks: Sequence[tuple[int, ...]],
        compute: Callable[[list[tuple[int, ...]]], list[float]],
    ) -> list[float]:
        """The score of each mask; those that are not known are computed together and remembered."""
        ordered = [tuple(sorted(mask)) for mask in masks]
        missing = [
            mask for mask in dict.fromkeys(ordered) if (key, layer, mask) not in self._scores
        ]
        if missing:
            self.add(key, layer, dict(zip(missing, compute(missing), strict=True)))
        return [self._scores[key, layer, mask] for mask in ordered]

    def close(self) -> None:
        """Let go of the file; the next score opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, key: str, layer: int, scores: Mapping[tuple[int, ...], float]) -> None:
        """Remember scores, on disk first."""
        if self._writable:
            entries = (
                {"key": key, "layer": layer, "removed": list(mask), "score": score}
                for mask, score in scores.items()
            )
            self._write("".join(json.dumps(entry) + "\n" for entry in entries).encode())
        self._scores |= {(key, layer, mask): score for mask, score in scores.items()}

    def _write(self, data: bytes) -> None:
        """Append all of it, or nothing."""
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

    def _read(self, *, cut_torn_line: bool) -> None:
        try:
            data = self._path.read_bytes()
            whole = data.rfind(b"\n") + 1
            if cut_torn_line and whole < len(data):
                os.truncate(self._path, whole)
        except OSError as error:
            raise RunError(
                f"{self._path}: cannot be read ({error.strerror}); a file of scores is needed"
            ) from error
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                where, score = _read_entry(line)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise RunError(
                    f"{self._path}, line {number}: not a score ({error}); remove the line, its score is computed again"
                ) from error
            self._scores[where] = score


def _read_entry(line: bytes) -> tuple[tuple[str, int, tuple[int, ...]], float]:
    """What a line of the file holds; `TypeError`, `KeyError` or `ValueError` where it is not what `add` writes."""
    # decoded here, because json.loads would also try encodings that are never written
    entry = json.loads(line.decode("utf-8"))
    if not isinstance(entry, dict):
        raise TypeError(f"an object is needed, found {type(entry).__name__}")
    key, layer, removed, score = (entry[name] for name in ("key", "layer", "removed", "score"))
    if type(key) is not str or type(layer) is not int or type(score) not in (int, float):
        raise TypeError("key must be text, layer a whole number and score a number")
    if not isinstance(removed, list) or not all(type(head) is int for head in removed):
        raise TypeError("removed must be a list of heads")
    if abs(score) > sys.float_info.max and type(score) is int:
        raise ValueError("score is beyond all numbers")
    return (key, layer, tuple(removed)), float(score)
