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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from auber.run.files import RESULT
from auber.run.folder import PROGRESS, Run
from auber.system.locks import start_of
from auber.system.progress import Way

logger = logging.getLogger(__name__)

_WRITE_EVERY = 1.0  # seconds


class FolderListener:
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
        self._way = Way()
        self._stage: dict[str, Any] | None = None
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

    def plan(self, stages: int) -> None:
        """The run will have this many stages."""
        self._way.plan(stages)

    def weigh(self, work: Sequence[float]) -> None:
        """They are so much work."""
        self._way.weigh(work)

    def skip(self, stages: int) -> None:
        """Fewer stages than planned."""
        self._way.skip(stages)

    def begin(self, stage: str, total: int) -> None:
        """Show a stage."""
        self._stage = {
            "name": stage,
            "began": round(self._clock(), 3),
            "done": 0,
            "total": total,
            "note": "",
        }
        self._write()

    def step(self, done: int, note: str = "") -> None:
        """Show where it is, if that was not done within the last second."""
        if self._stage is None:
            return
        self._stage["done"], self._stage["note"] = done, note
        if self._timer() >= self._next_write:
            self._write()

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """A line among the events."""
        self._run.log("numbers", step=step, values=dict(numbers))

    def end(self) -> None:
        """The stage is over."""
        self._way.end()
        self._stage = None
        self._write()

    def say(self, text: str) -> None:
        """A line among the events."""
        self._run.log("said", text=text)

    def _write(self) -> None:
        self._next_write = self._timer() + _WRITE_EVERY
        stage = self._stage
        shown = {
            "time": round(self._clock(), 3),
            "process": self._process,
            "share": self._way.share(
                stage["done"] / stage["total"] if stage and stage["total"] else 0.0
            ),
            "stage": stage,
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
