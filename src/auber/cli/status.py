"""The status of a run or a study, read from its folder at any time; nothing is written."""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from auber.config import load_toml
from auber.errors import printable
from auber.models.plan import PruningPlan
from auber.run import records
from auber.run.records import ProcessRecord, ResultRecord, RunIdentity, StageRecord
from auber.search.stages import BUDGET, PLAN, is_layer_stage, layer_stage
from auber.study.estimate import Clock
from auber.study.folder import CLAIM, RECORD, State, StudyFolder
from auber.study.plan import Block, StudyRun, read_study
from auber.system.locks import is_alive, read_holder
from auber.system.records import Record, read_if_there

R = TypeVar("R", bound=Record)

_STUDY = re.compile(r"(torchrun [-a-z]+ [0-9]+ -m )?auber study\b")


class LayerStatus(Record):
    """The heads of a layer: decided, searched (the choice follows later), searching or open."""

    state: str
    removed: tuple[int, ...] = ()
    gain: float | None = None  # on the reward set, over what the search began with


class RunStatus(Record):
    """What a run's folder shows."""

    folder: str
    state: str = "waiting"  # running, elsewhere (on another machine), stopped or complete
    run: RunIdentity | None = None
    seed: str = ""
    protocol: str = ""
    # Seconds of each stage, None if it is not finished; the first of these is the current one.
    stages: dict[str, float | None] = Field(default_factory=dict)
    stage: records.CurrentStage | None = None
    stage_seconds_left: float | None = None
    layers_seconds_left: float | None = None  # if the open layers take as long as the others
    share: float | None = None  # of the whole run
    numbers: dict[str, float] = Field(default_factory=dict)  # of the current search or tuning
    num_heads: int = 0  # per layer
    layers: tuple[LayerStatus, ...] = ()
    process: ProcessRecord | None = None
    silent_seconds: float | None = None  # since the process last wrote
    error: str | None = None  # what stopped it
    resume: str | None = None  # the command that continues it
    result: ResultRecord | None = None


class CellStatus(Record):
    """One run of a study: its state, or missing, failed or skipped."""

    task: str
    protocol: str
    seed: int
    run: str
    state: str
    dev: float | None = None
    error: str | None = None
    status: RunStatus | None = None  # of an unfinished run


class StudyStatus(Record):
    """What a study's folder shows."""

    folder: str
    state: str  # running, elsewhere (on another machine), stopped, complete or failed
    model: str
    cells: tuple[CellStatus, ...]
    total: int
    settled: int
    seconds_left: float | None


@dataclass
class _Events:
    """The latest events of a run; lines that were read are not read again."""

    read_to: int = 0  # bytes
    last: float = 0.0  # time
    planned: records.PlannedEvent | None = None
    error: str | None = None
    series: str = ""  # of the numbers
    numbers: dict[str, float] = field(default_factory=dict)
    counted: float = 0.0  # time of the numbers

    def add(self, line: bytes) -> None:
        """Add an event; skip a damaged line."""
        event = records.parse_event(line)
        self.last = event.time if event else self.last
        if isinstance(event, records.NumbersEvent):
            for name, value in event.values.items():
                series, _, quantity = name.rpartition("/")
                if series.endswith(("/search", "/tuning")):
                    if series != self.series:
                        self.series, self.numbers = series, {}
                    self.numbers[quantity], self.counted = value, event.time
        elif isinstance(event, records.ProcessEvent):
            self.error = None  # it was started or resumed
        elif isinstance(event, records.PlannedEvent):
            self.planned = event
        elif isinstance(event, records.StoppedEvent):
            self.error = printable(event.error)


