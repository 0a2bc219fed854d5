"""What a run's folder shows of it from outside while it goes on: `progress.json`, and numbers in `events.jsonl`.

`progress.json` says which process is at work, by which command, in which stage, and how far it is. It is replaced whole when a
stage begins and at most once a second within one; it is gone when the run is complete, and what a killed run leaves of it says
where it was, and how to go on: so the command stands there word for word, with the folder it was typed in. Nothing ever reads it
back into a run.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import psutil

from auber.run.files import RESULT
from auber.run.folder import PROGRESS, Run
from auber.system.locks import start_of
from auber.system.progress import Progress

logger = logging.getLogger(__name__)

_WRITE_EVERY = 1.0  # seconds


class FolderListener(Progress):
    """Follows a run into its folder; `command` is the command line that asked for it.

    `clock` tells the time that is written down, `timer` when to write again: nobody can set it back.
    """

    def __init__(
        self,
        run: Run,
        command: str | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._run, self._clock, self._timer = run, clock, timer
        started, after_boot = start_of(psutil.Process())
        self._process = {
            "id": os.getpid(),
            # tell it from a later process of the same number
            "started": started,
            "after_boot": after_boot,
            "host": platform.node(),
            "command": _printable(command),
            "folder": _printable(_present_folder()),
        }
        self._began = 0.0  # the current stage
        self._next_write = 0.0
        self._has_warned = False

    def __enter__(self) -> FolderListener:
        self._write()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._run.log("stopped", error=f"{type(error).__name__}: {error}".splitlines()[0])
        elif (self._run.folder / RESULT).is_file():
            self._run.remove(PROGRESS)

    def begin(self, stage: str, total: int) -> None:
        """Show a stage."""
        super().begin(stage, total)
        self._began = round(self._clock(), 3)
        self._write()

    def step(self, done: int, note: str = "") -> None:
        """Show where it is, if that was not done within the last second."""
        super().step(done, note)
        if self.stage is not None and self._timer() >= self._next_write:
            self._write()

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log an event."""
        self._run.log("numbers", step=step, values=dict(numbers))

    def end(self) -> None:
        """Show that no stage is under way."""
        super().end()
        self._write()

    def say(self, text: str) -> None:
        """Log an event."""
        self._run.log("said", text=text)

    def _write(self) -> None:
        self._next_write = self._timer() + _WRITE_EVERY
        stage = {
            "name": self.stage,
            "began": self._began,
            "done": self.done,
            "total": self.total,
            "note": self.note,
        }
        shown = {
            "time": round(self._clock(), 3),
            "process": self._process,
            "share": self.share,
            "stage": None if self.stage is None else stage,
        }
        try:
            self._run.write(PROGRESS, shown)
        except OSError as error:  # nobody's result depends on it
            if not self._has_warned:
                logger.warning(
                    "%s: cannot be written (%s); 'auber watch' will not see where it is",
                    PROGRESS,
                    error,
                )
            self._has_warned = True


def _present_folder() -> str | None:
    """Where relative paths begin; None where somebody has deleted it."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _printable(words: str | None) -> str | None:
    """Words that a terminal shows as they are; None for others, which nobody could type again."""
    return words if words is not None and words.isprintable() else None
