"""Random pruning: units drawn uniformly; one head and one block of neurons stay in each layer.

A run is one draw, chosen by `random.draw`. A study makes several and reports mean and deviation.
For a target size, heads and blocks of `size.multiple` neurons are drawn alike.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import present_heads, present_neurons
from auber.search.rankings.selection import UnitScores, select_units


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Remove the units with the lowest of random scores."""
    from auber.system import seeds  # numpy: methods are listed without it

    draw, multiple = inputs.config.random.draw, inputs.config.size.multiple
    inputs.progress.begin("drawing units", 1)
    generator = seeds.generator(inputs.config.seed, f"random/{draw}")
    heads = {
        layer: dict(zip(present, generator.random(len(present)).tolist(), strict=True))
        for layer, present in present_heads(inputs).items()
    }
    neurons: dict[int, dict[int, float]] = {}
    for layer, present in present_neurons(inputs).items():
        blocks = generator.random(-(-len(present) // multiple)).tolist()
        order = generator.permutation(len(present)).tolist()
        neurons[layer] = {present[at]: blocks[i // multiple] for i, at in enumerate(order)}
    inputs.progress.end()
    return RankingChoice(select_units(inputs, UnitScores(heads, neurons)), {"draw": draw})


METHODS = (
    Method(
        "random",
        "removes units at random",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
