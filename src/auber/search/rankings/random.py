"""Random pruning: heads drawn uniformly among all that may go; one head stays in each layer.

A run is one draw, named by `random.draw`; a study makes several and reports their mean and deviation.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingWork
from auber.search.rankings.ranking import remove_lowest


def choose_plan(work: RankingWork) -> RankingChoice:
    """Draw the heads one after the other, passing over the last head of a layer."""
    from auber.system import seeds  # NumPy: the table of methods is read without it

    work.progress.begin("drawing heads", 1)
    generator = seeds.generator(work.config.seed, f"random/{work.config.random.draw}")
    scores = {
        layer: dict(zip(present, generator.random(len(present)).tolist(), strict=True))
        for layer in range(work.encoder.num_layers)
        if (present := work.encoder.present(layer))
    }
    work.progress.end()
    return RankingChoice(remove_lowest(scores, work.num_removed), {"draw": work.config.random.draw})


METHODS = (
    Method("random", "heads drawn at random, as many as asked for", choose_plan=choose_plan),
)
