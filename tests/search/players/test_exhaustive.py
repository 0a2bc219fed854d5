from __future__ import annotations

import json

import pytest

from auber.errors import ConfigError
from auber.search.players import auber
from auber.search.players.exhaustive import all_masks, choose_layer
from auber.search.registry import get_method
from auber.search.toy import ToyLayer
from tests.search.made import CountingToy
from tests.small import small_config


@pytest.mark.parametrize("num_heads", [1, 7])
@pytest.mark.parametrize("steps", [0, 30])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_found(seed, steps, num_heads):
    toy = CountingToy(ToyLayer(num_heads, seed, bias=0.002, steps=steps))
    choice = choose_layer(toy.search())
    best, score = toy.layer.optimum()
    assert choice.removed == best  # among equals: fewest heads, then the first
    assert choice.details["best_score"] == score
    assert choice.details["given_score"] == toy.score(())
    assert choice.rewards_asked == 2**num_heads - 1 == len(set(toy.asked)) == len(toy.asked)


@pytest.mark.parametrize("pay", [0.0, 0.3, 2.0])
def test_what_is_paid_for_a_head_counts(pay):
    toy = CountingToy(ToyLayer(7, 1, bias=0.002))
    choice = choose_layer(toy.search(small_config(reward__head=pay)))
    worth = {mask: 100 * toy.score(mask) + pay * len(mask) for mask in all_masks(range(7))}
    assert worth[choice.removed] == max(worth.values())
    assert choice.details["best_score"] == toy.score(choice.removed)


def test_every_score_is_kept_as_it_is():
    numbers = (0, 2, 3, 5, 6, 7, 8, 9, 10)  # 511 masks: more than are scored at once
    toy = CountingToy(ToyLayer(9, 3, bias=0.004), numbers)
    choice = choose_layer(toy.search())
    assert choice.removed == tuple(numbers[head] for head in toy.layer.optimum()[0]) != ()
    details = json.loads(json.dumps(choice.details))
    assert details["heads"] == list(numbers)
    assert details["scores"] == [toy.score(mask) for mask in all_masks(numbers)]


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("matrix", ["value", "query", "key"])
def test_the_states_are_those_an_agent_sees(matrix, norm):
    search = CountingToy(ToyLayer(4), (0, 1, 3, 4)).search(
        small_config(agent__episodes=0, search__matrix=matrix, search__norm=norm)
    )
    assert (
        choose_layer(search).details["states"][matrix][norm]
        == auber.choose_layer(search).details["state"]
    )


def test_too_many_heads():
    message = (
        "^layer 0: method 'exhaustive' scores every mask and takes layers of at most 16 heads, "
        "found 17 heads; use"
    )
    with pytest.raises(ConfigError, match=message):
        get_method("exhaustive").check(small_config(), {2: 16, 0: 17})


def test_where_nothing_gains_a_given_plan_stays():
    toy = CountingToy(ToyLayer(4, bias=0.0, single=0.0, pair=0.0))
    choice = choose_layer(toy.search(prior=(1, 3)))
    assert choice.removed == (1, 3)
    assert choice.details["given_score"] == toy.score((1, 3))
