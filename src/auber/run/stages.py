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

from auber.run.effort import Effort
from auber.run.sizes import Sizes
from auber.run.steps import Steps
from auber.run.waypoints import Waypoint
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


def declare_strategy(steps: Steps) -> Strategy:
    """Return the stages of a run."""
    request = steps.request
    effort = Effort(request, steps.splits, steps.encoder)
    if request.kind == "finetune":
        return Strategy(_first(steps, effort))
    if request.method.choose_layer is None:
        return _by_plan(steps, effort)
    if steps.fold_models is not None:
        return _by_fold_models(steps, effort, len(steps.fold_models))
    return _by_layer(steps, effort)


def _by_layer(steps: Steps, effort: Effort) -> Strategy:
    """Decide and tune one layer after the other."""
    layers = (
        Stage(
            layer_stage(layer),
            partial(steps.decide_and_tune, layer),
            (effort.search(layer), effort.after_layer(layer)),
        )
        for layer in steps.request.layers
    )
    decide = (*_first(steps, effort), *_timing(steps), *layers)
    return Strategy(decide, (_last(steps, effort),))


def _by_fold_models(steps: Steps, effort: Effort, folds: int) -> Strategy:
    """Decide all layers on fold models, then tune the pruned model."""
    layers, search = steps.request.layers, steps.request.config.search
    decide = [*_first(steps, effort), *_timing(steps)]
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


def _by_plan(steps: Steps, effort: Effort) -> Strategy:
    """Decide all units at once (rankings) or none (controls), then tune like a search."""
    request, method = steps.request, steps.request.method
    if request.sizes:
        return _by_sizes(steps, effort)
    efforts = effort.ranking(method.name) if method.removes_heads else ()
    decide, last = [*_first(steps, effort)], None
    if method.removes_heads and request.config.size.keep:
        *before, last = request.waypoints(request.config.size.share)
        for waypoint in before:
            name = size_stage(STEP, waypoint.share)
            take = partial(steps.take_step, waypoint, name)
            decide.append(Stage(name, take, _step(waypoint, method.name, effort)))
    decide.append(Stage(PLAN, partial(steps.choose_plan, last), efforts))
    if not method.tunes:
        return Strategy(tuple(decide))
    layers = request.layers if request.tuned_layers is None else list(request.tuned_layers)
    return Strategy(tuple(decide), _tunings(layers, layer_stage, steps, effort, last))


def _by_sizes(steps: Steps, effort: Effort) -> Strategy:
    """Prune and tune a copy of the fine-tuned model for each target size, the largest first.

    With a tolerance, the unpruned model is tuned first, and the sizes end with one that loses more.
    """
    request, sizes, stages = steps.request, Sizes(steps), list[Stage]()
    method, is_needed = request.method.name, sizes.is_within_tolerance
    is_known = False
    for share in request.sizes:
        *before, last = request.waypoints(share)
        previous = "first"
        for waypoint in before:
            name = size_stage(size_stage(STEP, share), waypoint.share)
            take = partial(sizes.take_step, waypoint, name, previous)
            efforts = _step(waypoint, method, effort)
            stages.append(Stage(name, take, efforts, makes_size=True, is_needed=is_needed))
            previous = name
        if share < 1:
            ranking = effort.ranking(method, share)
            if is_known and previous == "first" and method not in ("voita", "random"):
                ranking = ranking[1:]  # the scores of the first size are used again
            name, choose = size_stage(PLAN, share), partial(sizes.choose_plan, last, previous)
            stages.append(Stage(name, choose, ranking, keeps_weights=False, is_needed=is_needed))
            is_known = True
        name, tune = size_stage(LAST, share), partial(sizes.tune_size, last, previous)
        efforts = (effort.last(last),)
        stages.append(Stage(name, tune, efforts, makes_size=True, is_needed=is_needed))
    return Strategy(_first(steps, effort), tuple(stages))


def _step(waypoint: Waypoint, method: str, effort: Effort) -> tuple[float, ...]:
    """Return the efforts of a step to a size on the way."""
    return (*effort.ranking(method, waypoint.share), effort.last(waypoint))


def _first(steps: Steps, effort: Effort) -> tuple[Stage, ...]:
    first = Stage("first", steps.tune_first, (effort.first(),))
    if not steps.request.needs_rate:
        return (first,)
    return (Stage(RATE, steps.choose_rate, effort.trials(), keeps_weights=False), first)


def _timing(steps: Steps) -> tuple[Stage, ...]:
    if not steps.request.config.reward.latency:
        return ()
    return (Stage(TIMING, steps.time_heads, (0.0,), keeps_weights=False),)


def _tunings(
    layers: list[int],
    name: Callable[[int], str],
    steps: Steps,
    effort: Effort,
    last: Waypoint | None = None,
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
    return (*after_layers, _last(steps, effort, last))


def _last(steps: Steps, effort: Effort, waypoint: Waypoint | None = None) -> Stage:
    return Stage(LAST, partial(steps.tune_last, waypoint), (effort.last(waypoint),))
