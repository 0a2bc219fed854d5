"""Follow a run: the listener that writes into its folder, together with the caller's and trackers.

`progress.json` names the process, its command, the stage and how much is done. It is replaced when
a stage begins and at most once a second, and deleted when the run is complete. 'auber watch' reads
it; what a killed run leaves says where it was and how to resume it. No run reads it back.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

import psutil

from auber.run.files import PROGRESS
from auber.run.folder import Run
from auber.run.request import Request
from auber.run.trackers import open_tracker
from auber.system.distributed import is_main_process
from auber.system.locks import start_of
from auber.system.progress import Progress

logger = logging.getLogger(__name__)

_WRITE_INTERVAL = 1.0  # seconds


@contextmanager
def follow(
    run: Run, request: Request, progress: Progress, trackers: Sequence[str]
) -> Iterator[Progress]:
    """Yield the progress that reports to the caller's, to the folder and to the trackers.

    In a process group only the main process writes.
    """
    config, task = request.config, request.task.name
    facts = {"kind": request.kind, "model": request.start.name, "task": task}
    settings = {**facts, "method": request.method.name, **config.flat()}
    name = f"{task} {config.protocol} seed {config.seed} {run.folder.name}"
    with ExitStack() as stack:
        folder = stack.enter_context(FolderProgress(run, request.command))
        listeners = [
            stack.enter_context(open_tracker(tracker, run.folder / "track", name, settings))
            for tracker in (trackers if is_main_process() else ())
        ]
        yield Progress(progress, folder, *listeners)


class FolderProgress(Progress):
    """Writes `progress.json`, and numbers and messages into `events.jsonl`.

    `clock` gives the time that is written, `timer` decides when to write again.
    """

    def __init__(
        self,
        run: Run,
        command: str | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(timer=timer)
        self._run, self._clock = run, clock
        started, after_boot = start_of(psutil.Process())
        self._process = {
            "id": os.getpid(),
            "started": started,  # distinguishes it from a later process with the same number
            "after_boot": after_boot,
            "host": platform.node(),
            "command": _keep_printable(command),
            "folder": _keep_printable(_find_working_folder()),
        }
        self._began = 0.0  # the current stage
        self._next_write = 0.0
        self._has_warned = False

    def __enter__(self) -> FolderProgress:
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
        elif self._run.is_complete:
            self._run.remove(PROGRESS)

    def begin(self, stage: str, total: int) -> None:
        """Write the stage."""
        super().begin(stage, total)
        self._began = round(self._clock(), 3)
        self._write()

    def step(self, done: int, note: str = "") -> None:
        """Write what is done, at most once a second."""
        super().step(done, note)
        if self.stage is not None and self._timer() >= self._next_write:
            self._write()

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log an event."""
        self._run.log("numbers", step=step, values=dict(numbers))

    def end(self) -> None:
        """Write that no stage is under way."""
        super().end()
        self._write()

    def say(self, text: str) -> None:
        """Log an event."""
        self._run.log("said", text=text)

    def _write(self) -> None:
        self._next_write = self._timer() + _WRITE_INTERVAL
        stage = {
            "name": self.stage,
            "began": self._began,
            "done": self.done,
            "total": self.total,
            "note": self.note,
        }
        content = {
            "time": round(self._clock(), 3),
            "process": self._process,
            "share": self.share,
            "seconds_left": self.seconds_left,
            "stage": None if self.stage is None else stage,
        }
        try:
            self._run.write(PROGRESS, content)
        except OSError as error:  # no result depends on it
            if not self._has_warned:
                logger.warning(
                    "%s: cannot be written (%s); 'auber watch' will not see where it is",
                    PROGRESS,
                    error,
                )
            self._has_warned = True


def _find_working_folder() -> str | None:
    """Return the folder that relative paths start from, None if it was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _keep_printable(words: str | None) -> str | None:
    """Return the words, None if a terminal could not show them."""
    return words if words is not None and words.isprintable() else None
