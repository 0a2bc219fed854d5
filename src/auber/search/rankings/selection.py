"""From scores of units to a plan: remove the lowest, to a number of heads or to a target size.

For a target size, neurons go in blocks, the lowest of a layer first, so that the numbers left are
multiples of `size.multiple`. One head and one block stay in each layer.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from auber.config import Size
from auber.errors import ConfigError, ModelError, PlanError
from auber.models.plan import PruningPlan
from auber.search.methods import RankingInputs

if TYPE_CHECKING:
    from auber.models.costs import UnitCosts
    from auber.models.encoders import Encoder

LayerScores = Mapping[int, Mapping[int, float]]  # by layer, then by present unit
Unit = Literal["head", "neuron"]


@dataclass(frozen=True)
class UnitScores:
    """The scores of the units to choose among; the lowest go."""

    heads: LayerScores = field(default_factory=dict)
    neurons: LayerScores = field(default_factory=dict)


def select_units(inputs: RankingInputs, scores: UnitScores) -> PruningPlan:
    """Return the plan that removes the lowest units: the given number of heads, or to the size."""
    for unit, by_layer in (("head", scores.heads), ("neuron", scores.neurons)):
        _require_finite(unit, by_layer)
    if inputs.num_removed is not None:
        return remove_lowest(scores.heads, inputs.num_removed)
    costs = costs_of(inputs.encoder, inputs.config.max_length)
    size = inputs.config.size
    if size.even:
        return _remove_evenly(scores.neurons, inputs.encoder.removed, costs, size)
    return _remove_to_share(scores, inputs.encoder.removed, costs, size)


def divide_by_costs(inputs: RankingInputs, scores: UnitScores) -> UnitScores:
    """Return the scores per multiply-add: what goes first costs most for what it does."""
    costs = costs_of(inputs.encoder, inputs.config.max_length)
    return UnitScores(_divide(scores.heads, costs.head), _divide(scores.neurons, costs.neuron))


def remove_lowest(scores: LayerScores, num_removed: int) -> PruningPlan:
    """Return the plan that removes the heads with the lowest scores and leaves one in each layer.

    Of equal scores the lower layer goes first, then the lower head.
    """
    ranked = sorted(
        (score, layer, head) for layer, heads in scores.items() for head, score in heads.items()
    )
    removable = {layer: max(0, len(heads) - 1) for layer, heads in scores.items()}
    most = sum(removable.values())
    if not 0 <= num_removed <= most:
        raise PlanError(
            f"plan: the number of heads to remove must be from 0 to {most} (one head stays in each "
            f"layer), found {num_removed}"
        )
    removed: dict[int, list[int]] = {layer: [] for layer in scores}
    left = num_removed
    for _, layer, head in ranked:
        if left and len(removed[layer]) < removable[layer]:
            removed[layer].append(head)
            left -= 1
    return PruningPlan(removed)


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
    everything = _everything_but_the_least(encoder, size)
    least = costs.share(removed | everything)
    if size.share < least:
        stays, more = _describe_least(size)
        raise ConfigError(
            f"--keep must be at least {math.ceil(1e4 * least) / 1e4:.4f} ({stays} in each layer), "
            f"found {size.share:g}; raise it{more}"
        )


def _describe_least(size: Size) -> tuple[str, str]:
    """Return what stays at least, and a remedy beside a larger size."""
    least = f"{size.multiple} neurons" if size.multiple > 1 else "one neuron"
    if size.even or size.units == "neurons":
        return f"all heads and {least} stay", "" if size.even else ", or add --units both"
    if size.units == "heads":
        return "one head and all neurons stay", ", or add --units both"
    return f"one head and {least} stay", ""


def _everything_but_the_least(encoder: Encoder, size: Size) -> PruningPlan:
    layers = range(encoder.num_layers)
    heads: dict[int, Sequence[int]] = {}
    neurons: dict[int, Sequence[int]] = {}
    if not size.even and size.units != "neurons":
        heads = {layer: encoder.present(layer)[1:] for layer in layers}
    if size.even or size.units != "heads":
        neurons = {layer: encoder.present_neurons(layer)[size.multiple :] for layer in layers}
    return PruningPlan(heads, neurons)


def _remove_to_share(
    scores: UnitScores, removed: PruningPlan, costs: UnitCosts, size: Size
) -> PruningPlan:
    """Remove the units of the lowest scores until the share is reached."""
    left = {layer: len(heads) for layer, heads in scores.heads.items()}
    heads: dict[int, list[int]] = {layer: [] for layer in scores.heads}
    neurons: dict[int, list[int]] = {layer: [] for layer in scores.neurons}
    spare = (1 - size.share) * costs.total - (1 - costs.share(removed)) * costs.total
    candidates: list[tuple[float, Unit, int, tuple[int, ...]]] = [
        (score, "head", layer, (head,))
        for layer, of_layer in scores.heads.items()
        for head, score in of_layer.items()
    ]
    for layer, of_layer in scores.neurons.items():
        for block in _blocks(of_layer, size.multiple):
            mean = sum(of_layer[neuron] for neuron in block) / len(block)
            candidates.append((mean, "neuron", layer, block))
    for _, unit, layer, units in sorted(candidates):
        if spare <= 1e-9 * costs.total:  # a rounding error is no reason to remove more
            break
        if unit == "neuron":
            neurons[layer].extend(units)
            spare -= len(units) * costs.neuron
        elif left[layer] > 1:
            heads[layer].extend(units)
            left[layer] -= 1
            spare -= costs.head
    return PruningPlan(heads, neurons)


def _remove_evenly(
    scores: LayerScores, removed: PruningPlan, costs: UnitCosts, size: Size
) -> PruningPlan:
    """Remove the lowest neurons of each layer, down to the same number in all."""
    fixed = costs.num_layers * costs.num_heads - removed.num_heads
    room = size.share * costs.total - fixed * costs.head
    width = int(room / (costs.num_layers * costs.neuron) + 1e-9)
    width = max(width - width % size.multiple, min(size.multiple, costs.num_neurons))
    return PruningPlan(
        neurons={
            layer: sorted(of_layer, key=lambda neuron: (of_layer[neuron], neuron))[
                : max(0, len(of_layer) - width)
            ]
            for layer, of_layer in scores.items()
        }
    )


def _blocks(scores: Mapping[int, float], multiple: int) -> Iterator[tuple[int, ...]]:
    """Yield the neurons of a layer in the order to remove them, without the last block.

    The first block makes the number left a multiple.
    """
    ranked = sorted(scores, key=lambda neuron: (scores[neuron], neuron))
    start, end = 0, len(ranked) % multiple or multiple
    while end < len(ranked):
        yield tuple(ranked[start:end])
        start, end = end, end + multiple


def _divide(scores: LayerScores, cost: int) -> LayerScores:
    return {
        layer: {unit: score / cost for unit, score in of_layer.items()}
        for layer, of_layer in scores.items()
    }


def _require_finite(unit: str, scores: LayerScores) -> None:
    for layer, of_layer in scores.items():
        for index, score in of_layer.items():
            if not math.isfinite(score):
                raise ModelError(
                    f"layer {layer}, {unit} {index}: its score must be a finite number, found "
                    f"{score}; check the model's weights"
                )
