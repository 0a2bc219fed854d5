"""Random pruning: units drawn uniformly; one head and one block of neurons stay in each layer.

A run is one draw, chosen by `random.draw`. A study makes several and reports mean and deviation.
For a target size, heads and blocks of `size.multiple` neurons are drawn alike.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import present_units
from auber.search.rankings.selection import Site, select_units


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Remove the units with the lowest of random scores."""
    from auber.system import seeds  # numpy: methods are listed without it

    draw, multiple = inputs.config.random.draw, inputs.config.size.multiple
    inputs.progress.begin("drawing units", 1)
    generator = seeds.generator(inputs.config.seed, f"random/{draw}")
    scores: dict[Site, dict[int, float]] = {}
    for (kind, layer), present in present_units(inputs).items():
        size = multiple if kind == "neurons" else 1
        values = generator.random(-(-len(present) // size)).tolist()
        order = generator.permutation(present).tolist() if kind == "neurons" else present
        scores[kind, layer] = {unit: values[i // size] for i, unit in enumerate(order)}
    inputs.progress.end()
    return RankingChoice(select_units(inputs, scores), {"draw": draw})


METHODS = (
    Method(
        "random",
        "removes units at random",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
