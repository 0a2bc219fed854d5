"""Exchange search finds better plans of the same cost, within its number of rewards."""

from __future__ import annotations

import numpy as np
import pytest

from auber.errors import ModelError, PlanError
from auber.models.costs import UnitCosts
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import masked
from auber.search.blocks import Layout, make_slots
from auber.search.players.exchange import exchange
from auber.search.rankings.common import by_kind, present_units
from auber.training.evaluation import evaluate_rows
from tests.search.made import ranking_inputs, self_labelled, silence_heads
from tests.tiny_models import tiny_model

COSTS = UnitCosts(head=40, neuron=10, num_layers=3, num_heads=4, num_neurons=16)
EVERY_HEAD = {layer: range(4) for layer in range(3)}
EVERY_NEURON = {layer: range(16) for layer in range(3)}
HALF = PruningPlan({layer: range(2) for layer in range(3)}, {layer: range(8) for layer in range(3)})
SLOTS = make_slots(EVERY_HEAD, EVERY_NEURON, COSTS, HALF, 4)
LAYOUT = Layout(SLOTS)


class Made:
    """Every block has a value, drawn by seed; a plan's score is the value that is left."""

    def __init__(self, seed=0):
        self.values = np.random.default_rng(seed).gamma(1.0, 0.02, LAYOUT.num_blocks)
        self.asked = []

    def score_many(self, plans):
        self.asked += plans
        return [float(self.values[~LAYOUT.flags(plan)].sum()) for plan in plans]


def search(made, rewards=150, start=HALF, **given):
    given = {"keep": 0.5, "seed": 0, **given}
    return exchange(start, SLOTS, COSTS, made.score_many, rewards, **given)


def best_value(made):
    """The best value that half of the multiply-adds can keep: all blocks cost the same."""
    keep = np.zeros(LAYOUT.num_blocks, dtype=bool)
    for slot in range(len(SLOTS)):  # one block stays in each slot
        blocks = np.flatnonzero(LAYOUT.slot_of == slot)
        keep[blocks[np.argmax(made.values[blocks])]] = True
    others = sorted(np.flatnonzero(~keep), key=lambda block: -made.values[block])
    keep[others[: LAYOUT.num_blocks // 2 - keep.sum()]] = True
    return made.values[keep].sum()


@pytest.mark.parametrize("seed", range(3))
def test_the_best_plan_of_the_size_is_found(seed):
    made = Made(seed)
    found = search(made, 300)
    assert found.score == pytest.approx(best_value(made))
    assert COSTS.share(found.plan) <= 0.5
    assert found.start_score == made.score_many([HALF])[0] < found.score
    assert made.score_many([found.plan]) == [found.score]


def test_every_plan_asked_keeps_the_cost_and_is_new():
    made = Made()
    found = search(made, 100)
    assert found.rewards == len(made.asked) == len({*made.asked}) == 100
    assert made.asked[0] == HALF
    assert max(COSTS.share(plan) for plan in made.asked) <= 0.5
    assert all(LAYOUT.leaves_one(LAYOUT.flags(plan)) for plan in made.asked)


def test_the_same_seed_gives_the_same_search():
    asked = []
    for seed in (3, 3, 4):
        made = Made()
        search(made, 60, seed=seed)
        asked.append(made.asked)
    assert asked[0] == asked[1] != asked[2]


def test_room_in_the_start_is_used():
    more = PruningPlan({0: [0, 1]}, {layer: range(8) for layer in range(3)})
    slots = make_slots(EVERY_HEAD, EVERY_NEURON, COSTS, more, 4)
    made = Made()
    narrow = {layer: range(12) for layer in range(3)}
    start = PruningPlan({layer: range(3) for layer in range(3)}, narrow)
    found = exchange(start, slots, COSTS, made.score_many, 40, keep=0.5, seed=0)
    assert COSTS.share(start) < 0.3
    assert COSTS.share(found.plan) == pytest.approx(0.5)


def test_what_cannot_be_searched_is_refused():
    message = "must leave at most 0.4 of the multiply-adds, found 0.5000; remove more, or raise"
    with pytest.raises(PlanError, match=message):
        search(Made(), keep=0.4)
    with pytest.raises(ModelError, match="a score must be a finite number, found nan"):
        exchange(HALF, SLOTS, COSTS, lambda p: [np.nan] * len(p), 9, keep=0.5, seed=0)


def test_units_lost_before_count_as_saved():
    gone = PruningPlan({0: [0, 1]})
    heads = {**EVERY_HEAD, 0: [2, 3]}
    start = PruningPlan({1: [0, 1], 2: [0, 1]}, HALF.neurons)
    slots = make_slots(heads, EVERY_NEURON, COSTS, start, 4)
    made = Made()
    asked = []

    def score_many(plans):
        asked.extend(plans)
        return made.score_many([plan | gone for plan in plans])

    exchange(start, slots, COSTS, score_many, 30, keep=0.5, seed=0, gone=gone)
    assert max(COSTS.share(plan | gone) for plan in asked) == pytest.approx(0.5)


def test_silent_heads_of_a_real_model_are_found():
    """Scored plainly: mask the plan and evaluate all rows."""
    model = tiny_model("bert", num_labels=1, problem_type="regression")
    silence_heads(model, {0: [2, 3], 1: [0], 2: [1, 3]})
    inputs = ranking_inputs(model, rows=self_labelled(model))
    encoder = encoder_of(model)
    costs = UnitCosts.of(encoder, 12)

    def score_many(plans):
        scores = []
        for plan in plans:
            with masked(model, plan):
                scores.append(-evaluate_rows(model, inputs.rows, "pearson").loss)
        return scores

    start = PruningPlan({0: [0, 1], 1: [1], 2: [0, 2]})
    slots = make_slots(by_kind(present_units(inputs))["heads"], {}, costs, start, 8)
    keep = costs.share(start)
    found = exchange(start, slots, costs, score_many, 120, keep=keep, seed=0)
    assert found.plan == PruningPlan({0: [2, 3], 1: [0], 2: [1, 3]})
    assert found.score == pytest.approx(0, abs=1e-6)
