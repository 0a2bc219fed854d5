"""The record of a finished stage: `stages/NAME.json`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from auber.run.records import Heads, Plan, Share
from auber.search.methods import Mask
from auber.system.records import Count, Number, Record
from auber.training.timing import Ratio

Index = Annotated[str, Field(pattern=r"^[0-9]{1,6}$")]  # a layer or a head as a key of an object
ScoresByHead = dict[Index, dict[Index, Number]]
QValue = Annotated[float, Field(allow_inf_nan=True)]  # the network may diverge
Point = tuple[Count, Number]


@dataclass(frozen=True)
class SearchScores:
    """The recorded scores of one layer's search: the metric on the reward set."""

    given: float | None  # of what the search started from
    unpruned: float | None  # of the layer with all its heads
    # Of the best mask, of the roll-out and, if a number of heads was given, of the best per size.
    masks: Mapping[Mask, float]

    def of(self, removed: Iterable[int]) -> float | None:
        """Return the score of a mask, None if it is not recorded."""
        return self.masks.get(tuple(sorted(removed)))

    def gain(self, removed: Iterable[int]) -> float | None:
        """Return how much a mask scored above the start of the search, None if not recorded."""
        score = self.of(removed)
        return None if score is None or self.given is None else score - self.given


class Trial(Record):
    """A tuning on some rows of train, and its score on others."""

    learning_rate: Number
    epochs: Count
    score: Number | None  # None if it diverged or the score is not a number
    error: Number = 0.0  # standard error of the score, where it is a mean over rows
    one_class: bool = False  # every row got the same answer
    seconds: Number

    @property
    def rank(self) -> tuple[float, int, float]:
        """Return the sorting key: highest score, then fewest epochs, then smallest rate."""
        score = -math.inf if self.score is None else self.score
        return -score, self.epochs, self.learning_rate


class LearnedRecord(Record):
    """Whether the fine-tuned model learned its task, measured on rows that it was tuned on."""

    learned: bool
    one_answer: bool  # to all rows
    score: Number | None  # None if it is not a number
    majority: Share | None = None  # share of the most frequent class
    rows: Count


class TuningRecord(Record):
    """What one tuning did."""

    steps: Count
    seconds: Number
    stopped_early: bool = False
    best_step: Count | None = None
    watched: tuple[tuple[Count, Number, Number], ...] = ()  # (step, score, loss)
    micro_batch: Count | None = None


class FoldTunings(Record):
    """All tunings of one fold model."""

    tunings: Count
    steps: Count
    seconds: Number


class SearchRecord(Record):
    """How one layer was searched. Scores are the metric on the reward set."""

    seconds: Number
    reward_seconds: Number
    rewards_asked: Count
    rewards_computed: Count
    reward_rows: Count | None = None
    present: Heads = ()  # heads of the layer before the search
    given: Heads = ()  # heads that the plan it started from removes
    change_cost: Number = 0.0  # of all heads alike, in earlier versions
    change_costs: tuple[Number, ...] = ()  # points that changing each present head must gain
    time_pay: Number = 0.0  # points for the time that each removed head saves
    given_score: Number | None = None  # of what the search started from
    unpruned_score: Number | None = None
    best: Heads = ()
    best_score: Number | None = None
    curve: tuple[Point, ...] = ()  # (masks scored, best score) at each improvement
    # The DQN player
    state: tuple[Number, ...] = ()
    rollout: Heads = ()
    rollout_score: Number | None = None
    q_values: tuple[QValue, ...] = ()  # of removing each present head first; the last is stopping
    updates: Count | None = None
    # The greedy player
    path: tuple[Any, ...] = ()
    # The exhaustive player
    heads: Heads = ()
    states: dict[str, dict[str, tuple[Number, ...]]] | None = None
    scores: tuple[Number, ...] = ()


class SizeRecord(Record):
    """The best mask of one size."""

    removed: Heads
    score: Number
    gain: Number


class TimingRecord(Record):
    """How much of a model's time one head takes."""

    percent_a_head: Number
    heads: Count
    rows: Count
    length: Count
    ratio: Ratio  # of times, with and without heads


class GateTrial(Record):
    """The gates under one penalty (`voita`)."""

    penalty: Number
    closed: Count
    expected_open: Number
    loss: Number


class HeldOutRecord(Record):
    """How a size does on the rows held out for a tolerance."""

    rows: Count
    score: Number
    loss: Number  # points below the unpruned model
    bound: Number  # of the loss, one-sided at 95 %
    is_within: bool  # whether the bound is within the tolerance


class ExchangeRecord(Record):
    """What exchanges at constant cost gained over the plan that they began with."""

    rewards: Count
    start_score: Number
    score: Number
    seconds: Number


class StageRecord(Record):
    """A finished stage: `stages/NAME.json`, and the event that reports it."""

    seconds: Number
    weights: bool = False  # whether the weights at its end were stored
    model_sha256: str | None = None  # of those weights
    peak_gpu_bytes: Count | None = None
    answers_sha256: str | None = None  # of the file of the unpruned model's answers
    digest: str | None = None  # of the fine-tuned weights, in stage `first`
    learned: LearnedRecord | None = None  # in stage `first`
    removed: Heads | Plan | None = None  # from one layer, or from all by a ranking
    search: SearchRecord | None = None
    sizes: Annotated[tuple[SizeRecord, ...], Field(min_length=1)] | None = None
    rate: Number | None = None  # learning rate of the tunings whose setting is auto
    rate_trials: tuple[Trial, ...] = ()
    tuning: TuningRecord | None = None
    held_out: HeldOutRecord | None = None
    scouting: FoldTunings | None = None
    timing: TimingRecord | None = None
    plan: Plan | None = None
    gain: Number | None = None
    # Rankings
    draw: Count | None = None
    importance: ScoresByHead | None = None
    confidence: ScoresByHead | None = None
    gates: ScoresByHead | None = None
    penalty: Number | None = None
    trials: tuple[GateTrial, ...] = ()
    gate_steps: Count = 0
    exchange: ExchangeRecord | None = None

    @property
    def scores(self) -> SearchScores:
        """Return the scores of the layer's search."""
        masks: dict[Mask, float] = {}
        search = self.search
        if search is None:
            return SearchScores(None, None, masks)
        if search.best_score is not None:
            masks[tuple(sorted(search.best))] = search.best_score
        if search.rollout_score is not None:
            masks[tuple(sorted(search.rollout))] = search.rollout_score
        masks |= {tuple(sorted(size.removed)): size.score for size in self.sizes or ()}
        if search.given_score is not None:
            return SearchScores(search.given_score, search.unpruned_score, masks)
        # Early versions recorded the score that the search started from as `unpruned_score`.
        unpruned = None if search.given else search.unpruned_score
        return SearchScores(search.unpruned_score, unpruned, masks)

    @property
    def ranking(self) -> tuple[str, ScoresByHead] | None:
        """Return the name and the values of the scores that heads were ranked by."""
        for name in ("importance", "confidence", "gates"):
            values = getattr(self, name)
            if values is not None:
                return name, values
        return None
