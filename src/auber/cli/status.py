"""The status of a run, read from its folder before, during or after the run; nothing is written."""

from __future__ import annotations

import platform
import re
import shlex
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from auber.config import load_toml
from auber.errors import RunError, printable
from auber.run.records import (
    CurrentStage,
    MessageEvent,
    NumbersEvent,
    PlannedEvent,
    ProcessEvent,
    ProcessRecord,
    ProgressRecord,
    ResultRecord,
    RunIdentity,
    StageRecord,
    StoppedEvent,
    parse_event,
)
from auber.search.stages import BUDGET, PLAN, is_layer_stage, is_tuning_series, layer_stage
from auber.system import records
from auber.system.locks import is_alive
from auber.system.records import Record

R = TypeVar("R", bound=Record)

_MESSAGES = 3  # of the last ones
_STUDY = re.compile(r"(torchrun [-a-z]+ [0-9]+ -m )?auber study\b")


class StageStatus(Record):
    """One stage of a run: done, current or open."""

    name: str
    state: str
    seconds: float | None = None


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
    stages: tuple[StageStatus, ...] = ()
    stage: CurrentStage | None = None
    stage_seconds_left: float | None = None
    layers_seconds_left: float | None = None  # if the open layers take as long as the others
    share: float | None = None  # of the whole run
    numbers: dict[str, float] = Field(default_factory=dict)  # of the current search or tuning
    num_heads: int = 0  # per layer
    layers: tuple[LayerStatus, ...] = ()
    process: ProcessRecord | None = None
    running_seconds: float | None = None
    silent_seconds: float | None = None  # since the process last wrote
    error: str | None = None  # what stopped it
    resume: str | None = None  # the command that continues it
    result: ResultRecord | None = None
    messages: tuple[tuple[float, str], ...] = ()  # time and text


