"""Random pruning: heads drawn uniformly; one stays in each layer.

A run is one draw, chosen by `random.draw`. A study makes several and reports mean and deviation.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import present_heads, remove_lowest


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Remove the heads with the lowest of random scores."""
    from auber.system import seeds  # numpy: methods are listed without it

    draw = inputs.config.random.draw
    inputs.progress.begin("drawing heads", 1)
    generator = seeds.generator(inputs.config.seed, f"random/{draw}")
    scores = {
        layer: dict(zip(present, generator.random(len(present)).tolist(), strict=True))
        for layer, present in present_heads(inputs.encoder).items()
    }
    inputs.progress.end()
    return RankingChoice(remove_lowest(scores, inputs.num_removed), {"draw": draw})


METHODS = (Method("random", "removes heads at random", choose_plan=choose_plan),)
