"""The status of a run or a study, read from its folder at any time; nothing is written."""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from auber.cli.study import describe_outcome
from auber.config import load_toml
from auber.errors import ConfigError, printable
from auber.models.plan import PruningPlan
from auber.run.events import (
    Event,
    NumbersEvent,
    PlannedEvent,
    ProcessEvent,
    ProgressRecord,
    StoppedEvent,
    parse_event,
)
from auber.run.records import RunIdentity
from auber.run.result_record import ResultRecord
from auber.run.stage_record import StageRecord
from auber.search.stages import BUDGET, PLAN, layer_stage
from auber.study.folder import CLAIM, RECORD, State, StudyFolder, read_clock
from auber.study.plan import read_study, select_runs
from auber.system.locks import is_alive, read_holder
from auber.system.records import Record, read_if_there

R = TypeVar("R", bound=Record)
E = TypeVar("E", bound=Event)


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
    seconds_left: float | None = None
    numbers: dict[str, float] = Field(default_factory=dict)  # of the current search or tuning
    num_heads: int = 0  # per layer
    layers: tuple[LayerStatus, ...] = ()
    error: str | None = None  # what stopped it
    resume: str | None = None  # the command that continues it
    result: ResultRecord | None = None


class StudyStatus(Record):
    """What a study's folder shows."""

    folder: str
    model: str
    state: str  # running, elsewhere (on another machine), stopped, complete or failed
    seconds_left: float | None
    # The runs as 'auber study --json' prints them. An unfinished one has the state of its process
    # and, as `status`, that of its folder.
    cells: tuple[dict[str, Any], ...]


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
    events = _read_events(folder / "events.jsonl")  # last: they cover what the other files show
    planned = _last(events, PlannedEvent)
    end = _last(events, ProcessEvent, StoppedEvent)
    error = printable(end.error) if isinstance(end, StoppedEvent) else None
    try:
        config = load_toml(folder / "config.toml")
    except ConfigError:
        config = {}
    state = "complete" if result else _process_state(progress, error)
    stages = {
        name: done[name].seconds if name in done else None
        for name in (planned.stages if planned else sorted(done))
    }
    if result is None:
        stages["evaluation"] = None
    current = next((name for name, seconds in stages.items() if seconds is None), "")
    silent = max(0.0, time.time() - progress.time) if progress else 0.0
    stage, stage_left, left = progress.stage if progress else None, None, None
    if progress and state != "stopped":
        left = progress.seconds_left
        if stage and stage.done and stage.total:
            stage_left = (progress.time - stage.began) / stage.done * (stage.total - stage.done)
    return RunStatus(
        folder=str(folder),
        state=state,
        run=run,
        seed=printable(str(config.get("seed", "?"))),
        protocol=printable(str(config.get("protocol", "?"))),
        stages=stages,
        progress=progress,
        silent_seconds=silent,
        stage_seconds_left=None if stage_left is None else max(0.0, stage_left - silent),
        seconds_left=None if left is None else max(0.0, left - silent),
        numbers=_last_numbers(events, stage.began) if stage else {},
        num_heads=planned.heads_per_layer if planned else 0,
        layers=tuple(_read_layers(planned.layers, done, result, current)) if planned else (),
        error=error if state == "stopped" else None,
        resume=_resume_command(folder, progress) if state == "stopped" else None,
        result=result,
    )


def _read_study(folder: Path) -> StudyStatus:
    study, place = read_study(folder / RECORD), StudyFolder(folder)
    cells, pending = [], []
    for block, run in select_runs(study):
        outcome = place.outcome(block, run)
        if not outcome.state.is_settled:
            pending.append((block, run))
        cell = describe_outcome(outcome) | {"status": None}
        if outcome.state is State.UNFINISHED:
            status = _read_run(place.run_path(block, run))
            cell |= {"state": status.state, "status": status.to_json()}
        cells.append(cell)
    states = [cell["state"] for cell in cells]
    # Between two runs of a block, its claim names the process.
    claims = [read_holder(place.block_path(block), CLAIM) for block in {b for b, _ in pending}]
    if not pending:
        state = "complete" if set(states) == {"complete"} else "failed"
    elif "running" in states or any(claim and claim.is_running for claim in claims):
        state = "running"
    elif "elsewhere" in states or any(claim and not claim.is_here for claim in claims):
        state = "elsewhere"
    else:
        state = "stopped"
    seconds = read_clock(study, place).guess(pending)
    if seconds is not None:
        seconds /= max(1, states.count("running") + states.count("elsewhere"))
    return StudyStatus(
        folder=str(folder),
        model=study.model_name,
        state=state,
        seconds_left=seconds,
        cells=tuple(cells),
    )


def _read(cls: type[R], path: Path) -> R | None:
    return read_if_there(cls, path, "put a copy of it back, or start the run again")


def _read_events(path: Path) -> list[Event]:
    """Return the events, without damaged lines and without a last line that is being written."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    return [event for event in map(parse_event, lines) if event is not None]


def _last(events: list[Event], *kinds: type[E]) -> E | None:
    return next((event for event in reversed(events) if isinstance(event, kinds)), None)


def _last_numbers(events: list[Event], since: float) -> dict[str, float]:
    """Return the latest numbers of the search or tuning that last reported since a time."""
    current, found = "", dict[str, float]()
    for event in events:
        if not isinstance(event, NumbersEvent) or event.time < since:
            continue
        for name, value in event.values.items():
            series, _, quantity = name.rpartition("/")
            if series.endswith(("/search", "/tuning")):
                if series != current:
                    current, found = series, {}
                found[quantity] = value
    return found


def _process_state(progress: ProgressRecord | None, error: str | None) -> str:
    if error is not None:  # its process may live on, such as a notebook's
        return "stopped"
    if progress is None:
        return "waiting"
    process = progress.process
    if process.host not in (None, platform.node()):
        return "elsewhere"
    return "running" if is_alive(process.id, process.started, process.after_boot) else "stopped"


def _read_layers(
    count: int, done: dict[str, StageRecord], result: ResultRecord | None, current: str
) -> Iterator[LayerStatus]:
    plan: object = result and result.plan
    if result is None and PLAN in done:
        plan = done[PLAN].removed
    elif result is None and BUDGET in done:
        plan = done[BUDGET].plan
    for layer in range(count):
        name = layer_stage(layer)
        stage = done.get(name)
        if isinstance(plan, PruningPlan):
            removed = plan.heads.get(layer, ())
        elif stage is not None and stage.sizes is None and isinstance(stage.removed, tuple | None):
            removed = stage.removed or ()
        else:  # where sizes were scored, the layers share a given number of heads
            state = "searched" if stage else "searching" if name == current else "open"
            yield LayerStatus(state=state)
            continue
        gain = stage.scores.gain(removed) if stage else None
        yield LayerStatus(state="decided", removed=removed, gain=gain)


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
