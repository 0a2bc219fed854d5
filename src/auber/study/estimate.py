"""What is left of a study, and what it will cost.

Seconds come from runs already finished in the same folder: a run is expected to take the mean of the finished ones of its
method on its task, else of its method on any task. Where nothing of a kind has been measured, the most rewards and tuning
steps it can take are counted instead, from the settings, the rows and the model's size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from auber.config import Config, FirstTuning, LastTuning, LayerTuning
from auber.data.splits import Splits, make_splits
from auber.errors import CheckpointError, ModelError
from auber.models.source import read_config
from auber.search.players.auber import choose_layer as played_by_the_agent
from auber.search.registry import METHODS
from auber.study.folder import StudyFolder
from auber.study.plan import EMBEDDED, START, Block, Study, StudyRun


@dataclass(frozen=True)
class Estimate:
    """The cost of the runs that are open."""

    open: int
    seconds: float  # of the runs for which it is known
    unknown: int  # runs of a kind that has not been measured yet


@dataclass(frozen=True)
class Bounds:
    """The most that open runs can ask for."""

    rewards: int
    tuning_steps: int


class Clock:
    """How long finished runs took, by what they are."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str | None, str | None], list[float]] = {}

    def add(self, task: str, method: str | None, seconds: float) -> None:
        """A finished run; `method` is None for the start."""
        for key in ((task, method), (None, method)):
            self._seconds.setdefault(key, []).append(seconds)

    def expect(self, task: str, method: str | None) -> float | None:
        """The seconds a run should take; None where none like it was measured."""
        for key in ((task, method), (None, method)):
            if key in self._seconds:
                return sum(self._seconds[key]) / len(self._seconds[key])
        return None

    def estimate(self, open_runs: Sequence[tuple[Block, StudyRun]]) -> Estimate:
        """The cost of these runs."""
        expected = [self.expect(block.task, run.method) for block, run in open_runs]
        known = [seconds for seconds in expected if seconds is not None]
        return Estimate(len(expected), sum(known), len(expected) - len(known))

    def guess(self, open_runs: Sequence[tuple[Block, StudyRun]]) -> float | None:
        """The seconds of these runs, those of an unmeasured kind taken for the mean of all; None if there is no telling."""
        if not self._seconds or not open_runs:
            return None
        estimate = self.estimate(open_runs)
        measured = [
            seconds for (task, _), kind in self._seconds.items() if task is None for seconds in kind
        ]
        return estimate.seconds + estimate.unknown * sum(measured) / len(measured)


def read_clock(study: Study, folder: StudyFolder) -> Clock:
    """The times of all finished runs of a study."""
    clock = Clock()
    for block in study.blocks():
        for run in study.runs(block):
            result = folder.result(block, run)
            if result is not None:
                clock.add(block.task, run.method, result["cost"]["seconds"]["total"])
    return clock


def count_bounds(study: Study, open_runs: Sequence[tuple[Block, StudyRun]]) -> Bounds:
    """The most rewards and tuning steps these runs can take; reads the tasks and the model's configuration."""
    num_layers, num_heads = model_size(study)
    total: Counter[str] = Counter()
    splits: dict[Block, Splits] = {}
    for block, run in open_runs:
        config = study.config(block, run)
        if block not in splits:
            task = study.load_task(block.task, block.seed)
            splits[block] = make_splits(task.train.labels, config, num_layers, not task.has_classes)
        total.update(
            _bounds(run, config, splits[block], num_heads, config.search.layers_of(num_layers))
        )
    return Bounds(total["rewards"], total["tuning_steps"])


def _bounds(
    run: StudyRun, config: Config, splits: Splits, num_heads: int, layers: Sequence[int]
) -> dict[str, int]:
    """`layers` are those searched; who is matched with a search is tuned after no other."""
    steps = 0
    if not run.from_start:
        rows = splits.first if run.name == START else splits.original_first
        steps += _steps(len(rows), config.first)
    rewards = 0
    if run.method is not None:
        method = METHODS[run.method]
        if method.choose_layer is not None:
            rewards = len(layers) * _rewards_of_a_layer(run.method, config, num_heads)
        if method.uses_fold_models(config.protocol):
            # All their tunings, and where it rewinds the first tuning of the pruned model.
            for own in map(splits.without_fold, range(len(splits.folds))):
                steps += _steps(len(own.first), config.first) + _later_steps(own, config, layers)
            if config.search.rewind:
                steps += _steps(len(splits.first), config.first)
        if method.tunes:
            steps += _later_steps(splits, config, layers)
    return {"rewards": rewards, "tuning_steps": steps}


def _later_steps(splits: Splits, config: Config, layers: Sequence[int]) -> int:
    """Of the tunings after the first."""
    after_layers = sum(
        _steps(len(splits.layers[layer].mini_train), config.layer) for layer in layers
    )
    return after_layers + _steps(len(splits.last_train), config.last)


def _rewards_of_a_layer(method: str, config: Config, num_heads: int) -> int:
    """Different masks a layer-wise method can ask for; one head always stays."""
    masks = (1 << num_heads) - 1
    if METHODS[method].choose_layer is played_by_the_agent:
        # Each game, and the roll-out, changes one head after the other; what they begin from is asked for once, and so is each
        # head alone where caution wants to know the noise.
        changes = num_heads if config.search.prior != "none" else num_heads - 1
        alone = num_heads + 1 if config.reward.caution else 0
        return min(masks, (config.agent.episodes + 1) * changes + 1 + alone)
    if method == "greedy":
        alone = num_heads + 1 if config.reward.caution or config.search.prior != "none" else 0
        return min(masks, num_heads * (num_heads + 1) // 2 + alone)
    return masks


def _steps(rows: int, settings: FirstTuning | LayerTuning | LastTuning) -> int:
    return settings.epochs * math.ceil(rows / settings.batch_size)


def model_size(study: Study) -> tuple[int, int]:
    """Layers, and heads of a layer; `ModelError` where the study names no model that can be read."""
    if study.model == EMBEDDED:
        from auber.data.generated import NUM_HEADS, NUM_LAYERS

        return NUM_LAYERS, NUM_HEADS
    try:
        config, _ = read_config(study.model)
    except CheckpointError as error:
        raise ModelError(
            f"'{study.model}': the model's size cannot be read ({error}); check the name"
        ) from error
    return int(config.num_hidden_layers), int(config.num_attention_heads)
