"""Looks at a run's folder: reads its files, and says what they show in the records of `run_view`."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auber.cli.live import shapes
from auber.cli.live.files import Tail, read_object
from auber.cli.live.process import ProcessView, look_at_process
from auber.cli.live.run_view import (
    EventView,
    LayerView,
    ProgressView,
    RunState,
    RunView,
    SearchView,
    StageView,
    TuningView,
)
from auber.config import load_toml
from auber.errors import printable
from auber.run.fields import Fields
from auber.run.search_scores import SearchScores, read_scores
from auber.search.stages import (
    BUDGET,
    PLAN,
    PRIOR,
    is_layer_stage,
    is_tuning_series,
    layer_of,
    layer_stage,
)

_EVENTS_KEPT = 20
_STUDY = re.compile(r"(torchrun [-a-z]+ [0-9]+ -m )?auber study\b")
_RETURN, _LOSS = (
    "/search/return",
    "/loss",
)  # what numbers are called after their stage, or their tuning


class RunWatcher:
    """Looks at a run's folder again and again; what was read once and cannot change is kept."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock
        self._event_lines, self._score_lines = (
            Tail(folder / "events.jsonl"),
            Tail(folder / "scores.jsonl"),
        )
        self._forget_events()
        self._scores: dict[int, _LayerScores] = {}
        self._facts: dict[str, Any] = {}
        self._stages: dict[str, dict[str, Any]] = {}
        self._searches: dict[str, SearchScores] = {}  # of the stages that searched

    def look(self) -> RunView:
        """What the folder shows now."""
        facts = self._read_facts()
        if not facts:
            return RunView(str(self.folder), RunState.WAITING, {})
        # Events last: what a stage or a result says is then among them already.
        result = shapes.read_shaped(self.folder / "result.json", shapes.RESULT)
        written = self._read_progress()
        self._read_stages()
        self._read_scores()
        self._read_events()

        process = self._process(written)
        state = _state(result, process, self._error)
        stages = self._stage_views(state)
        present = next((stage.name for stage in stages if stage.state == "present"), None)
        stage = (written or {}).get("stage") if result is None else None
        searching = self._searched_layer(present, stage)
        layers = self._layer_views(result, present)
        return RunView(
            folder=str(self.folder),
            state=state,
            facts=facts,
            stages=stages,
            progress=None if stage is None else self._progress(written or {}, stage, state),
            layers_left_seconds=None if result else self._layers_left(stages),
            num_layers=self._num_layers,
            num_heads=self._num_heads,
            layers=layers,
            search=None if searching is None else self._search(searching, written, stage),
            tuning=None
            if stage is None or searching is not None
            else self._tuning(present, stage["began"]),
            process=process,
            running_seconds=None
            if self._began is None or result
            else max(0.0, self._now(state) - self._began),
            error=self._error if state is RunState.STOPPED else None,
            resume=self._how_to_resume(written) if state is RunState.STOPPED else None,
            result=None if result is None else _summary(result),
            events=tuple(self._events),
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read_facts(self) -> dict[str, Any]:
        """What does not change while a run goes on."""
        if not self._facts:
            identity = shapes.read_shaped(self.folder / "run.json", shapes.IDENTITY)
            try:
                config = load_toml(self.folder / "config.toml")
            except (OSError, ValueError, RecursionError):
                return {}
            if identity is None:
                return {}
            shapes.require_shape(self.folder / "config.toml", config, shapes.CONFIG)
            facts = {name: identity.get(name) for name in shapes.IDENTITY}
            facts |= {name: config.get(name) for name in shapes.CONFIG}
            self._facts = {
                name: printable(fact) if isinstance(fact, str) else fact
                for name, fact in facts.items()
            }
        return self._facts

    def _read_progress(self) -> dict[str, Any] | None:
        path = self.folder / "progress.json"
        written = shapes.read_shaped(path, shapes.PROGRESS)
        if written is not None and written.get("stage") is not None:
            shapes.require_shape(path, written["stage"], shapes.PRESENT_STAGE, "stage.")
        return written

    def _read_stages(self) -> None:
        for path in (self.folder / "stages").glob("*.json"):
            if (
                path.stem in self._stages
                or (info := shapes.read_shaped(path, shapes.FINISHED_STAGE)) is None
            ):
                continue
            if info.get("search"):
                shapes.require_shape(path, info["search"], shapes.SEARCH, "search.")
                self._searches[path.stem] = read_scores(Fields(str(path), info))
            self._stages[path.stem] = info

    def _forget_events(self) -> None:
        self._events: list[EventView] = []
        self._planned: list[str] = []
        self._num_layers: int | None = None
        self._num_heads: int | None = None
        self._process_number: int | None = None
        self._began: float | None = None  # when the process at work took the run up
        self._last_event: float | None = None
        self._error: str | None = None
        self._returns: dict[int, list[float]] = {}
        # name -> (time, step, value); the one heard last stands behind
        self._numbers: dict[str, tuple[float, int, float]] = {}

    def _read_events(self) -> None:
        entries = self._event_lines.look()
        if self._event_lines.restarted:  # another run has taken the place
            self._forget_events()
            self._facts, self._stages, self._searches = {}, {}, {}
        for entry in filter(shapes.is_event, entries):
            kind, moment = entry["event"], float(entry["time"])
            self._last_event = moment
            if kind == "numbers":
                self._hear(moment, entry["step"], entry["values"])
                continue
            if kind in ("started", "resumed"):
                self._process_number, self._began, self._error = entry.get("process"), moment, None
            elif kind == "planned":
                self._planned = list(entry["stages"])
                self._num_layers, self._num_heads = entry["layers"], entry["heads_per_layer"]
            elif kind == "stopped":
                self._error = printable(entry["error"])
            text = _describe_event(entry)
            if text is not None:
                self._events = [*self._events, EventView(moment, printable(text))][-_EVENTS_KEPT:]

    def _hear(self, moment: float, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._numbers.pop(name, None)
            self._numbers[name] = (moment, step, value)
            layer = layer_of(name.removesuffix(_RETURN)) if name.endswith(_RETURN) else None
            if layer is not None:
                returns = self._returns.setdefault(layer, [])
                del returns[
                    max(0, step - 1) :
                ]  # a layer whose search was cut is played from its first episode again
                returns.append(value)

    def _read_scores(self) -> None:
        entries = self._score_lines.look()
        if self._score_lines.restarted:
            self._scores = {}
        for entry in filter(shapes.is_score, entries):
            layer, key, score = entry["layer"], entry["key"], float(entry["score"])
            scores = self._scores.get(layer)
            if (
                scores is None or scores.key != key
            ):  # other weights: what was scored before is no part of this search
                scores = self._scores[layer] = _LayerScores(key)
            scores.all.append(score)
            if shapes.is_heads(entry.get("removed")):
                scores.by_mask[tuple(entry["removed"])] = score

    # --- what it means ----------------------------------------------------------------------------------------------

    def _process(self, written: dict[str, Any] | None) -> ProcessView | None:
        last = max((written or {}).get("time", 0.0), self._last_event or 0.0)
        silent = max(0.0, self._clock() - last) if last else None
        if written is not None:
            return look_at_process(written["process"], silent)
        if self._process_number is not None:
            return look_at_process({"id": self._process_number}, silent)
        return None

    def _now(self, state: RunState) -> float:
        """The time up to which it has worked."""
        return (self._last_event or self._clock()) if state is RunState.STOPPED else self._clock()

    def _stage_views(self, state: RunState) -> tuple[StageView, ...]:
        names = self._planned or sorted(self._stages)
        views: list[StageView] = []
        for name in [*names, "evaluation"]:
            info = self._stages.get(name)
            if info is not None or state is RunState.COMPLETE:
                views.append(StageView(name, "done", (info or {}).get("seconds")))
            else:
                is_first_open = all(view.state == "done" for view in views)
                views.append(StageView(name, "present" if is_first_open else "open"))
        return tuple(views)

    def _progress(
        self, written: dict[str, Any], stage: dict[str, Any], state: RunState
    ) -> ProgressView:
        done, total = int(stage["done"]), int(stage["total"])
        left = None
        if done and total and state is not RunState.STOPPED:
            worked = written["time"] - stage["began"]
            silent = max(0.0, self._clock() - written["time"])
            left = max(0.0, worked / done * (total - done) - silent)
        return ProgressView(stage["name"], done, total, stage["note"], left, written.get("share"))

    def _layers_left(self, stages: tuple[StageView, ...]) -> float | None:
        """What the layers that are open will take, if they are like those done."""
        layers = [stage for stage in stages if is_layer_stage(stage.name)]
        known = [stage.seconds for stage in layers if stage.seconds is not None]
        waiting = [stage for stage in layers if stage.state == "open"]
        return sum(known) / len(known) * len(waiting) if known and waiting else None

    def _searched_layer(self, present: str | None, stage: dict[str, Any] | None) -> int | None:
        if present is None or stage is None or "search" not in stage["name"]:
            return None
        return layer_of(present)

    def _layer_views(
        self, result: dict[str, Any] | None, present: str | None
    ) -> tuple[LayerView, ...]:
        if self._num_layers is None:
            return ()
        plan = (result or {}).get("plan") or read_object(self.folder / "plan.json") or {}
        if not shapes.is_plan(plan):
            plan = {}  # it tells nothing that the stages do not
        views = []
        for layer in range(self._num_layers):
            name = layer_stage(layer)
            is_decided = (
                result is not None or PLAN in self._stages or self._chosen(layer) is not None
            )
            if is_decided:
                state = "decided"
            elif name in self._stages:
                state = "searched"
            else:
                state = "searching" if name == present else "open"
            views.append(
                LayerView(layer, state, tuple(plan.get(str(layer), ())), self._gain(layer))
            )
        return tuple(views)

    def _chosen(self, layer: int) -> list[int] | None:
        """The heads that the stages chose to remove of a layer; None while they have not: of a given number, all layers share."""
        info = self._stages.get(layer_stage(layer))
        if info is None:
            return None
        if BUDGET in self._stages:
            chosen: list[int] = (self._stages[BUDGET].get("plan") or {}).get(str(layer), [])
            return chosen
        return None if "sizes" in info else info.get("removed") or []

    def _gain(self, layer: int) -> float | None:
        """What the heads chosen of a searched layer scored beyond what its search began from."""
        scores, chosen = self._searches.get(layer_stage(layer)), self._chosen(layer)
        return None if scores is None or chosen is None else scores.gain(chosen)

    def _search(
        self, layer: int, written: dict[str, Any] | None, stage: dict[str, Any] | None
    ) -> SearchView:
        scores = self._scores.get(layer) or _LayerScores("")
        returns = self._returns.get(layer)
        given = tuple(sorted((self._stages.get(PRIOR, {}).get("plan") or {}).get(str(layer), ())))
        asked = self._numbers.get(f"{layer_stage(layer)}/search/rewards_asked")
        computed = self._numbers.get(f"{layer_stage(layer)}/search/rewards_computed")
        rate = None
        if written is not None and stage is not None:
            moment, count = written["time"], float(len(scores.all))
            if computed is not None:
                moment, _, count = computed
            rate = count / (moment - stage["began"]) if moment > stage["began"] else None
        return SearchView(
            layer=layer,
            curve=tuple(returns or scores.all),
            curve_is="return" if returns else "score",
            given=given,
            given_score=scores.by_mask.get(given),
            unpruned_score=scores.by_mask.get(()),
            best_score=max(scores.all, default=None),
            rewards_asked=None if asked is None else int(asked[2]),
            rewards_computed=len(scores.all) if computed is None else int(computed[2]),
            rewards_per_second=rate,
        )

    def _tuning(self, present: str | None, began: float) -> TuningView | None:
        """What was heard last since the present tuning began, of which a stage may have several."""
        for name, (moment, step, loss) in reversed(self._numbers.items()):
            series = name.removesuffix(_LOSS)
            if (
                present is None
                or moment < began
                or series == name
                or not is_tuning_series(series, present)
            ):
                continue
            pace = self._numbers.get(f"{series}/steps_per_second")
            return TuningView(step, loss, None if pace is None or pace[0] < began else pace[2])
        return None

    def _how_to_resume(self, written: dict[str, Any] | None) -> str:
        process = (written or {}).get("process", {})
        command, folder = process.get("command"), process.get("folder")
        if command is None:
            return f"the same call with out={str(self.folder)!r}, resume=True"
        if _STUDY.match(
            command
        ):  # who computes its runs may be in another folder than who asked for them
            return str(command)
        words = command if "--resume" in command.split() else f"{command} --resume"
        # Relative paths mean the same only where they were typed.
        return (
            words if folder is None or _is_here(folder) else f"cd {shlex.quote(folder)} && {words}"
        )


class _LayerScores:
    """The masks of a layer scored under one set of weights, in order."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.all: list[float] = []
        self.by_mask: dict[tuple[int, ...], float] = {}


def _state(
    result: dict[str, Any] | None, process: ProcessView | None, error: str | None
) -> RunState:
    if result is not None:
        return RunState.COMPLETE
    if error is not None:  # the process may be a session that lives on
        return RunState.STOPPED
    if process is None:
        return RunState.WAITING
    if process.alive is None:
        return RunState.ELSEWHERE
    return RunState.RUNNING if process.alive else RunState.STOPPED


def _is_here(folder: str) -> bool:
    """Whether a folder is the one that relative paths begin in here."""
    try:
        return Path(folder).samefile(Path())
    except OSError:  # it is not there, or on another machine
        return False


def _summary(result: dict[str, Any]) -> dict[str, Any]:
    return {
        "dev": result["dev"]["score"],
        "train": result["train"]["score"],
        "gap": result["gap"],
        "heads_removed": result["heads"]["removed"],
        "heads": result["heads"]["total"],
        "rewards_asked": result["cost"]["rewards_asked"],
        "rewards_computed": result["cost"]["rewards_computed"],
        "seconds": result["cost"]["seconds"]["total"],
    }


def _describe_event(entry: dict[str, Any]) -> str | None:
    """An event in words; None for those that only set the scene."""
    kind = entry.get("event")
    if kind in ("started", "resumed"):
        return f"{kind} by process {entry.get('process')}"
    if kind == "stage":
        removed = entry.get("removed")
        words = [f"{entry['stage']} done in {entry.get('seconds') or 0:.0f} s"]
        if isinstance(removed, list):
            words.append(f"{len(removed)} heads removed")
        elif isinstance(removed, dict):
            words.append(f"{sum(map(len, removed.values()))} heads removed")
        return ", ".join(words)
    if kind == "dev_evaluation":
        return f"dev {100 * entry['score']:.2f} points on {entry['rows']} rows"
    if kind == "stopped":
        return f"stopped: {entry.get('error')}"
    return str(entry.get("text")) if kind == "said" else None
