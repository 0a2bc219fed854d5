"""One run as its folder shows it at a moment: plain records, whoever fills or draws them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from auber.cli.live.process import ProcessView


class RunState(StrEnum):
    """How a run stands."""

    WAITING = "waiting"  # nothing of it is there yet
    RUNNING = "running"
    ELSEWHERE = (
        "elsewhere"  # at work on another machine, or lost there: that cannot be told from here
    )
    STOPPED = "stopped"
    COMPLETE = "complete"


@dataclass(frozen=True)
class StageView:
    """One stage of a run."""

    name: str
    state: str  # done, present or open
    seconds: float | None = None


@dataclass(frozen=True)
class ProgressView:
    """How far the present stage is, and all of them."""

    stage: str
    done: int
    total: int  # 0: not known
    note: str
    seconds_left: float | None
    finished_share: float | None  # of the whole run, by the work of its stages


@dataclass(frozen=True)
class LayerView:
    """The heads of a layer."""

    layer: int
    state: str  # decided, searched (what goes is known when all layers are), searching or open
    removed: tuple[int, ...]
    gain: (
        float | None
    )  # what the choice gained on the reward set over what the search began from, where there was one


@dataclass(frozen=True)
class SearchView:
    """The search of the present layer."""

    layer: int
    curve: tuple[float, ...]
    curve_is: str  # "return" of each episode, or "score" of each mask
    given: tuple[int, ...]  # the heads that the plan it began from removes
    given_score: (
        float | None
    )  # of what it began from; without such a plan that is the unpruned layer
    unpruned_score: float | None  # of the layer with all its heads, where that was asked for
    best_score: float | None
    rewards_asked: int | None
    rewards_computed: int
    rewards_per_second: float | None


@dataclass(frozen=True)
class TuningView:
    """The last that was heard of the present tuning."""

    step: int
    loss: float
    steps_per_second: float | None


@dataclass(frozen=True)
class EventView:
    """Something that happened."""

    time: float
    text: str


@dataclass(frozen=True)
class RunView:
    """Everything a look at a run's folder shows; `num_heads` and `num_layers` are None until the run has written them."""

    folder: str
    state: RunState
    facts: dict[str, Any]  # kind, model, task, method, metric, seed, protocol
    stages: tuple[StageView, ...] = ()
    progress: ProgressView | None = None
    layers_left_seconds: float | None = (
        None  # as long as the searched ones took; the last tuning is not in it
    )
    num_layers: int | None = None
    num_heads: int | None = None
    layers: tuple[LayerView, ...] = ()
    search: SearchView | None = None
    tuning: TuningView | None = None
    process: ProcessView | None = None
    running_seconds: float | None = None
    error: str | None = None  # why it stopped, where it could still say so
    resume: str | None = None  # how to go on, where it has stopped
    result: dict[str, Any] | None = None  # dev, train, gap, removed, total, seconds
    events: tuple[EventView, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether there is a result."""
        return self.state is RunState.COMPLETE

    @property
    def is_complete(self) -> bool:
        """The same: a run is over when it has its result."""
        return self.is_over

    @property
    def is_left(self) -> bool:
        """Whether it has begun, has no result, and nobody is at work."""
        return self.state is RunState.STOPPED
