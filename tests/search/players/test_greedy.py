from __future__ import annotations

import pytest

from auber.search.players.greedy import choose_layer
from auber.search.toy import ToyLayer
from tests.search.made import CountingToy
from tests.small import small_config


def slow_climb(layer):
    """The same in other words: walk to the best neighbour while it is strictly better."""
    removed, order = frozenset(), []
    while len(removed) < layer.num_heads - 1:
        neighbours = {
            head: layer.score(tuple(sorted(removed | {head})))
            for head in set(range(layer.num_heads)) - removed
        }
        best = max(sorted(neighbours), key=neighbours.get)
        if neighbours[best] <= layer.score(tuple(sorted(removed))):
            break
        removed |= {best}
        order.append(best)
    return tuple(sorted(removed)), order


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("steps", [0, 40])
def test_against_a_walk(seed, steps):
    toy = CountingToy(ToyLayer(8, seed, bias=0.004, pair=0.006, steps=steps))
    choice = choose_layer(toy.search())
    assert (choice.removed, choice.details["path"]) == slow_climb(toy.layer)
    assert choice.details["given_score"] == toy.score(())
    assert choice.details["best_score"] == toy.score(choice.removed)
    assert choice.rewards_asked == len(toy.asked) == len(set(toy.asked))
    best, points = -1.0, []
    for count, mask in enumerate(toy.asked, 1):
        if toy.score(mask) > best:
            best = toy.score(mask)
            points.append([count, best])
    assert choice.details["curve"] == points


def test_without_pairs_it_finds_the_optimum():
    toy = CountingToy(ToyLayer(8, 3, bias=0.0, pair=0.0))
    assert choose_layer(toy.search()).removed == toy.layer.optimum()[0]


def test_pairs_that_pay_only_together_stop_it_early():
    toy = CountingToy(ToyLayer(10, 0, bias=-0.03, single=0.0, pair=0.03))
    assert toy.layer.optimum()[0] != ()
    choice = choose_layer(toy.search())
    assert choice.removed == ()
    assert choice.rewards_asked == 11


@pytest.mark.parametrize(
    ("gain", "pay", "prior", "change_cost", "left"),
    [
        (0.0, 0.0, (), 0.0, ()),  # no gain is no reason
        (0.0, 0.01, (), 0.0, 5),
        (0.05, 0.0, (), 0.0, 5),  # one head stays
        # each removed head costs a point
        (-0.01, 0.99, (), 0.0, ()),
        (-0.01, 1.01, (), 0.0, 5),
        (-0.01, 0.0, (1, 4), 0.0, ()),
        (-0.01, 0.0, (1, 4), 0.99, ()),
        (-0.01, 0.0, (1, 4), 1.01, (1, 4)),
        (-0.01, 0.99, (1, 4), 0.0, ()),
        (-0.01, 1.01, (1, 4), 0.0, 5),
        (-0.01, 1.01, (1, 4), 0.1, (1, 4)),
    ],
)
def test_changes_are_made_as_long_as_they_gain(gain, pay, prior, change_cost, left):
    toy = CountingToy(ToyLayer(6, 1, base=0.5, bias=gain, single=0.0, pair=0.0))
    costs = dict.fromkeys(range(6), change_cost)
    search = toy.search(small_config(reward__head=pay), prior=prior, change_costs=costs)
    choice = choose_layer(search)
    assert left in (choice.removed, len(choice.removed))
    assert set(choice.details["path"]) == {*prior} ^ {*choice.removed}
    assert choice.details["given_score"] == toy.score(prior)
    assert choice.details["best_score"] == toy.score(choice.removed)  # the metric, without the pay


def test_each_head_has_to_gain_its_own_cost():
    toy = CountingToy(ToyLayer(6, 1, base=0.5, bias=0.01, single=0.0, pair=0.0))
    costs = {0: 0.9, 1: 1.1, 2: 0.9, 3: 1.1, 4: 1.1, 5: 1.1}
    assert choose_layer(toy.search(change_costs=costs)).removed == (0, 2)


def test_a_layer_of_one_head():
    choice = choose_layer(CountingToy(ToyLayer(1)).search())
    assert (choice.removed, choice.rewards_asked) == ((), 1)


def test_heads_keep_their_numbers():
    layer = ToyLayer(4, 3, bias=0.004, pair=0.0)
    removed = choose_layer(CountingToy(layer).search()).removed
    assert removed
    numbers = (0, 2, 3, 5)
    assert choose_layer(CountingToy(layer, numbers).search()).removed == tuple(
        numbers[head] for head in removed
    )


@pytest.mark.parametrize("given", [(), (3,), (1, 4), (0, 1, 2, 4, 5)])
@pytest.mark.parametrize("seed", range(4))
def test_where_the_number_of_heads_is_given_masks_of_every_size_are_scored(seed, given):
    """And its own choice, with the way to it, is what it is without the number."""
    layer = ToyLayer(7, seed, bias=-0.002, pair=0.006)
    toy, plain = CountingToy(layer), CountingToy(layer)
    choice = choose_layer(toy.search(small_config(search__heads=3), prior=given))
    alone = choose_layer(plain.search(prior=given))
    assert (choice.removed, choice.details["path"]) == (alone.removed, alone.details["path"])
    assert toy.asked[: len(plain.asked)] == plain.asked
    assert {len(mask) for mask in toy.asked} == set(range(7))
    assert choice.rewards_asked == len(toy.asked) == len(set(toy.asked))
