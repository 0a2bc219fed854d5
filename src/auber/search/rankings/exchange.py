"""Exchange: improve fisher's plan for the whole model at constant cost, by rewards.

Fisher's information takes every unit alone. From its plan, blocks of neurons and heads are
exchanged between layers and kinds (`auber.search.players.exchange`), rewarded by what the masked
model still explains of the labels, on a draw of training rows. Where half of the multiply-adds or
more remain, there is no search: no significant loss was measured for fisher's plan
(docs/experiments.md).

`search.minutes` is turned into a number of plans before the search, by the time that one takes, so
that a resumed run scores as many.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from auber.config import Size
from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings import fisher
from auber.search.rankings.common import by_kind
from auber.search.rankings.selection import (
    UnitScores,
    costs_of,
    divide_by_costs,
    lowest_first,
    select_units,
)
from auber.system.progress import describe_seconds

if TYPE_CHECKING:
    from auber.models.plan import PruningPlan
    from auber.scoring import PlanScorer

_BLOCKS_A_LAYER = 24  # of neurons
_SEARCHED_BELOW = 0.5  # share of the multiply-adds
_TIMED = 3  # plans


def searches(size: Size, share: float) -> bool:
    """Return whether there is a search for a plan that keeps this share."""
    return share < _SEARCHED_BELOW and not size.even


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Return fisher's plan, or the best one that exchanges lead to."""
    scores = inputs.once("fisher", lambda: fisher.unit_information(inputs))
    ranked = divide_by_costs(inputs, scores)
    start, size = select_units(inputs, ranked), inputs.config.size
    if inputs.num_removed is None and not searches(size, size.share):
        where = f"from {_SEARCHED_BELOW:g} upwards it had no significant loss"
        why = "exchanges would make the layers uneven" if size.even else where
        text = f"a ranking (fisher) decides, without a search: {why}"
        inputs.once(text, lambda: inputs.progress.say(text))
        return RankingChoice(start)
    return _search(inputs, ranked, start) if start else RankingChoice(start)


def _search(inputs: RankingInputs, ranked: UnitScores, start: PruningPlan) -> RankingChoice:
    import numpy as np  # it and torch: methods are listed without them

    from auber.metrics.task_metrics import smooth_metric
    from auber.scoring import PlanScorer
    from auber.search.blocks import make_slots
    from auber.search.players.exchange import exchange
    from auber.system import seeds

    config, encoder = inputs.config, inputs.encoder
    costs = costs_of(encoder, config.max_length)
    keep = config.size.share if inputs.num_removed is None else costs.share(encoder.removed | start)
    order = by_kind({site: lowest_first(of_layer) for site, of_layer in ranked.items()})
    multiple = config.size.multiple
    block = multiple * max(1, round(encoder.num_neurons / multiple / _BLOCKS_A_LAYER))
    draw = seeds.generator(config.seed, "rows of exchanges")
    number = min(len(inputs.rows), config.search.rows)
    chosen = np.sort(draw.choice(len(inputs.rows), number, replace=False)).tolist()
    rows = inputs.rows.select(chosen)
    scorer = PlanScorer(inputs.model, rows, smooth_metric(inputs.metric), inputs.hardware)
    place = f"plans scored, keep {keep:g}"
    rewards = inputs.settle(place, lambda: _count_affordable(inputs, scorer, start))
    found = exchange(
        start,
        make_slots(order["heads"], order["neurons"], costs, start, block),
        costs,
        scorer.score_many,
        rewards,
        keep=keep,
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


def _count_affordable(inputs: RankingInputs, scorer: PlanScorer, plan: PruningPlan) -> int:
    """Return how many plans can be scored in the time of the settings, and announce it."""
    search = inputs.config.search
    scorer.score(plan)  # the first one prepares the rows
    began = time.perf_counter()
    scorer.score_many([plan] * _TIMED)
    seconds = (time.perf_counter() - began) / _TIMED
    rewards, few = search.rewards, ""
    if search.minutes and rewards * seconds > 60 * search.minutes:
        rewards = max(1, int(60 * search.minutes / seconds))
        few = f", fewer than search.rewards = {search.rewards} because of search.minutes"
    inputs.progress.say(
        f"the search scores {rewards} plans in about {describe_seconds(rewards * seconds)}{few}"
    )
    return rewards


METHODS = (
    Method(
        "exchange",
        "improves fisher's plan by exchanges at constant cost, rewarded on training rows",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
