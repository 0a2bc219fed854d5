"""Files that another process is writing, read without its knowing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None while it is not there, or not whole."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


class Tail:
    """The lines of a growing JSON-lines file, each handed out once.

    A last line that is not whole is left for a later look. When the file has become shorter or another file has taken its
    place, it is read anew: `restarted` then says that what was handed out before no longer counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None  # device and number of the file last read
        self._offset = 0
        self.restarted = False

    def look(self) -> list[dict[str, Any]]:
        """The objects that have come since the last look; lines that hold none are passed over."""
        self.restarted = False
        try:
            with self._path.open("rb") as file:
                status = self._path.stat()
                if (
                    self._file not in (None, (status.st_dev, status.st_ino))
                    or status.st_size < self._offset
                ):
                    self._offset, self.restarted = 0, True
                self._file = (status.st_dev, status.st_ino)
                file.seek(self._offset)
                data = file.read()
        except OSError:
            self.restarted = self._offset > 0
            self._file, self._offset = None, 0
            return []
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        return [entry for line in data[:whole].splitlines() if (entry := _parse(line)) is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
