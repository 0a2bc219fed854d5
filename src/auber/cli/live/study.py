"""A study as its folder shows it: how every run stands, and what those at work are doing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from auber.cli.live.run import RunWatcher
from auber.cli.live.run_view import RunState, RunView
from auber.cli.live.shapes import RESULT, read_shaped
from auber.run import files as run_files
from auber.study.estimate import Clock
from auber.study.folder import CLAIM, RECORD, State, StudyFolder
from auber.study.plan import Block, StudyRun, read_study
from auber.system.locks import read_holder

_RESULT = {key: RESULT[key] for key in ("dev.score", "cost.seconds.total")}


@dataclass(frozen=True)
class CellView:
    """One run of a study."""

    run: str
    state: str  # complete, failed, skipped, missing, or of an unfinished one: running, elsewhere, stopped, waiting
    dev: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class BlockView:
    """One (task, protocol, seed) and its runs, in the order they are done."""

    task: str
    protocol: str
    seed: int
    cells: tuple[CellView, ...]


@dataclass(frozen=True)
class StudyView:
    """Everything a look at a study's folder shows."""

    folder: str
    model: str
    blocks: tuple[BlockView, ...]
    present: tuple[RunView, ...]  # the runs that are neither settled nor missing
    total: int
    settled: int
    seconds_left: float | None  # the time the open runs will take, as many at once as now
    someone_at_work: bool | None  # None: on another machine, if anywhere

    @property
    def is_over(self) -> bool:
        """Whether every run is settled."""
        return self.settled == self.total

    @property
    def is_complete(self) -> bool:
        """Whether every run has a result."""
        return all(cell.state == State.COMPLETE for block in self.blocks for cell in block.cells)

    @property
    def is_left(self) -> bool:
        """Whether something is open and nobody is at work."""
        return not self.is_over and self.someone_at_work is False


class StudyWatcher:
    """Looks at a study's folder again and again."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = StudyFolder(folder), clock
        self._watchers: dict[tuple[Block, str], RunWatcher] = {}
        self._results: dict[tuple[Block, str], float] = {}  # dev scores of the complete runs
        self._times = Clock()

    def look(self) -> StudyView:
        """What the folder shows now."""
        study = read_study(self._folder.path / RECORD)  # anew: a later call may have added to it
        present: list[RunView] = []
        blocks: list[BlockView] = []
        open_runs: list[tuple[Block, StudyRun]] = []
        for block in study.blocks():
            cells = []
            for run in study.runs(block):
                cell = self._cell(block, run, present)
                cells.append(cell)
                if cell.state not in (State.COMPLETE, State.FAILED, State.SKIPPED):
                    open_runs.append((block, run))
            blocks.append(BlockView(block.task, block.protocol, block.seed, tuple(cells)))
        at_work = sum(view.state in (RunState.RUNNING, RunState.ELSEWHERE) for view in present)
        seconds = self._times.guess(open_runs)
        total = sum(len(block.cells) for block in blocks)
        return StudyView(
            folder=str(self._folder.path),
            model=study.model_name,
            blocks=tuple(blocks),
            present=tuple(present),
            total=total,
            settled=total - len(open_runs),
            seconds_left=None if seconds is None else seconds / max(1, at_work),
            someone_at_work=self._someone_at_work({block for block, _ in open_runs}, present),
        )

    def _cell(self, block: Block, run: StudyRun, present: list[RunView]) -> CellView:
        state = self._folder.state(block, run)
        if state is State.COMPLETE:
            return CellView(run.name, state, dev=self._dev(block, run))
        if state is State.UNFINISHED:
            watcher = self._watchers.setdefault(
                (block, run.name), RunWatcher(self._folder.run_path(block, run), self._clock)
            )
            view = watcher.look()
            present.append(view)
            return CellView(run.name, view.state, error=view.error)
        failure = self._folder.failure(block, run) if state is not State.MISSING else None
        return CellView(run.name, state, error=failure.error if failure else None)

    def _dev(self, block: Block, run: StudyRun) -> float | None:
        key = (block, run.name)
        if key not in self._results:
            place = self._folder.run_path(block, run) / run_files.RESULT
            result = read_shaped(place, _RESULT)
            if result is None:  # it is just being made again
                return None
            self._results[key] = float(result["dev"]["score"])
            self._times.add(block.task, run.method, result["cost"]["seconds"]["total"])
        return self._results[key]

    def _someone_at_work(self, open_blocks: set[Block], present: list[RunView]) -> bool | None:
        if any(view.state is RunState.RUNNING for view in present):
            return True
        if any(view.state is RunState.ELSEWHERE for view in present):
            return None
        # Between two runs of a block its claim shows who is in it; the claim on one that is over says nothing any more.
        holders = [read_holder(self._folder.block_path(block), CLAIM) for block in open_blocks]
        if any(holder.is_running for holder in holders if holder is not None):
            return True
        return (
            None if any(not holder.is_here for holder in holders if holder is not None) else False
        )
