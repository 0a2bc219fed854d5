"""The status of a run, read from its folder before, during or after the run; nothing is written."""

from __future__ import annotations

import platform
import re
import shlex
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from auber.config import load_toml
from auber.errors import printable
from auber.run.records import (
    CurrentStage,
    DevEvent,
    Event,
    MessageEvent,
    NumbersEvent,
    PlannedEvent,
    ProcessEvent,
    ProcessRecord,
    ProgressRecord,
    ResultRecord,
    RunIdentity,
    ScoreLine,
    StageEvent,
    StageRecord,
    StoppedEvent,
    parse_event,
)
from auber.search.stages import (
    BUDGET,
    PLAN,
    PRIOR,
    is_layer_stage,
    is_tuning_series,
    layer_of,
    layer_stage,
)
from auber.system import records
from auber.system.locks import is_alive
from auber.system.records import Record

R = TypeVar("R", bound=Record)

_EVENTS = 20  # of the last ones in a status
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


class SearchStatus(Record):
    """The search of the current layer; scores are the metric on the reward set."""

    layer: int
    given: tuple[int, ...]  # heads that the plan it began with removes
    given_score: float | None
    best_score: float | None
    rewards_asked: int | None
    rewards_computed: int


class TuningStatus(Record):
    """The last numbers of the current tuning."""

    step: int
    loss: float
    steps_per_second: float | None


class RunStatus(Record):
    """What a run's folder shows."""

    folder: str
    state: str = "waiting"  # running, elsewhere (on another machine), stopped or complete
    run: RunIdentity | None = None
    seed: str = ""
    protocol: str = ""
    stages: tuple[StageStatus, ...] = ()
    stage: CurrentStage | None = None
    share: float | None = None  # of the whole run
    stage_seconds_left: float | None = None
    layers_seconds_left: float | None = None  # if the open layers take as long as the others
    num_heads: int = 0  # per layer
    layers: tuple[LayerStatus, ...] = ()
    search: SearchStatus | None = None
    tuning: TuningStatus | None = None
    process: ProcessRecord | None = None
    running_seconds: float | None = None
    silent_seconds: float | None = None  # since the process last wrote
    error: str | None = None  # what stopped it
    resume: str | None = None  # the command that continues it
    result: ResultRecord | None = None
    events: tuple[tuple[float, str], ...] = ()  # time and text


