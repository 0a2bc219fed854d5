"""Exchange: improve fisher's plan for the whole model at constant cost, by rewards.

Fisher's information takes every unit alone. From its plan, blocks of neurons and heads are
exchanged between layers and kinds (`auber.search.players.exchange`), rewarded by what the masked
model still explains of the labels, on a draw of training rows.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings import fisher
from auber.search.rankings.common import by_kind
from auber.search.rankings.selection import (
    costs_of,
    divide_by_costs,
    lowest_first,
    select_units,
)

_BLOCKS_A_LAYER = 24  # of neurons


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Return the best plan that exchanges from fisher's plan lead to."""
    import numpy as np  # it and torch: methods are listed without them

    from auber.metrics.task_metrics import smooth_metric
    from auber.scoring import PlanScorer
    from auber.search.blocks import make_slots
    from auber.search.players.exchange import Budget, exchange
    from auber.system import seeds

    config, encoder = inputs.config, inputs.encoder
    scores = inputs.once("fisher", lambda: fisher.unit_information(inputs))
    ranked = divide_by_costs(inputs, scores)
    start = select_units(inputs, ranked)
    if not start:
        return RankingChoice(start)
    order = by_kind({site: lowest_first(of_layer) for site, of_layer in ranked.items()})
    multiple = config.size.multiple
    size = multiple * max(1, round(encoder.num_neurons / multiple / _BLOCKS_A_LAYER))
    costs = costs_of(encoder, config.max_length)
    draw = seeds.generator(config.seed, "rows of exchanges")
    number = min(len(inputs.rows), config.search.rows)
    chosen = np.sort(draw.choice(len(inputs.rows), number, replace=False)).tolist()
    rows = inputs.rows.select(chosen)
    scorer = PlanScorer(inputs.model, rows, smooth_metric(inputs.metric), inputs.hardware)
    found = exchange(
        start,
        make_slots(order["heads"], order["neurons"], costs, start, size),
        costs,
        scorer.score_many,
        Budget(rewards=config.search.rewards, minutes=config.search.minutes or None),
        keep=config.size.share,
        seed=config.seed,
        gone=encoder.removed,
        progress=inputs.progress,
    )
    return RankingChoice(
        found.plan,
        {
            "exchange": {
                "rewards": found.rewards,
                "start_score": found.start_score,
                "score": found.score,
                "seconds": round(found.seconds, 3),
            }
        },
    )


METHODS = (
    Method(
        "exchange",
        "improves fisher's plan by exchanges at constant cost, rewarded on training rows",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
