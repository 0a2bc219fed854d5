"""Estimate the remaining time of a study.

A run is expected to take the mean time of the finished runs of its method on its task, else of its
method on any task. Where there are none, the largest possible numbers of rewards and tuning steps
follow from the settings, the rows and the size of the model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auber.config import Config, FirstTuning, LastTuning, LayerTuning
from auber.errors import CheckpointError, ModelError
from auber.search.players.auber import choose_layer as choose_with_agent
from auber.search.registry import METHODS
from auber.study.folder import StudyFolder
from auber.study.plan import EMBEDDED, START, Block, PlacedRun, Study, StudyRun, select_runs

if TYPE_CHECKING:
    from auber.data.splits import Splits


@dataclass(frozen=True)
class Estimate:
    """The cost of the pending runs."""

    open: int
    seconds: float  # of the runs whose kind was measured
    unknown: int  # runs of a kind that was not measured


@dataclass(frozen=True)
class Bounds:
    """The largest cost of the pending runs."""

    rewards: int
    tuning_steps: int


class Clock:
    """The times of finished runs by task and method; the method of the first run is None."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str | None, str | None], list[float]] = defaultdict(list)

    def add(self, task: str, method: str | None, seconds: float) -> None:
        """Add a finished run."""
        self._seconds[task, method].append(seconds)
        self._seconds[None, method].append(seconds)

    def expect(self, task: str, method: str | None) -> float | None:
        """Return the expected seconds of a run, None if no run of its method has finished."""
        times = self._seconds.get((task, method)) or self._seconds.get((None, method))
        return sum(times) / len(times) if times else None

    def estimate(self, runs: Sequence[PlacedRun]) -> Estimate:
        """Return the cost of these runs."""
        expected = [self.expect(block.task, run.method) for block, run in runs]
        known = [seconds for seconds in expected if seconds is not None]
        return Estimate(len(expected), sum(known), len(expected) - len(known))

    def guess(self, runs: Sequence[PlacedRun]) -> float | None:
        """Return the seconds of these runs; one of an unmeasured kind takes the mean of all."""
        measured = [s for (task, _), times in self._seconds.items() if task is None for s in times]
        if not measured or not runs:
            return None
        estimate = self.estimate(runs)
        return estimate.seconds + estimate.unknown * sum(measured) / len(measured)


def read_clock(study: Study, folder: StudyFolder) -> Clock:
    """Return the times of all finished runs of a study."""
    clock = Clock()
    for block, run in select_runs(study):
        result = folder.result(block, run)
        if result is not None:
            clock.add(block.task, run.method, result.cost.seconds["total"])
    return clock


def count_bounds(study: Study, runs: Sequence[PlacedRun]) -> Bounds:
    """Return the bounds of these runs; reads the tasks and the configuration of the model."""
    from auber.data.splits import make_splits

    num_layers, num_heads = model_size(study)
    splits: dict[Block, Splits] = {}
    rewards = steps = 0
    for block, run in runs:
        config = study.config(block, run)
        layers = config.search.layers_of(num_layers)
        if block not in splits:
            task = study.load_task(block.task, block.seed)
            splits[block] = make_splits(task.train.labels, config, num_layers, not task.has_classes)
        steps += _count_steps(run, config, splits[block], layers)
        if run.method is not None and METHODS[run.method].choose_layer is not None:
            rewards += len(layers) * _most_rewards(run.method, config, num_heads)
    return Bounds(rewards, steps)


def _count_steps(run: StudyRun, config: Config, splits: Splits, layers: Sequence[int]) -> int:
    """Return the tuning steps of a run that tunes after each of these layers."""

    def count(settings: FirstTuning | LayerTuning | LastTuning, rows: Sequence[int]) -> int:
        return settings.epochs * math.ceil(len(rows) / settings.batch_size)

    def count_later(splits: Splits) -> int:
        after_layers = (count(config.layer, splits.layers[i].mini_train) for i in layers)
        return sum(after_layers) + count(config.last, splits.last_train)

    steps = 0
    if not run.from_start:
        steps += count(config.first, splits.first if run.name == START else splits.original_first)
    if run.method is None:
        return steps
    method = METHODS[run.method]
    if method.uses_fold_models(config.protocol):
        for own in map(splits.without_fold, range(len(splits.folds))):
            steps += count(config.first, own.first) + count_later(own)
        steps += count(config.first, splits.first) * config.search.rewind
    return steps + (count_later(splits) if method.tunes else 0)


def _most_rewards(method: str, config: Config, num_heads: int) -> int:
    """Return the number of different masks of a layer that a method can score."""
    masks = (1 << num_heads) - 1  # one head always stays
    has_prior = config.search.prior != "none"
    if METHODS[method].choose_layer is choose_with_agent:
        # Each game and the roll-out change one head after the other from a common mask. Caution
        # scores each head alone to measure the noise.
        changes = num_heads if has_prior else num_heads - 1
        alone = num_heads + 1 if config.reward.caution else 0
        return min(masks, (config.agent.episodes + 1) * changes + 1 + alone)
    if method == "greedy":
        alone = num_heads + 1 if config.reward.caution or has_prior else 0
        return min(masks, num_heads * (num_heads + 1) // 2 + alone)
    return masks


def model_size(study: Study) -> tuple[int, int]:
    """Return the numbers of layers and of heads in a layer."""
    if study.model == EMBEDDED:
        from auber.data.generated import NUM_HEADS, NUM_LAYERS

        return NUM_LAYERS, NUM_HEADS
    from auber.models.source import read_config

    try:
        config, _ = read_config(study.model)
    except CheckpointError as error:
        raise ModelError(
            f"'{study.model}': the model's size cannot be read ({error}); check the name"
        ) from error
    return int(config.num_hidden_layers), int(config.num_attention_heads)