class RunReader:
    """Read a run's folder again and again; a file that cannot change is read once.

    A damaged file raises `RunError`; damaged lines of the events and scores are skipped.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock
        self._event_lines = _Tail(folder / "events.jsonl")
        self._score_lines = _Tail(folder / "scores.jsonl")
        self._scores: dict[int, _Scores] = {}
        self._forget()

    def _forget(self) -> None:
        self._identity: RunIdentity | None = None
        self._config: dict[str, Any] = {}
        self._stages: dict[str, StageRecord] = {}
        self._planned: PlannedEvent | None = None
        self._began: ProcessEvent | None = None
        self._error: str | None = None
        self._last_event = 0.0
        self._events: list[tuple[float, str]] = []
        self._numbers: dict[str, tuple[float, int, float]] = {}  # time, step, value; latest last

    def read(self) -> RunStatus:
        """Return the current status."""
        if not self._identity:
            try:
                self._config = load_toml(self.folder / "config.toml")
            except (OSError, ValueError, RecursionError):
                return RunStatus(folder=str(self.folder))
            self._identity = read_if_there(RunIdentity, self.folder / "run.json")
        # Events last: they then cover what the other files show.
        result = read_if_there(ResultRecord, self.folder / "result.json")
        progress = read_if_there(ProgressRecord, self.folder / "progress.json")
        self._read_stages()
        self._read_scores()
        self._read_events()
        if self._identity is None:
            return RunStatus(folder=str(self.folder))

        now = self._clock()
        process = progress.process if progress else None
        if process is None and self._began is not None and self._began.process is not None:
            process = ProcessRecord(id=self._began.process)
        state = self._state(result, process)
        stages = self._list_stages(is_complete=result is not None)
        current = next((stage.name for stage in stages if stage.state == "current"), None)
        stage = progress.stage if progress and result is None else None
        layer = layer_of(current) if current and stage and "search" in stage.name else None
        last = max(progress.time if progress else 0.0, self._last_event)
        worked_until = now if state != "stopped" else self._last_event or now
        return RunStatus(
            folder=str(self.folder),
            state=state,
            run=self._identity,
            seed=printable(str(self._config.get("seed"))),
            protocol=printable(str(self._config.get("protocol"))),
            stages=stages,
            stage=stage,
            share=progress.share if progress and stage else None,
            stage_seconds_left=_seconds_left(stage, progress.time, now)
            if progress and stage and state != "stopped"
            else None,
            layers_seconds_left=None if result else self._layers_left(stages),
            num_heads=self._planned.heads_per_layer if self._planned else 0,
            layers=self._list_layers(result, current),
            search=None if layer is None else self._search(layer),
            tuning=self._tuning(current, stage) if stage and current and layer is None else None,
            process=process,
            running_seconds=max(0.0, worked_until - self._began.time)
            if self._began and not result
            else None,
            silent_seconds=max(0.0, now - last) if last else None,
            error=self._error if state == "stopped" else None,
            resume=self._resume_command(process) if state == "stopped" else None,
            result=result,
            events=tuple(self._events),
        )

    def _read_stages(self) -> None:
        for path in (self.folder / "stages").glob("*.json"):
            if path.stem not in self._stages:
                stage = read_if_there(StageRecord, path)
                if stage is not None:
                    self._stages[path.stem] = stage

    def _read_scores(self) -> None:
        lines = self._score_lines.read()
        if self._score_lines.restarted:
            self._scores = {}
        for line in lines:
            try:
                score = ScoreLine.model_validate_json(line)
            except ValueError:
                continue
            known = self._scores.get(score.layer)
            if known is None or known.key != score.key:  # scores of other weights do not count
                known = self._scores[score.layer] = _Scores(score.key)
            known.by_mask[score.removed] = score.score

    def _read_events(self) -> None:
        lines = self._event_lines.read()
        if self._event_lines.restarted:  # another run has taken its place
            self._forget()
        for line in lines:
            event = parse_event(line)
            if event is None:
                continue
            self._last_event = event.time
            if isinstance(event, NumbersEvent):
                for name, value in event.values.items():
                    self._numbers.pop(name, None)
                    self._numbers[name] = event.time, event.step, value
            elif isinstance(event, ProcessEvent):
                self._began, self._error = event, None
            elif isinstance(event, PlannedEvent):
                self._planned = event
            elif isinstance(event, StoppedEvent):
                self._error = printable(event.error)
            text = _describe(event)
            if text is not None:
                self._events = [*self._events, (event.time, printable(text))][-_EVENTS:]

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

    def _layers_left(self, stages: tuple[StageStatus, ...]) -> float | None:
        layers = [stage for stage in stages if is_layer_stage(stage.name)]
        known = [stage.seconds for stage in layers if stage.seconds is not None]
        waiting = sum(stage.state == "open" for stage in layers)
        return sum(known) / len(known) * waiting if known and waiting else None

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

    def _search(self, layer: int) -> SearchStatus:
        scores = self._scores.get(layer, _Scores("")).by_mask
        prior = self._stages.get(PRIOR)
        given = tuple(sorted((prior.plan or {}).get(str(layer), ()))) if prior else ()
        numbers = [
            self._numbers.get(f"{layer_stage(layer)}/search/rewards_{name}")
            for name in ("asked", "computed")
        ]
        asked, computed = (None if number is None else int(number[2]) for number in numbers)
        return SearchStatus(
            layer=layer,
            given=given,
            given_score=scores.get(given),
            best_score=max(scores.values(), default=None),
            rewards_asked=asked,
            rewards_computed=len(scores) if computed is None else computed,
        )

    def _tuning(self, name_of_stage: str, stage: CurrentStage) -> TuningStatus | None:
        """Return the latest numbers since the stage began; a stage may have several tunings."""
        began = stage.began
        for name, (moment, step, loss) in reversed(self._numbers.items()):
            series = name.removesuffix("/loss")
            is_loss = series != name and moment >= began
            if is_loss and is_tuning_series(series, name_of_stage):
                pace = self._numbers.get(f"{series}/steps_per_second")
                per_second = pace[2] if pace and pace[0] >= began else None
                return TuningStatus(step=step, loss=loss, steps_per_second=per_second)
        return None

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


class _Scores:
    """The scores of a layer's masks under one set of weights."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.by_mask: dict[tuple[int, ...], float] = {}


class _Tail:
    """Return each line of a growing file once, when it is complete.

    `restarted` is set if the file was replaced, cut or deleted: earlier lines no longer count.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._inode: int | None = None
        self.restarted = False

    def read(self) -> list[bytes]:
        """Return the new lines."""
        try:
            with self._path.open("rb") as file:
                status = self._path.stat()
                self.restarted = status.st_size < self._offset or (
                    self._inode not in (None, status.st_ino)
                )
                self._inode = status.st_ino
                if self.restarted:
                    self._offset = 0
                file.seek(self._offset)
                data = file.read()
        except OSError:
            self.restarted, self._inode, self._offset = self._offset > 0, None, 0
            return []
        complete = data.rfind(b"\n") + 1
        self._offset += complete
        return data[:complete].splitlines()


def read_if_there(cls: type[R], path: Path) -> R | None:
    """Return the record in a file, None if there is no such file."""
    if not path.is_file():
        return None
    return records.read(cls, path, "put a copy of it back, or start the run again")


def _seconds_left(stage: CurrentStage, written: float, now: float) -> float | None:
    if not stage.done or not stage.total:
        return None
    left = (written - stage.began) / stage.done * (stage.total - stage.done)
    return max(0.0, left - max(0.0, now - written))


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


def _describe(event: Event) -> str | None:
    """Return an event as text, None if it is not worth a line."""
    match event:
        case ProcessEvent():
            return f"{event.event} by process {event.process}"
        case StageEvent(removed=removed):
            heads = (
                sum(map(len, removed.values())) if isinstance(removed, dict) else len(removed or ())
            )
            what = "" if removed is None else f", {heads} heads removed"
            return f"{event.stage} done in {event.seconds:.0f} s{what}"
        case DevEvent():
            return f"dev {100 * event.score:.2f} points on {event.rows} rows"
        case StoppedEvent():
            return f"stopped: {event.error}"
        case MessageEvent():
            return event.text
    return None
