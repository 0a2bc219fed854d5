from __future__ import annotations

from itertools import combinations

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
    assert choice.rewards_asked == choice.rewards_computed == len(toy.asked) == len(set(toy.asked))
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


def test_no_gain_is_no_reason():
    toy = CountingToy(ToyLayer(4, bias=0.0, single=0.0, pair=0.0))
    assert choose_layer(toy.search()).removed == ()


def test_a_head_that_is_paid_for_goes_without_a_gain():
    toy = CountingToy(ToyLayer(4, bias=0.0, single=0.0, pair=0.0))
    assert len(choose_layer(toy.search(small_config(reward__head=0.01))).removed) == 3


def test_a_head_goes_as_long_as_it_costs_less_than_is_paid_for_it():
    toy = CountingToy(ToyLayer(6, 1, bias=-0.01, single=0.0, pair=0.0))  # each head costs one point
    assert choose_layer(toy.search(small_config(reward__head=0.99))).removed == ()
    choice = choose_layer(toy.search(small_config(reward__head=1.01)))
    assert len(choice.removed) == 5
    assert choice.details["best_score"] == toy.score(choice.removed)  # the metric, without the pay


def test_one_head_stays():
    toy = CountingToy(ToyLayer(4, base=0.5, bias=0.05, single=0.001, pair=0.0))
    assert len(choose_layer(toy.search()).removed) == 3


def test_a_layer_of_one_head():
    toy = CountingToy(ToyLayer(1))
    choice = choose_layer(toy.search())
    assert (choice.removed, choice.rewards_asked) == ((), 1)


def test_heads_keep_their_numbers():
    layer = ToyLayer(4, 3, bias=0.004, pair=0.0)
    removed = choose_layer(CountingToy(layer).search()).removed
    assert removed
    numbers = (0, 2, 3, 5)
    assert choose_layer(CountingToy(layer, numbers).search()).removed == tuple(
        numbers[head] for head in removed
    )


def test_a_given_plan_is_corrected_as_long_as_that_gains():
    toy = CountingToy(ToyLayer(6, 1, bias=-0.01, single=0.0, pair=0.0))  # each head costs one point
    choice = choose_layer(toy.search(prior=(1, 4)))
    assert choice.removed == ()
    assert sorted(choice.details["path"]) == [1, 4]
    assert choice.details["given_score"] == toy.score((1, 4))
    assert choose_layer(toy.search(prior=(1, 4), change_cost=0.99)).removed == ()
    assert choose_layer(toy.search(prior=(1, 4), change_cost=1.01)).removed == (1, 4)


def test_what_is_paid_for_a_head_holds_for_those_given_too():
    toy = CountingToy(ToyLayer(6, 1, bias=-0.01, single=0.0, pair=0.0))
    assert choose_layer(toy.search(small_config(reward__head=0.99), prior=(1, 4))).removed == ()
    assert choose_layer(toy.search(small_config(reward__head=1.01), prior=(1, 4))).removed != (1, 4)
    assert choose_layer(
        toy.search(small_config(reward__head=1.01), prior=(1, 4), change_cost=0.1)
    ).removed == (1, 4)


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
    assert choice.rewards_asked == choice.rewards_computed == len(toy.asked) == len(set(toy.asked))


def test_it_goes_on_with_the_removal_that_costs_least():
    toy = CountingToy(
        ToyLayer(4, 1, bias=-0.01, single=0.02, pair=0.0)
    )  # without pairs each size has its best in the last
    choose_layer(toy.search(small_config(search__heads=3)))
    best = {size: max((m for m in toy.asked if len(m) == size), key=toy.score) for size in range(4)}
    assert best[3] == max(combinations(range(4), 3), key=toy.score)
    assert {*best[1]} < {*best[2]} < {*best[3]}
