"""The surrogate finds a made-up layer's optimum, within its budget, by what it was given."""

from __future__ import annotations

import numpy as np
import pytest

from auber.errors import ConfigError
from auber.search.players.exhaustive import all_masks
from auber.search.players.surrogate import choose_layer, predict
from auber.search.registry import get_method
from auber.search.toy import ToyLayer
from tests.search.made import CountingToy
from tests.small import small_config


def test_the_prediction_is_exact_where_the_penalty_vanishes():
    masks = np.array([[False, False], [True, False], [False, True], [True, True]])
    values = np.array([1.0, 3.0, -2.0, 7.0])
    np.testing.assert_allclose(predict(masks, values, masks, 1e-9), values, atol=1e-6)
    smooth = predict(masks, values, masks, 1e9)
    np.testing.assert_allclose(smooth, values.mean(), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_found_with_a_tenth_of_the_masks(seed):
    toy = CountingToy(ToyLayer(12, seed))
    config = small_config(surrogate__rewards=400, seed=seed)
    choice = choose_layer(toy.search(config))
    assert choice.details["best_score"] == pytest.approx(toy.layer.optimum()[1])
    assert choice.rewards_asked == len(toy.asked) == len(set(toy.asked)) == 400


def test_the_same_seed_and_layer_ask_for_the_same_masks():
    toys = [CountingToy(ToyLayer(8)) for _ in range(3)]
    for toy, seed in zip(toys, (0, 0, 1), strict=True):
        choose_layer(toy.search(small_config(surrogate__rewards=60, seed=seed)))
    assert toys[0].asked == toys[1].asked != toys[2].asked


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5])
def test_all_masks_of_a_small_layer_are_scored(num_heads):
    toy = CountingToy(ToyLayer(num_heads, bias=0.01))
    choice = choose_layer(toy.search(small_config(surrogate__rewards=200)))
    assert sorted(toy.asked) == sorted(all_masks(range(num_heads)))
    assert choice.removed == toy.layer.optimum()[0]


def test_a_layer_of_sixteen_heads():
    toy = CountingToy(ToyLayer(16, 2, bias=-0.002, single=0.01, pair=0.0005))
    choice = choose_layer(toy.search(small_config(surrogate__rewards=150)))
    best = tuple(head for head in range(16) if toy.layer.score((head,)) > toy.layer.score(()))
    assert choice.details["best_score"] >= toy.layer.score(best)
    assert len(toy.asked) == 150


@pytest.mark.parametrize(
    ("gain", "pay", "prior", "cost", "left"),
    [
        (-0.01, 1.01, (1, 4), 0.0, 5),  # each removal gains 0.01 points
        (-0.01, 0.99, (1, 4), 0.0, ()),
        (-0.01, 1.01, (1, 4), 0.1, (1, 4)),  # and costs 0.1 as a change
    ],
)
def test_pay_and_costs_decide_with_the_scores(gain, pay, prior, cost, left):
    toy = CountingToy(ToyLayer(6, 1, base=0.5, bias=gain, single=0.0, pair=0.0))
    costs = dict.fromkeys(range(6), cost)
    search = toy.search(small_config(reward__head=pay), prior=prior, change_costs=costs)
    choice = choose_layer(search)
    assert left in (choice.removed, len(choice.removed))
    assert toy.asked[0] == prior
    assert choice.details["given_score"] == toy.score(prior)


def test_heads_keep_their_numbers():
    numbers = (0, 2, 3, 5)
    toy = CountingToy(ToyLayer(4, 3, bias=0.004, pair=0.0), numbers)
    best = toy.layer.optimum()[0]
    assert choose_layer(toy.search()).removed == tuple(numbers[head] for head in best)


def test_where_the_number_of_heads_is_given_masks_of_every_size_are_scored():
    toy = CountingToy(ToyLayer(12))
    config = small_config(search__heads=3, surrogate__rewards=60)
    choose_layer(toy.search(config, prior=(0, 1)))
    assert {len(mask) for mask in toy.asked} == set(range(12))
    assert len(toy.asked) == 60


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": 30, "rewards": 29}, r"must be at least surrogate.start \(30\), found 29; raise"),
        ({"start": 10, "rewards": 20}, "layer 1: surrogate.rewards must be at least 22 to score"),
    ],
)
def test_too_few_rewards_are_refused(changes, message):
    settings = {f"surrogate__{name}": value for name, value in changes.items()}
    config = small_config(search__heads=3, protocol="crossfit", **settings)
    with pytest.raises(ConfigError, match=message):
        get_method("surrogate").check(config, {0: 2, 1: 12})
