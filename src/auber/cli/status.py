"""The status of a run or a study, read from its folder at any time; nothing is written."""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from auber.cli.study import describe_outcome
from auber.config import load_toml
from auber.errors import printable
from auber.models.plan import PruningPlan
from auber.run import records
from auber.run.records import ProgressRecord, ResultRecord, RunIdentity, StageRecord
from auber.search.stages import BUDGET, PLAN, is_layer_stage, layer_stage
from auber.study.estimate import read_clock
from auber.study.folder import CLAIM, RECORD, Outcome, State, StudyFolder
from auber.study.plan import read_study, select_runs
from auber.system.locks import is_alive, read_holder
from auber.system.records import Record, read_if_there

R = TypeVar("R", bound=Record)


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
    progress: ProgressRecord | None = None  # None if the run is complete
    silent_seconds: float = 0.0  # since the process last wrote
    stage_seconds_left: float | None = None
    layers_seconds_left: float | None = None  # if the open layers take as long as the others
    numbers: dict[str, float] = Field(default_factory=dict)  # of the current search or tuning
    num_heads: int = 0  # per layer
    layers: tuple[LayerStatus, ...] = ()
    error: str | None = None  # what stopped it
    resume: str | None = None  # the command that continues it
    result: ResultRecord | None = None


@dataclass(frozen=True)
class StudyStatus:
    """What a study's folder shows."""

    folder: str
    model: str
    state: str  # running, elsewhere (on another machine), stopped, complete or failed
    runs: list[tuple[Outcome, RunStatus | None]]  # with the status of unfinished ones
    seconds_left: float | None

    @property
    def states(self) -> list[str]:
        """Return the state of each run: that of its process if it is unfinished."""
        return [status.state if status else str(outcome.state) for outcome, status in self.runs]

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain JSON types; runs are as 'auber study --json' prints them."""
        cells = [
            describe_outcome(outcome)
            | {"state": state, "status": status.to_json() if status else None}
            for (outcome, status), state in zip(self.runs, self.states, strict=True)
        ]
        facts = {"folder": self.folder, "model": self.model, "state": self.state}
        return {**facts, "seconds_left": self.seconds_left, "cells": cells}


def read_status(folder: Path) -> RunStatus | StudyStatus:
    """Return the status of a run or a study; a damaged file raises `RunError`."""
    return _read_study(folder) if (folder / RECORD).is_file() else _read_run(folder)


def _read_run(folder: Path) -> RunStatus:
    run = _read(RunIdentity, folder / "run.json")
    if run is None:
        return RunStatus(folder=str(folder))
    result = _read(ResultRecord, folder / "result.json")
    progress = None if result else _read(ProgressRecord, folder / "progress.json")
    found = {path.stem: _read(StageRecord, path) for path in (folder / "stages").glob("*.json")}
    done = {name: stage for name, stage in found.items() if stage is not None}
    try:  # the events last: they then cover what the other files show
        lines = (folder / "events.jsonl").read_bytes().split(b"\n")[:-1]  # without an open line
    except OSError:
        lines = []
    planned = next(_last_events(lines, "planned"), None)
    end = next(_last_events(lines, "started", "resumed", "stopped"), None)
    error = printable(end.error) if isinstance(end, records.StoppedEvent) else None
    try:
        config = load_toml(folder / "config.toml")
    except (OSError, ValueError, RecursionError):
        config = {}
    state = "complete" if result else _process_state(progress, error)
    names, num_layers, num_heads = tuple(sorted(done)), 0, 0
    if isinstance(planned, records.PlannedEvent):
        names, num_layers, num_heads = planned.stages, planned.layers, planned.heads_per_layer
    stages = {name: done[name].seconds if name in done else None for name in names}
    if result is None:
        stages["evaluation"] = None
    current, *later = [name for name, seconds in stages.items() if seconds is None] or [""]
    times = [stage.seconds for name, stage in done.items() if is_layer_stage(name)]
    open_layers = sum(map(is_layer_stage, later))
    silent = max(0.0, time.time() - progress.time) if progress else 0.0
    stage, left = progress.stage if progress else None, None
    if progress and stage and stage.done and stage.total and state != "stopped":
        left = (progress.time - stage.began) / stage.done * (stage.total - stage.done)
    return RunStatus(
        folder=str(folder),
        state=state,
        run=run,
        seed=printable(str(config.get("seed", "?"))),
        protocol=printable(str(config.get("protocol", "?"))),
        stages=stages,
        progress=progress,
        silent_seconds=silent,
        stage_seconds_left=None if left is None else max(0.0, left - silent),
        layers_seconds_left=sum(times) / len(times) * open_layers or None if times else None,
        numbers=_last_numbers(lines, stage.began) if stage else {},
        num_heads=num_heads,
        layers=tuple(_layer_status(layer, done, result, current) for layer in range(num_layers)),
        error=error if state == "stopped" else None,
        resume=_resume_command(folder, progress) if state == "stopped" else None,
        result=result,
    )


def _read_study(folder: Path) -> StudyStatus:
    study, place = read_study(folder / RECORD), StudyFolder(folder)
    placed = select_runs(study)
    outcomes = [place.outcome(block, run) for block, run in placed]
    runs = [
        (each, _read_run(place.run_path(*at)) if each.state is State.UNFINISHED else None)
        for each, at in zip(outcomes, placed, strict=True)
    ]
    pending = [at for at, each in zip(placed, outcomes, strict=True) if not each.state.is_settled]
    seconds = read_clock(study, place).guess(pending)
    found = StudyStatus(str(folder), study.model_name, "stopped", runs, None)
    # Between two runs of a block, its claim names the process.
    blocks = {block for block, _ in pending}
    claims = [read_holder(place.block_path(block), CLAIM) for block in blocks]
    if not pending:
        state = "complete" if set(found.states) == {"complete"} else "failed"
    elif "running" in found.states or any(claim and claim.is_running for claim in claims):
        state = "running"
    else:
        is_away = "elsewhere" in found.states or any(c and not c.is_here for c in claims)
        state = "elsewhere" if is_away else "stopped"
    at_work = found.states.count("running") + found.states.count("elsewhere")
    left = None if seconds is None else seconds / max(1, at_work)
    return replace(found, state=state, seconds_left=left)


def _read(cls: type[R], path: Path) -> R | None:
    return read_if_there(cls, path, "put a copy of it back, or start the run again")


def _last_events(lines: list[bytes], *kinds: str) -> Iterator[records.Event]:
    """Yield the events of some kinds, the latest first, without damaged lines."""
    words = [f'"{kind}"'.encode() for kind in kinds]
    for line in reversed(lines):
        event = records.parse_event(line) if any(word in line for word in words) else None
        if event is not None and event.event in kinds:
            yield event


def _last_numbers(lines: list[bytes], since: float) -> dict[str, float]:
    """Return the latest numbers of the current search or tuning that were reported since a time."""
    found: dict[str, dict[str, float]] = {}  # of each series, the current one first
    for event in _last_events(lines, "numbers"):
        if not isinstance(event, records.NumbersEvent) or event.time < since or len(found) > 1:
            break
        for name, value in event.values.items():
            series, _, quantity = name.rpartition("/")
            if series.endswith(("/search", "/tuning")):
                found.setdefault(series, {}).setdefault(quantity, value)
    return next(iter(found.values()), {})


def _process_state(progress: ProgressRecord | None, error: str | None) -> str:
    if error is not None:  # its process may live on, such as a notebook's
        return "stopped"
    if progress is None:
        return "waiting"
    process = progress.process
    if process.host not in (None, platform.node()):
        return "elsewhere"
    return "running" if is_alive(process.id, process.started, process.after_boot) else "stopped"


def _layer_status(
    layer: int, done: dict[str, StageRecord], result: ResultRecord | None, current: str
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
    return LayerStatus(state="searched" if stage else "searching" if name == current else "open")


def _resume_command(folder: Path, progress: ProgressRecord | None) -> str:
    process = progress.process if progress else None
    if process is None or process.command is None:
        return f"the same call with out={str(folder)!r}, resume=True"
    command = process.command
    if "auber study " in command:  # its runs may be computed elsewhere than it was typed
        return command
    if "--resume" not in command.split():
        command = f"{command} --resume"
    if process.folder is None or Path(process.folder) == Path.cwd():
        return command
    return f"cd {shlex.quote(process.folder)} && {command}"
