"""Brings everyone together who hears of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from auber.config import Value
from auber.run.folder import Run
from auber.run.tracking.folder import FolderListener
from auber.run.tracking.trackers import open_tracker
from auber.system.distributed import is_main_process
from auber.system.progress import Progress


@contextmanager
def listening(
    run: Run,
    progress: Progress,
    *,
    track: Sequence[str] = (),
    name: str,
    settings: Mapping[str, Value],
    command: str | None = None,
) -> Iterator[Progress]:
    """Who hears of a run inside the context.

    `track` names the trackers; they get the run as `name`, and its `settings` once. In a process group the main
    process alone writes, to the folder and to them.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(FolderListener(run, command))
        trackers = [
            stack.enter_context(open_tracker(tracker, run.folder / "track", name, settings))
            for tracker in (track if is_main_process() else ())
        ]
        yield Progress(progress, folder, *trackers)