class RunReader:
    """Read a run's folder again and again; a file that cannot change is read once.

    A damaged file raises `RunError`; damaged lines of the events are skipped.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock
        self._forget()

    def _forget(self) -> None:
        self._seed = self._protocol = ""
        self._identity: RunIdentity | None = None
        self._stages: dict[str, StageRecord] = {}
        self._read_to = 0  # bytes of the events
        self._planned: PlannedEvent | None = None
        self._began: ProcessEvent | None = None
        self._error: str | None = None
        self._last_event = 0.0
        self._numbers: dict[str, tuple[float, float]] = {}  # time and value; latest last
        self._messages: list[tuple[float, str]] = []

    def read(self) -> RunStatus:
        """Return the current status."""
        # Events last: they then cover what the other files show.
        result = read_if_there(ResultRecord, self.folder / "result.json")
        progress = read_if_there(ProgressRecord, self.folder / "progress.json")
        for path in (self.folder / "stages").glob("*.json"):
            stage = None if path.stem in self._stages else read_if_there(StageRecord, path)
            if stage is not None:
                self._stages[path.stem] = stage
        self._read_events()
        self._read_identity()
        if self._identity is None:
            return RunStatus(folder=str(self.folder))

        now = self._clock()
        process = progress.process if progress else None
        if process is None and self._began is not None and self._began.process is not None:
            process = ProcessRecord(id=self._began.process)
        state = self._state(result, process)
        stages = self._list_stages(is_complete=result is not None)
        current = next((each.name for each in stages if each.state == "current"), None)
        status = RunStatus(
            folder=str(self.folder),
            state=state,
            run=self._identity,
            seed=self._seed,
            protocol=self._protocol,
            stages=stages,
            num_heads=self._planned.heads_per_layer if self._planned else 0,
            layers=self._list_layers(result, current),
            process=process,
            result=result,
            messages=tuple(self._messages),
        )
        if result is not None:
            return status
        changes: dict[str, object] = {"layers_seconds_left": _layers_left(stages)}
        last = max(progress.time if progress else 0.0, self._last_event)
        if last:
            changes["silent_seconds"] = max(0.0, now - last)
        if state == "stopped":
            changes |= {"error": self._error, "resume": self._resume_command(process)}
        elif self._began is not None:
            changes["running_seconds"] = max(0.0, now - self._began.time)
        if progress is not None and progress.stage is not None:
            changes |= {"stage": progress.stage, "share": progress.share}
            changes["numbers"] = self._latest_numbers(current or "", progress.stage.began)
            if state != "stopped":
                left = _seconds_left(progress.stage, progress.time, now)
                changes["stage_seconds_left"] = left
        return status.model_copy(update=changes)

    def _read_identity(self) -> None:
        if self._identity is None:
            try:
                config = load_toml(self.folder / "config.toml")
            except (OSError, ValueError, RecursionError):
                return
            self._seed = printable(str(config.get("seed")))
            self._protocol = printable(str(config.get("protocol")))
            self._identity = read_if_there(RunIdentity, self.folder / "run.json")

    def _read_events(self) -> None:
        try:
            with (self.folder / "events.jsonl").open("rb") as file:
                file.seek(0, 2)
                if file.tell() < self._read_to:  # another run has taken its place
                    self._forget()
                file.seek(self._read_to)
                data = file.read()
        except OSError:
            self._forget()
            return
        complete = data.rfind(b"\n") + 1  # the last line may be incomplete
        self._read_to += complete
        for line in data[:complete].splitlines():
            event = parse_event(line)
            if event is None:
                continue
            self._last_event = event.time
            if isinstance(event, NumbersEvent):
                for name, value in event.values.items():
                    self._numbers.pop(name, None)
                    self._numbers[name] = event.time, value
            elif isinstance(event, ProcessEvent):
                self._began, self._error = event, None
            elif isinstance(event, PlannedEvent):
                self._planned = event
            elif isinstance(event, StoppedEvent):
                self._error = printable(event.error)
            elif isinstance(event, MessageEvent):
                message = event.time, printable(event.text)
                self._messages = [*self._messages, message][-_MESSAGES:]

    def _state(self, result: ResultRecord | None, process: ProcessRecord | None) -> str:
        if result is not None:
            return "complete"
        if self._error is not None:  # its process may live on, such as a notebook's
            return "stopped"
        if process is None:
            return "waiting"
        if process.host not in (None, platform.node()):
            return "elsewhere"
        alive = is_alive(process.id, process.started, process.after_boot)
        return "running" if alive else "stopped"

    def _list_stages(self, *, is_complete: bool) -> tuple[StageStatus, ...]:
        names: Collection[str] = self._planned.stages if self._planned else sorted(self._stages)
        found: list[StageStatus] = []
        for name in (*names, "evaluation"):
            stage, state = self._stages.get(name), "open"
            if stage is not None or is_complete:
                state = "done"
            elif all(earlier.state == "done" for earlier in found):
                state = "current"
            found.append(
                StageStatus(name=name, state=state, seconds=stage.seconds if stage else None)
            )
        return tuple(found)

    def _list_layers(
        self, result: ResultRecord | None, current: str | None
    ) -> tuple[LayerStatus, ...]:
        found = []
        for layer in range(self._planned.layers if self._planned else 0):
            name = layer_stage(layer)
            stage, removed = self._stages.get(name), self._removed(layer, result)
            if removed is not None:
                gain = _gain(stage, removed) if stage else None
                found.append(LayerStatus(state="decided", removed=removed, gain=gain))
            elif stage is not None:
                found.append(LayerStatus(state="searched"))
            else:
                found.append(LayerStatus(state="searching" if name == current else "open"))
        return tuple(found)

    def _removed(self, layer: int, result: ResultRecord | None) -> tuple[int, ...] | None:
        """Return the heads that go from a layer, None while this is not decided."""
        if result is not None:
            return result.plan.get(str(layer), ())
        plan = self._stages[PLAN].removed if PLAN in self._stages else None
        if isinstance(plan, dict):
            return plan.get(str(layer), ())
        stage = self._stages.get(layer_stage(layer))
        if stage is None:
            return None
        if BUDGET in self._stages:
            return (self._stages[BUDGET].plan or {}).get(str(layer), ())
        if stage.sizes is not None:  # of a given number of heads, all layers share
            return None
        return stage.removed if isinstance(stage.removed, tuple) else ()

    def _latest_numbers(self, current: str, began: float) -> dict[str, float]:
        """Return the latest numbers since a stage began; it may have several tunings."""
        new = {name: value for name, (moment, value) in self._numbers.items() if moment >= began}
        for latest in reversed(new):
            series = latest.rpartition("/")[0]
            if series == f"{current}/search" or is_tuning_series(series, current):
                of_series = (name for name in new if name.rpartition("/")[0] == series)
                return {name.rpartition("/")[2]: new[name] for name in of_series}
        return {}

    def _resume_command(self, process: ProcessRecord | None) -> str:
        if process is None or process.command is None:
            return f"the same call with out={str(self.folder)!r}, resume=True"
        command = process.command
        if _STUDY.match(command):  # its runs may be computed in another folder than it was typed in
            return command
        if "--resume" not in command.split():
            command = f"{command} --resume"
        if process.folder is None or _is_here(process.folder):
            return command
        return f"cd {shlex.quote(process.folder)} && {command}"


def read_if_there(cls: type[R], path: Path) -> R | None:
    """Return the record in a file, None if there is no such file."""
    try:
        return records.read(cls, path, "put a copy of it back, or start the run again")
    except RunError:
        if path.exists():
            raise
        return None


def _seconds_left(stage: CurrentStage, written: float, now: float) -> float | None:
    if not stage.done or not stage.total:
        return None
    left = (written - stage.began) / stage.done * (stage.total - stage.done)
    return max(0.0, left - max(0.0, now - written))


def _layers_left(stages: tuple[StageStatus, ...]) -> float | None:
    layers = [stage for stage in stages if is_layer_stage(stage.name)]
    known = [stage.seconds for stage in layers if stage.seconds is not None]
    waiting = sum(stage.state == "open" for stage in layers)
    return sum(known) / len(known) * waiting if known and waiting else None


def _gain(stage: StageRecord, removed: tuple[int, ...]) -> float | None:
    """Return what removing these heads scored beyond what the search began with, if known."""
    search = stage.search
    if search is None:
        return None
    # Early versions store what the search began with as the unpruned score.
    begun = search.unpruned_score if search.given_score is None else search.given_score
    scored = [(search.best, search.best_score), (search.rollout, search.rollout_score)]
    scored += [(size.removed, size.score) for size in stage.sizes or ()]
    for mask, score in reversed(scored):
        if score is not None and begun is not None and sorted(mask) == sorted(removed):
            return score - begun
    return None


def _is_here(folder: str) -> bool:
    try:
        return Path(folder).samefile(Path())
    except OSError:  # deleted, or on another machine
        return False
