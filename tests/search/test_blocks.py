"""Blocks: cuts, slots made from a plan, flags and plans, exchanges at constant cost."""

from __future__ import annotations

import numpy as np
import pytest

from auber.errors import PlanError
from auber.models.costs import UnitCosts
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.search.blocks import Layout, Slot, cut_evenly, make_slots, rank_by_norm
from tests.tiny_models import tiny_model

COSTS = UnitCosts(head=40, neuron=10, num_layers=2, num_heads=4, num_neurons=20)
START = PruningPlan({0: [3], 1: [0, 1]}, {0: range(10, 20), 1: range(3)})


def make_layout(size=4):
    heads = {0: [3, 2, 1, 0], 1: [0, 1, 2, 3]}
    neurons = {0: list(reversed(range(20))), 1: list(range(20))}
    return Layout(make_slots(heads, neurons, COSTS, START, size))


@pytest.mark.parametrize(("count", "sizes"), [(3, [3, 4, 3]), (16, [1] * 10), (1, [10])])
def test_units_are_cut_into_blocks_of_about_the_same_size(count, sizes):
    blocks = cut_evenly(range(10), count)
    assert [len(block) for block in blocks] == sizes
    assert [unit for block in blocks for unit in block] == list(range(10))


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])  # the second is gated
def test_neurons_are_ranked_by_their_column(model_type):
    encoder = encoder_of(tiny_model(model_type))
    contract = encoder.parts(0).contract
    present = encoder.present_neurons(0)
    contract.weight.data[:, 5], contract.weight.data[:, 2] = 0.0, 9.0
    blocks = rank_by_norm(encoder, 0, present, 12)
    assert len(blocks) == 12
    assert blocks[0][0] == 5
    assert blocks[-1][-1] == 2


def test_slots_are_cut_where_the_plan_ends():
    slots = make_layout().slots
    assert [(slot.kind, slot.layer, len(slot.blocks)) for slot in slots] == [
        ("head", 0, 4), ("head", 1, 4), ("neuron", 0, 6), ("neuron", 1, 6),
    ]  # fmt: skip
    assert [len(block) for block in slots[2].blocks] == [2, 4, 4, 4, 4, 2]
    assert [len(block) for block in slots[3].blocks] == [3, 4, 4, 4, 4, 1]


def test_a_plan_is_its_flags():
    layout = make_layout()
    flags = layout.flags(START)
    assert layout.plan(flags) == START
    assert layout.left(flags).tolist() == [3, 2, 3, 5]
    assert layout.saved(flags) == 3 * 40 + 13 * 10 == round(COSTS.total * (1 - COSTS.share(START)))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (PruningPlan(neurons={0: [19]}), "a plan must remove whole blocks of the slots, found one"),
        (PruningPlan({5: [0]}), "that removes 1 heads and 0 neurons, of which blocks have 0 and 0"),
        (PruningPlan({0: range(4)}), "one block must stay in each slot, found a plan that removes"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan, message):
    with pytest.raises(PlanError, match=message):
        make_layout().flags(plan)
    with pytest.raises(PlanError, match="each slot must have blocks, found none"):
        Layout([Slot("head", 0, (), 1)])


def test_an_exchange_costs_no_more():
    layout = make_layout()
    start = layout.flags(START)
    least = layout.saved(start)
    after = layout.exchange(start, 3, 1, least)  # neurons of layer 1 for a head
    assert layout.plan(after).heads == {0: (3,), 1: (0,)}
    assert layout.plan(after).neurons[1] == tuple(range(7))
    assert layout.saved(after) == least
    back = layout.exchange(after, 0, 3, least)  # a head for the block
    assert layout.plan(back).heads == {0: (2, 3), 1: (0,)}
    assert layout.exchange(layout.flags(PruningPlan()), 0, 1, 0) is None, "nothing to give back"
    two = PruningPlan({0: [3, 2]}, {0: range(10, 20)})
    many = layout.exchange(layout.flags(two), 0, 2, layout.saved(layout.flags(two)) + 30)
    assert many is None, "it would lose its last block"


def test_any_exchange_leaves_a_block_and_saves_enough():
    layout, draw = make_layout(), np.random.default_rng(0)
    flags = layout.flags(START)
    least = layout.saved(flags)
    for _ in range(300):
        source, target = draw.choice(4, 2, replace=False)
        after = layout.exchange(flags, source, target, least)
        if after is not None:
            flags = after
            assert layout.leaves_one(flags)
            assert layout.saved(flags) >= least
            assert layout.flags(layout.plan(flags)).tolist() == flags.tolist()
