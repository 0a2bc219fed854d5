"""The exchange game's rewards, legal actions and length."""

from __future__ import annotations

import numpy as np
import pytest

from auber.models.plan import PruningPlan
from auber.search.blocks import Layout, Slot
from auber.search.exchange_game import ExchangeGame
from auber.search.game import GameError

# Two slots: heads of layer 0 at 2 multiply-adds each, blocks of two neurons at 1 each neuron.
LAYOUT = Layout(
    [Slot("head", 0, ((0,), (1,), (2,)), 2), Slot("neuron", 0, ((0, 1), (2, 3), (4, 5)), 1)]
)
START = PruningPlan({0: [0]}, {0: [0, 1]})
FEWER_HEADS, FEWER_NEURONS = 0, 1  # the actions: heads for neurons, neurons for heads


def score(plan):
    return 0.5 + 0.01 * plan.num_heads - 0.02 * plan.num_neurons


def make_game(**settings):
    return ExchangeGame(LAYOUT, START, score, **settings)


def test_the_reward_is_the_change_of_the_score_in_points():
    game = make_game()
    assert game.stop == 2
    np.testing.assert_allclose(game.state, [2 / 3, 2 / 3])
    step = game.step(FEWER_HEADS)
    assert game.plan == PruningPlan({0: [0, 1]})
    assert step.reward == pytest.approx(100 * (0.01 + 0.04))
    np.testing.assert_allclose(step.next_state, [1 / 3, 1])
    assert step.next_legal.tolist() == [False, True, True], "nothing to give back, the last head"
    back = game.step(FEWER_NEURONS)
    assert (game.plan, back.reward) == (START, pytest.approx(-step.reward))
    assert game.rewards_computed == 2
    stop = game.step(game.stop)
    assert (stop.reward, stop.done, game.over) == (0.0, True, True)
    assert not game.legal_actions().any()


def test_an_episode_is_of_limited_length():
    game = make_game(length=1)
    game.step(FEWER_HEADS)
    assert game.legal_actions().tolist() == [False, False, True]
    np.testing.assert_allclose(game.reset(), [2 / 3, 2 / 3])
    assert game.legal_actions().tolist() == [True, True, True]


@pytest.mark.parametrize("action", [0, 3, -1])
def test_illegal_actions_are_refused_and_change_nothing(action):
    game = make_game()
    game.step(FEWER_HEADS)
    message = rf"^exchange: action {action} is illegal after 1 exchanges; legal_actions\(\) has"
    with pytest.raises(GameError, match=message):
        game.step(action)
    assert game.plan == PruningPlan({0: [0, 1]})


def test_the_length_and_scores_are_checked():
    with pytest.raises(GameError, match="the length must be at least 1 exchange, found 0"):
        make_game(length=0)
    game = ExchangeGame(LAYOUT, START, lambda plan: float("nan"))
    with pytest.raises(GameError, match="the score must be a finite number, found nan"):
        game.step(FEWER_HEADS)
