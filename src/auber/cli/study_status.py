"""The status of a study: how every run stands, and what the current ones are doing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from auber.cli.status import RunReader, RunStatus, read_if_there
from auber.run.records import ResultRecord
from auber.study.estimate import Clock
from auber.study.folder import CLAIM, RECORD, State, StudyFolder
from auber.study.plan import Block, StudyRun, read_study
from auber.system.locks import read_holder
from auber.system.records import Record


class CellStatus(Record):
    """One run of a study: its state, or missing, failed or skipped."""

    task: str
    protocol: str
    seed: int
    run: str
    state: str
    dev: float | None = None
    error: str | None = None

    @property
    def block(self) -> str:
        """Return the name of its block."""
        return f"{self.task} {self.protocol} seed {self.seed}"


class StudyStatus(Record):
    """What a study's folder shows."""

    folder: str
    state: str  # running, elsewhere (on another machine), stopped, complete or failed
    model: str
    cells: tuple[CellStatus, ...]
    current: tuple[RunStatus, ...]  # the unfinished runs
    total: int
    settled: int
    seconds_left: float | None


class StudyReader:
    """Read a study's folder again and again."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock
        self._study_folder = StudyFolder(folder)
        self._readers: dict[Path, RunReader] = {}
        self._results: dict[Path, ResultRecord] = {}
        self._times = Clock()

    def read(self) -> StudyStatus:
        """Return the current status."""
        study = read_study(self.folder / RECORD)  # again: a later call may have added to it
        runs = [(block, run) for block in study.blocks() for run in study.runs(block)]
        current: list[RunStatus] = []
        cells = [self._read_cell(block, run, current) for block, run in runs]
        settled = (State.COMPLETE, State.FAILED, State.SKIPPED)
        open_runs = [
            run for run, cell in zip(runs, cells, strict=True) if cell.state not in settled
        ]
        if open_runs:
            state = self._state({block for block, _ in open_runs}, current)
        else:
            is_complete = all(cell.state == State.COMPLETE for cell in cells)
            state = "complete" if is_complete else "failed"
        at_work = sum(status.state in ("running", "elsewhere") for status in current)
        seconds = self._times.guess(open_runs)
        return StudyStatus(
            folder=str(self.folder),
            state=state,
            model=study.model_name,
            cells=tuple(cells),
            current=tuple(current),
            total=len(runs),
            settled=len(runs) - len(open_runs),
            seconds_left=None if seconds is None else seconds / max(1, at_work),
        )

    def _read_cell(self, block: Block, run: StudyRun, current: list[RunStatus]) -> CellStatus:
        state, path = self._study_folder.state(block, run), self._study_folder.run_path(block, run)
        name, dev, error = str(state), None, None
        if state is State.COMPLETE:
            dev = self._dev(block, run, path)
        elif state is State.UNFINISHED:
            status = self._readers.setdefault(path, RunReader(path, self._clock)).read()
            current.append(status)
            name, error = status.state, status.error
        elif state is not State.MISSING:
            failure = self._study_folder.failure(block, run)
            error = failure.error if failure else None
        return CellStatus(
            task=block.task,
            protocol=block.protocol,
            seed=block.seed,
            run=run.name,
            state=name,
            dev=dev,
            error=error,
        )

    def _dev(self, block: Block, run: StudyRun, path: Path) -> float | None:
        if path not in self._results:
            result = read_if_there(ResultRecord, path / "result.json")
            if result is None:  # it is being computed again
                return None
            self._results[path] = result
            self._times.add(block.task, run.method, result.cost.seconds["total"])
        return self._results[path].dev.score

    def _state(self, open_blocks: set[Block], current: list[RunStatus]) -> str:
        """Return whether a process works on the study: in a run, or between two runs of a block."""
        states = {status.state for status in current}
        claims = [read_holder(self._study_folder.block_path(block), CLAIM) for block in open_blocks]
        holders = [holder for holder in claims if holder is not None]
        if "running" in states or any(holder.is_running for holder in holders):
            return "running"
        elsewhere = "elsewhere" in states or any(not holder.is_here for holder in holders)
        return "elsewhere" if elsewhere else "stopped"
