"""From scores of units to a plan: remove the lowest, to a number of heads or to a target size.

For a target size, neurons go in blocks, the lowest of a layer first, so that the numbers left are
multiples of `size.multiple`. One head and one block stay in each layer.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from auber.config import Size
from auber.errors import ConfigError, ModelError, PlanError
from auber.models.plan import PruningPlan
from auber.search.methods import RankingInputs, kinds_of

if TYPE_CHECKING:
    from auber.models.costs import UnitCosts
    from auber.models.encoders import Encoder

Site = tuple[str, int]  # the kind of units, "heads" or "neurons", and the layer
UnitScores = Mapping[Site, Mapping[int, float]]  # by present unit; the lowest go


def select_units(inputs: RankingInputs, scores: UnitScores) -> PruningPlan:
    """Return the plan that removes the lowest units: the given number of heads, or to the size."""
    for (kind, layer), of_layer in scores.items():
        for unit, score in of_layer.items():
            if not math.isfinite(score):
                raise ModelError(
                    f"layer {layer}, {kind.removesuffix('s')} {unit}: its score must be a finite "
                    f"number, found {score}; check the model's weights"
                )
    if inputs.num_removed is not None:
        return remove_lowest(scores, inputs.num_removed)
    costs = costs_of(inputs.encoder, inputs.config.max_length)
    size = inputs.config.size
    select = _remove_evenly if size.even else _remove_to_share
    return select(scores, inputs.encoder.removed, costs, size)


def divide_by_costs(inputs: RankingInputs, scores: UnitScores) -> UnitScores:
    """Return the scores per multiply-add: what goes first costs most for what it does."""
    cost = cost_by_kind(costs_of(inputs.encoder, inputs.config.max_length))
    return {
        (kind, layer): {unit: score / cost[kind] for unit, score in of_layer.items()}
        for (kind, layer), of_layer in scores.items()
    }


def remove_lowest(scores: UnitScores, num_removed: int) -> PruningPlan:
    """Return the plan that removes the heads with the lowest scores and leaves one in each layer.

    Of equal scores the lower layer goes first, then the lower head.
    """
    ranked = _rank_blocks(scores, 1)
    if not 0 <= num_removed <= len(ranked):
        raise PlanError(
            f"plan: the number of heads to remove must be from 0 to {len(ranked)} (one head stays "
            f"in each layer), found {num_removed}"
        )
    return _make_plan(ranked[:num_removed])


def cost_by_kind(costs: UnitCosts) -> dict[str, int]:
    """Return the multiply-adds per token of a unit of each kind."""
    return {"heads": costs.head, "neurons": costs.neuron}


def costs_of(encoder: Encoder, max_length: int) -> UnitCosts:
    """Return the costs of units in rows of the run's length."""
    from auber.models.costs import UnitCosts

    return UnitCosts.of(encoder, min(max_length, encoder.num_positions))


def check_size(encoder: Encoder, size: Size, max_length: int) -> None:
    """Raise `ConfigError` unless the encoder can have the target size."""
    costs, removed = costs_of(encoder, max_length), encoder.removed
    widths = {len(removed.neurons.get(layer, ())) for layer in range(costs.num_layers)}
    if size.even and len(widths) > 1:
        raise ConfigError(
            "--even needs an encoder whose layers have the same number of neurons, found "
            "different numbers; leave it out, or start from an unpruned model"
        )
    now = costs.share(removed)
    if size.share > now:
        raise ConfigError(
            f"--keep must be at most the share that the model still has, {now:.3f}, found "
            f"{size.share:g}; lower it"
        )
    least = costs.share(removed | _everything_but_the_least(encoder, size))
    if size.share < least:
        stays, more = _describe_least(size)
        raise ConfigError(
            f"--keep must be at least {math.ceil(1e4 * least) / 1e4:.4f} ({stays} in each layer), "
            f"found {size.share:g}; raise it{more}"
        )


def _describe_least(size: Size) -> tuple[str, str]:
    """Return what stays at least, and a remedy beside a larger size."""
    kinds = kinds_of(size)
    heads = "one head" if "heads" in kinds else "all heads"
    neurons = f"{size.multiple} neurons" if size.multiple > 1 else "one neuron"
    if "neurons" not in kinds:
        neurons = "all neurons"
    more = ", or add --units both" if len(kinds) == 1 and not size.even else ""
    return f"{heads} and {neurons} stay", more


def _everything_but_the_least(encoder: Encoder, size: Size) -> PruningPlan:
    present = {"heads": (encoder.present, 1), "neurons": (encoder.present_neurons, size.multiple)}
    removed = {}
    for kind in kinds_of(size):
        units, least = present[kind]
        removed[kind] = {layer: units(layer)[least:] for layer in range(encoder.num_layers)}
    return PruningPlan(**removed)


def _remove_to_share(
    scores: UnitScores, removed: PruningPlan, costs: UnitCosts, size: Size
) -> PruningPlan:
    """Remove the units of the lowest scores until the share is reached."""
    cost = cost_by_kind(costs)
    spare = (1 - size.share) * costs.total - (1 - costs.share(removed)) * costs.total
    gone = []
    for block in _rank_blocks(scores, size.multiple):
        if spare <= 1e-9 * costs.total:  # a rounding error is no reason to remove more
            break
        gone.append(block)
        spare -= len(block.units) * cost[block.kind]
    return _make_plan(gone)


def _remove_evenly(
    scores: UnitScores, removed: PruningPlan, costs: UnitCosts, size: Size
) -> PruningPlan:
    """Remove the lowest neurons of each layer, down to the same number in all."""
    fixed = costs.num_layers * costs.num_heads - removed.num_heads
    room = size.share * costs.total - fixed * costs.head
    width = int(room / (costs.num_layers * costs.neuron) + 1e-9)
    width = max(width - width % size.multiple, min(size.multiple, costs.num_neurons))
    return PruningPlan(
        neurons={
            layer: lowest_first(of_layer)[: max(0, len(of_layer) - width)]
            for (_, layer), of_layer in scores.items()
        }
    )


class _Block(NamedTuple):
    """Units that go together, in the order in which blocks go."""

    score: float  # the mean
    kind: str
    layer: int
    units: tuple[int, ...]


def _rank_blocks(scores: UnitScores, multiple: int) -> list[_Block]:
    """Return the heads and the blocks of neurons that may go, the lowest first.

    The last head or block of a layer stays. The first block of a layer's neurons makes the number
    left a multiple.
    """
    found = []
    for (kind, layer), of_layer in scores.items():
        size = multiple if kind == "neurons" else 1
        ranked = lowest_first(of_layer)
        ends = range(len(ranked) % size or size, len(ranked), size)
        for start, end in pairwise((0, *ends)):
            units = tuple(ranked[start:end])
            mean = sum(of_layer[unit] for unit in units) / len(units)
            found.append(_Block(mean, kind, layer, units))
    return sorted(found)


def lowest_first(scores: Mapping[int, float]) -> list[int]:
    """Return the units of a layer in the order of their scores."""
    return sorted(scores, key=lambda unit: (scores[unit], unit))


def _make_plan(blocks: Iterable[_Block]) -> PruningPlan:
    removed: dict[str, dict[int, list[int]]] = {"heads": {}, "neurons": {}}
    for block in blocks:
        removed[block.kind].setdefault(block.layer, []).extend(block.units)
    return PruningPlan(**removed)