class RunReader:
    """Read a run's folder again and again; a damaged file raises `RunError`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._events = folder, _Events()

    def read(self) -> RunStatus:
        """Return the current status."""
        # Events last: they then cover what the other files show.
        result = _read(ResultRecord, self.folder / "result.json")
        progress = _read(records.ProgressRecord, self.folder / "progress.json")
        paths = (self.folder / "stages").glob("*.json")
        found = {path.stem: _read(StageRecord, path) for path in paths}
        done = {name: stage for name, stage in found.items() if stage is not None}
        self._read_events()
        events, now = self._events, time.time()
        try:
            config = load_toml(self.folder / "config.toml")
        except (OSError, ValueError, RecursionError):
            config = {}  # it may be being written
        identity = _read(RunIdentity, self.folder / "run.json") if config else None
        if identity is None:
            return RunStatus(folder=str(self.folder))

        process = progress.process if progress else None
        state = "complete" if result else _process_state(process, events.error)
        names = events.planned.stages if events.planned else sorted(done)
        stages = {name: done[name].seconds if name in done else None for name in names}
        if result is None:
            stages["evaluation"] = None
        unfinished = [name for name, seconds in stages.items() if seconds is None]
        status: dict[str, object] = {
            "run": identity,
            "state": state,
            "seed": printable(str(config.get("seed"))),
            "protocol": printable(str(config.get("protocol"))),
            "stages": stages,
            "process": process,
            "result": result,
        }
        if events.planned is not None:
            status["num_heads"] = events.planned.heads_per_layer
            status["layers"] = tuple(
                _layer_status(layer, done, result, unfinished[:1])
                for layer in range(events.planned.layers)
            )
        if result is None:
            status["layers_seconds_left"] = _layers_left(stages, unfinished[1:])
            last = max(progress.time if progress else 0.0, events.last)
            status["silent_seconds"] = max(0.0, now - last) if last else None
            if state == "stopped":
                status |= {"error": events.error, "resume": _resume_command(self.folder, process)}
            if progress is not None and progress.stage is not None:
                stage = progress.stage
                status |= {"stage": stage, "share": progress.share}
                if events.counted >= stage.began:
                    status["numbers"] = dict(events.numbers)
                if state != "stopped" and stage.done and stage.total:
                    left = (progress.time - stage.began) / stage.done * (stage.total - stage.done)
                    status["stage_seconds_left"] = max(0.0, left - max(0.0, now - progress.time))
        return RunStatus(folder=str(self.folder)).model_copy(update=status)

    def _read_events(self) -> None:
        try:
            with (self.folder / "events.jsonl").open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._events.read_to:
                    self._events = _Events()  # another run has taken its place
                file.seek(self._events.read_to)
                lines = file.read()
        except OSError:
            self._events, lines = _Events(), b""
        lines = lines[: lines.rfind(b"\n") + 1]  # the last one may be incomplete
        self._events.read_to += len(lines)
        for line in lines.splitlines():
            self._events.add(line)


class StudyReader:
    """Read a study's folder again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._study_folder = folder, StudyFolder(folder)
        self._readers: dict[Path, RunReader] = {}
        self._results: dict[Path, ResultRecord] = {}

    def read(self) -> StudyStatus:
        """Return the current status."""
        study = read_study(self.folder / RECORD)  # again: a later call may have added to it
        runs = [(block, run) for block in study.blocks() for run in study.runs(block)]
        times = Clock()
        cells = tuple(self._read_cell(block, run, times) for block, run in runs)
        settled = {State.COMPLETE, State.FAILED, State.SKIPPED}
        pending = [run for run, cell in zip(runs, cells, strict=True) if cell.state not in settled]
        states = [cell.state for cell in cells]
        if pending:
            state = self._process_state({block for block, _ in pending}, states)
        else:
            state = "complete" if set(states) == {"complete"} else "failed"
        seconds = times.guess(pending)
        at_work = states.count("running") + states.count("elsewhere")
        return StudyStatus(
            folder=str(self.folder),
            state=state,
            model=study.model_name,
            cells=cells,
            total=len(runs),
            settled=len(runs) - len(pending),
            seconds_left=None if seconds is None else seconds / max(1, at_work),
        )

    def _read_cell(self, block: Block, run: StudyRun, times: Clock) -> CellStatus:
        folder = self._study_folder
        state, path = folder.state(block, run), folder.run_path(block, run)
        facts: dict[str, object] = {"state": str(state)}
        if state is State.COMPLETE:
            result = self._results.get(path) or folder.result(block, run)
            if result is not None:  # else it is being computed again
                self._results[path] = result
                facts["dev"] = result.dev.score
                times.add(block.task, run.method, result.cost.seconds["total"])
        elif state is State.UNFINISHED:
            status = self._readers.setdefault(path, RunReader(path)).read()
            facts |= {"state": status.state, "error": status.error, "status": status}
        elif (failure := folder.failure(block, run)) is not None:
            facts["error"] = printable(failure.error)
        return CellStatus.model_validate({**asdict(block), "run": run.name, **facts})

    def _process_state(self, open_blocks: set[Block], states: list[str]) -> str:
        """Return whether a process works on the study: in a run, or between two runs of a block."""
        claims = [read_holder(self._study_folder.block_path(block), CLAIM) for block in open_blocks]
        holders = [holder for holder in claims if holder is not None]
        if "running" in states or any(holder.is_running for holder in holders):
            return "running"
        elsewhere = "elsewhere" in states or any(not holder.is_here for holder in holders)
        return "elsewhere" if elsewhere else "stopped"


def _read(cls: type[R], path: Path) -> R | None:
    return read_if_there(cls, path, "put a copy of it back, or start the run again")


def _process_state(process: ProcessRecord | None, error: str | None) -> str:
    if error is not None:  # its process may live on, such as a notebook's
        return "stopped"
    if process is None:
        return "waiting"
    if process.host not in (None, platform.node()):
        return "elsewhere"
    return "running" if is_alive(process.id, process.started, process.after_boot) else "stopped"


def _layer_status(
    layer: int, done: dict[str, StageRecord], result: ResultRecord | None, current: list[str]
) -> LayerStatus:
    name = layer_stage(layer)
    stage = done.get(name)
    if result is not None:
        removed: object = result.plan
    elif PLAN in done:
        removed = done[PLAN].removed
    elif BUDGET in done:
        removed = done[BUDGET].plan
    else:  # where sizes were scored, the layers share a given number of heads
        removed = stage.removed or () if stage and stage.sizes is None else None
    if isinstance(removed, PruningPlan):
        removed = removed.heads.get(layer, ())
    if isinstance(removed, tuple):
        gain = stage.scores.gain(removed) if stage else None
        return LayerStatus(state="decided", removed=removed, gain=gain)
    return LayerStatus(state="searched" if stage else "searching" if name in current else "open")


def _layers_left(stages: dict[str, float | None], later: list[str]) -> float | None:
    known = [s for name, s in stages.items() if s is not None and is_layer_stage(name)]
    waiting = sum(map(is_layer_stage, later))
    return sum(known) / len(known) * waiting if known and waiting else None


def _resume_command(folder: Path, process: ProcessRecord | None) -> str:
    if process is None or process.command is None:
        return f"the same call with out={str(folder)!r}, resume=True"
    command = process.command
    if _STUDY.match(command):  # its runs may be computed in another folder than it was typed in
        return command
    if "--resume" not in command.split():
        command = f"{command} --resume"
    if process.folder is None or Path(process.folder) == Path.cwd():
        return command
    return f"cd {shlex.quote(process.folder)} && {command}"
