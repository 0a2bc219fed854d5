"""The stages of a run, declared once per strategy.

A stage has a name, the function that does it, its effort as shown by the progress bar, and whether
its weights are stored. `declare_strategy` lists them; the pipeline derives from the list what to
run, what to skip when a run is resumed, the progress and the time left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from auber.data.splits import Splits
from auber.models.encoders.base import Encoder
from auber.run.request import Request
from auber.run.steps import Steps
from auber.run.trials import EPOCHS, RATES, count_rows
from auber.search.rankings.exchange import searches
from auber.search.stages import (
    BUDGET,
    LAST,
    PLAN,
    PRIOR,
    RATE,
    REWIND,
    STEP,
    TIMING,
    fold_model_stage,
    layer_stage,
    size_stage,
    tuning_stage,
)

# Relative to tuning on a row once: computing a row, and scoring it from cached layers.
_FORWARD, _REWARD = 1 / 3, 1 / 10
_PLAN = 1 / 8  # scoring an unpruned model on a row, without padding
_REPAIR_ROWS = 500
_REWARDS_OF_A_PLAYER = 50
_REWARDS_PER_GAME = 4  # that were not scored before, in a usual game


@dataclass(frozen=True)
class Stage:
    """One stage of a run."""

    name: str
    run: Callable[[], dict[str, Any]]  # changes the model in place and returns what to record
    efforts: tuple[float, ...]  # of each step that progress shows, relative to other stages
    keeps_weights: bool = True  # store the model if it changed; else a resumed run prunes it again
    fold: int | None = None  # stores the fold model of this fold instead
    makes_size: bool = False  # begins with the fine-tuned model, and stores its own
    is_needed: Callable[[], bool] = lambda: True  # otherwise it is skipped


@dataclass(frozen=True)
class Strategy:
    """The stages of a run: those that decide, then those that tune what is left."""

    decide: tuple[Stage, ...]
    tune: tuple[Stage, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in order."""
        return self.decide + self.tune


def declare_strategy(request: Request, steps: Steps) -> Strategy:
    """Return the stages of a run."""
    effort = Effort(request, steps.splits, steps.encoder)
    if request.kind == "finetune":
        return Strategy(_first(request, steps, effort))
    if request.method.choose_layer is None:
        return _by_plan(request, steps, effort)
    if steps.fold_models is not None:
        return _by_fold_models(request, steps, effort, len(steps.fold_models))
    return _by_layer(request, steps, effort)


def _by_layer(request: Request, steps: Steps, effort: Effort) -> Strategy:
    """Decide and tune one layer after the other."""
    layers = (
        Stage(
            layer_stage(layer),
            partial(steps.decide_and_tune, layer),
            (effort.search(layer), effort.after_layer(layer)),
        )
        for layer in request.layers
    )
    decide = (*_first(request, steps, effort), *_timing(request, steps), *layers)
    return Strategy(decide, (_last(steps, effort),))


def _by_fold_models(request: Request, steps: Steps, effort: Effort, folds: int) -> Strategy:
    """Decide all layers on fold models, then tune the pruned model."""
    layers, search = request.layers, request.config.search
    decide = [*_first(request, steps, effort), *_timing(request, steps)]
    if search.prior != "none":
        efforts = effort.ranking(search.prior)
        decide.append(Stage(PRIOR, steps.choose_prior, efforts, keeps_weights=False))
    for fold in range(folds):
        tune = partial(steps.tune_fold_model, fold)
        decide.append(
            Stage(fold_model_stage(fold), tune, effort.fold_model(fold, layers), fold=fold)
        )
    for layer in layers:
        name, search_layer = layer_stage(layer), partial(steps.decide, layer)
        decide.append(Stage(name, search_layer, (effort.search(layer),), keeps_weights=False))
    if search.heads:
        decide.append(Stage(BUDGET, steps.distribute_heads, (), keeps_weights=False))
    if search.rewind:
        decide.append(Stage(REWIND, steps.rewind, (effort.first(),)))
    return Strategy(tuple(decide), _tunings(layers, tuning_stage, steps, effort))


def _by_plan(request: Request, steps: Steps, effort: Effort) -> Strategy:
    """Decide all heads at once (rankings) or none (controls), then tune like a search."""
    method = request.method
    if request.sizes:
        return _by_sizes(request, steps, effort)
    efforts = effort.ranking(method.name) if method.removes_heads else ()
    decide = (*_first(request, steps, effort), Stage(PLAN, steps.choose_plan, efforts))
    if not method.tunes:
        return Strategy(decide)
    layers = request.layers if request.tuned_layers is None else list(request.tuned_layers)
    return Strategy(decide, _tunings(layers, layer_stage, steps, effort))


def _by_sizes(request: Request, steps: Steps, effort: Effort) -> Strategy:
    """Prune and tune a copy of the fine-tuned model for each target size, the largest first.

    With a tolerance, the unpruned model is tuned first, and the sizes end with one that loses more.
    With steps on the way, a step or size is ranked when it is tuned; otherwise just before it.
    """
    method, stages = request.method.name, list[Stage]()
    on_the_way = {(share, STEP): (steps.take_step, effort.step(share)) for share in request.steps}
    at_the_end = {(share, LAST): (steps.tune_size, effort.last(share)) for share in request.sizes}
    is_known = False
    for (share, name), (run, tuning) in sorted((on_the_way | at_the_end).items(), reverse=True):
        is_needed = partial(steps.needs_size, share)
        before: tuple[float, ...] = ()
        if share < 1:
            before = effort.ranking(method, share)
            if not request.steps:
                # All but these compute their scores once.
                efforts = before[1:] if is_known and method not in ("voita", "random") else before
                plan, make = size_stage(PLAN, share), partial(steps.choose_plan, share)
                stages.append(Stage(plan, make, efforts, keeps_weights=False, is_needed=is_needed))
                is_known, before = True, ()
            before += (effort.repair(),) * request.config.size.repair
        place, tune = size_stage(name, share), partial(run, share)
        stages.append(Stage(place, tune, (*before, tuning), makes_size=True, is_needed=is_needed))
    return Strategy(_first(request, steps, effort), tuple(stages))


