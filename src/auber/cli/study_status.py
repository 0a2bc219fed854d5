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
    """One run of a study: the state of the run, or missing, failed or skipped."""

    run: str
    state: str
    dev: float | None = None
    error: str | None = None


class BlockStatus(Record):
    """One (task, protocol, seed) and its runs, in their order."""

    task: str
    protocol: str
    seed: int
    cells: tuple[CellStatus, ...]


class StudyStatus(Record):
    """What a study's folder shows."""

    folder: str
    state: str  # running, elsewhere (on another machine), stopped, complete or failed
    model: str
    blocks: tuple[BlockStatus, ...]
    current: tuple[RunStatus, ...]  # the unfinished runs
    total: int
    settled: int
    seconds_left: float | None

    @property
    def cells(self) -> list[tuple[str, CellStatus]]:
        """Return every run with the name of its block."""
        return [
            (f"{block.task} {block.protocol} seed {block.seed}", cell)
            for block in self.blocks
            for cell in block.cells
        ]


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
        current: list[RunStatus] = []
        blocks: list[BlockStatus] = []
        open_runs: list[tuple[Block, StudyRun]] = []
        for block in study.blocks():
            cells = []
            for run in study.runs(block):
                cells.append(self._read_cell(block, run, current))
                if cells[-1].state not in (State.COMPLETE, State.FAILED, State.SKIPPED):
                    open_runs.append((block, run))
            blocks.append(
                BlockStatus(
                    task=block.task, protocol=block.protocol, seed=block.seed, cells=tuple(cells)
                )
            )
        states = [cell.state for block in blocks for cell in block.cells]
        if open_runs:
            state = self._state({block for block, _ in open_runs}, current)
        else:
            state = "complete" if set(states) <= {State.COMPLETE} else "failed"
        at_work = sum(status.state in ("running", "elsewhere") for status in current)
        seconds = self._times.guess(open_runs)
        return StudyStatus(
            folder=str(self.folder),
            state=state,
            model=study.model_name,
            blocks=tuple(blocks),
            current=tuple(current),
            total=len(states),
            settled=len(states) - len(open_runs),
            seconds_left=None if seconds is None else seconds / max(1, at_work),
        )

    def _read_cell(self, block: Block, run: StudyRun, current: list[RunStatus]) -> CellStatus:
        state, path = self._study_folder.state(block, run), self._study_folder.run_path(block, run)
        if state is State.COMPLETE:
            return CellStatus(run=run.name, state="complete", dev=self._dev(block, run, path))
        if state is State.UNFINISHED:
            reader = self._readers.setdefault(path, RunReader(path, self._clock))
            status = reader.read()
            current.append(status)
            return CellStatus(run=run.name, state=status.state, error=status.error)
        failure = self._study_folder.failure(block, run) if state is not State.MISSING else None
        return CellStatus(run=run.name, state=str(state), error=failure.error if failure else None)

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
        holders = [
            read_holder(self._study_folder.block_path(block), CLAIM) for block in open_blocks
        ]
        found = [holder for holder in holders if holder is not None]
        if "running" in states or any(holder.is_running for holder in found):
            return "running"
        elsewhere = "elsewhere" in states or any(not holder.is_here for holder in found)
        return "elsewhere" if elsewhere else "stopped"