def _first(request: Request, steps: Steps, effort: Effort) -> tuple[Stage, ...]:
    first = Stage("first", steps.tune_first, (effort.first(),))
    if not request.needs_rate:
        return (first,)
    return (Stage(RATE, steps.choose_rate, effort.trials(), keeps_weights=False), first)


def _timing(request: Request, steps: Steps) -> tuple[Stage, ...]:
    if not request.config.reward.latency:
        return ()
    return (Stage(TIMING, steps.time_heads, (0.0,), keeps_weights=False),)


def _tunings(
    layers: list[int], name: Callable[[int], str], steps: Steps, effort: Effort
) -> tuple[Stage, ...]:
    after_layers = (
        Stage(
            name(layer),
            partial(steps.tune_after, layer),
            (effort.after_layer(layer),),
            is_needed=partial(steps.is_tuned, layer),
        )
        for layer in layers
    )
    return (*after_layers, _last(steps, effort))


def _last(steps: Steps, effort: Effort) -> Stage:
    return Stage(LAST, steps.tune_last, (effort.last(),))


class Effort:
    """How long stages take relative to each other, for the time left; nothing else depends on it.

    The unit is tuning on one row once. The number of rewards of a search is that of a usual one.
    """

    def __init__(self, request: Request, splits: Splits, encoder: Encoder) -> None:
        self._request, self._splits, self._encoder = request, splits, encoder
        self._config = request.config

    @property
    def _share(self) -> float:
        """The share of the multiply-adds that remains, 1 if it is not known."""
        return min(self._config.size.shares, default=1.0)

    def first(self) -> float:
        """Return the effort of the first tuning."""
        return float(self._config.first.epochs * len(self._splits.first))

    def trials(self) -> tuple[float, ...]:
        """Return the effort of each trial of a learning rate."""
        rows = min(len(self._splits.first), count_rows(self._request.hardware))
        return (float(EPOCHS * rows),) * len(RATES)

    def after_layer(self, layer: int) -> float:
        """Return the effort of the tuning after a layer."""
        return float(self._config.layer.epochs * len(self._splits.layers[layer].mini_train))

    def repair(self) -> float:
        """Return the effort of refitting a pruned model: a pass of two models over some rows."""
        return 2 * _FORWARD * min(len(self._splits.first), _REPAIR_ROWS)

    def step(self, share: float) -> float:
        """Return the effort of the tuning after a step on the way to a size."""
        return self._at(share) * self._config.size.step_epochs * len(self._splits.last_train)

    def last(self, share: float | None = None) -> float:
        """Return the effort of the last tuning, with the scores of its watched rows."""
        last, splits, share = self._config.last, self._splits, share or self._share
        watched = last.evaluations_per_epoch * len(splits.last_watch)
        return self._at(share) * last.epochs * (len(splits.last_train) + _FORWARD * watched)

    def _at(self, share: float) -> float:
        """Return the effort of tuning on a row at a size: embeddings and optimiser stay."""
        return (1 + share) / 2

    def fold_model(self, fold: int, layers: list[int]) -> tuple[float, ...]:
        """Return the effort of each tuning of a fold model."""
        own = Effort(self._request, self._splits.without_fold(fold), self._encoder)
        return (own.first(), *map(own.after_layer, layers), own.last())

    def search(self, layer: int) -> float:
        """Return the effort of a layer's rewards; each computes the layers behind it."""
        heads = len(self._encoder.present(layer))
        usual = heads + _REWARDS_PER_GAME * self._config.agent.episodes
        by_method = {
            "exhaustive": 1 << heads,
            "greedy": heads * (heads + 1) // 2,
            "surrogate": self._config.surrogate.rewards,
        }
        name = self._request.method.name
        guess = _REWARDS_OF_A_PLAYER if ":" in name else usual  # one's own may ask for any number
        rewards = min(by_method.get(name, guess), 1 << heads)
        behind = 1 - layer / self._encoder.num_layers
        return _REWARD * rewards * len(self._splits.layers[layer].reward) * behind

    def ranking(self, method: str, share: float | None = None) -> tuple[float, ...]:
        """Return the efforts of a ranking, to a share; without one, that of the settings."""
        config, rows = self._config, len(self._splits.first)
        ranking = {"random": 0, "voita": config.voita.trials * config.voita.epochs * rows}
        efforts: tuple[float, ...] = (float(ranking.get(method, rows)),)
        share = share or self._share
        if method == "exchange" and (not config.size.keep or searches(config.size, share)):
            plans = config.search.rewards * min(rows, config.search.rows)
            efforts += (_PLAN * share * plans,)
        return efforts

    def evaluation(self) -> float:
        """Return the effort of the scores at the end."""
        task = self._request.task
        models = len(self._request.sizes) or 1
        rows = models * len(task.train.labels) + (models + 1) * len(task.dev.labels)
        return _FORWARD * rows
