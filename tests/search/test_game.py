from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auber.search.game import GameError, PruningGame

STATE = np.array([0.5, 0.3, 0.2], dtype=np.float32)
SCORES = {(): 0.50, (0,): 0.52, (1,): 0.49, (2,): 0.50, (0, 1): 0.60, (0, 2): 0.40, (1, 2): 0.10}


def make_game(**settings):
    return PruningGame(STATE, SCORES.__getitem__, **settings)


def test_the_reward_of_a_removal_is_the_change_of_the_metric_in_points():
    game = make_game()
    first, second = game.step(0), game.step(1)
    assert (first.reward, second.reward) == (pytest.approx(2.0), pytest.approx(8.0))
    assert not first.done
    assert game.removed == (0, 1)


@pytest.mark.parametrize(
    ("state", "prior", "message"),
    [
        *((state, (), "the initial state must be one finite number per unit, found")
          for state in (np.zeros((2, 2)), np.zeros(0), np.array([0.1, np.nan]))),
        *((STATE, prior, "the prior must remove some of the 3 units, but not all, found "
           + re.escape(str(list(prior))))
          for prior in ((0, 1, 2), (3,), (-1,), (1, 1))),
    ],
)  # fmt: skip
def test_a_game_needs_a_state_and_a_mask(state, prior, message):
    with pytest.raises(GameError, match=f"^game: {message}"):
        PruningGame(state, SCORES.__getitem__, prior=prior)


def test_a_score_must_be_finite():
    game = PruningGame(STATE, lambda removed: float("nan"))
    message = r"^game: the score must be a finite number, found nan with \[0\] removed$"
    with pytest.raises(GameError, match=message):
        game.step(0)
    assert game.removed == ()


def test_a_unit_reward_is_added():
    game = make_game(unit_reward=0.25)
    returns = [game.step(action).reward for action in (0, 1, game.stop)]
    assert returns == pytest.approx([2.25, 8.25, 0.0])
    assert game.objective((0, 1)) - game.objective(()) == pytest.approx(sum(returns))


def test_a_removal_zeroes_a_copy_of_the_state():
    state = STATE.copy()
    game = PruningGame(state, SCORES.__getitem__)
    state[0] = 9.0
    step = game.step(1)
    np.testing.assert_array_equal(step.state, STATE)
    np.testing.assert_array_equal(step.next_state, np.array([0.5, 0.0, 0.2], dtype=np.float32))
    np.testing.assert_array_equal(game.reset(), STATE)
    with pytest.raises(ValueError, match="read-only"):
        step.state[0] = 1.0


def test_a_chosen_stop_pays_the_stop_reward_and_has_no_next_state():
    game = make_game(stop_reward=0.7)
    step = game.step(game.stop)
    assert (step.reward, step.next_state, step.done) == (0.7, None, True)
    assert not step.next_legal.any()
    assert game.over


def test_the_forced_stop_pays_nothing():
    game = make_game(stop_reward=0.7)
    game.step(2)
    step = game.step(0)
    assert not step.done
    assert step.next_legal.tolist() == [False, False, False, True]
    forced = game.step(game.stop)
    assert (forced.reward, forced.done) == (0.0, True)
    np.testing.assert_array_equal(forced.state, np.array([0.0, 0.3, 0.0], dtype=np.float32))


def test_illegal_actions_are_refused_and_change_nothing():
    game = make_game()
    game.step(1)
    message = r"^game: action {} is illegal with \[1\] removed; legal: 0, 2, 3$"
    for action in (1, -1, 4):
        with pytest.raises(GameError, match=message.format(action)):
            game.step(action)
    assert game.removed == (1,)
    game.step(game.stop)
    with pytest.raises(GameError, match=r"legal: none, the episode is over: call reset\(\)$"):
        game.step(0)


def test_a_layer_of_one_unit_cannot_be_changed():
    game = PruningGame(np.ones(1, dtype=np.float32), {(): 0.5}.__getitem__, stop_reward=3.0)
    assert game.legal_actions().tolist() == [False, True]
    assert game.step(1).reward == 0.0


def test_each_mask_is_scored_once():
    calls = []

    def score(removed):
        calls.append(removed)
        return SCORES[removed]

    game = PruningGame(STATE, score)
    for _ in range(3):
        game.reset()
        game.step(0)
        game.step(1)
    assert sorted(calls) == [(), (0,), (0, 1)]
    assert (game.rewards_asked, game.rewards_computed) == (7, 3)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_any_legal_play_leaves_a_unit_and_its_rewards_add_up(num_units, seed):
    generator, table = np.random.default_rng(seed), {}
    state = np.full(num_units, 1 / num_units, dtype=np.float32)
    game = PruningGame(state, lambda mask: table.setdefault(mask, float(generator.random())))
    total, steps = 0.0, 0
    while not game.over:
        step = game.step(int(generator.choice(np.flatnonzero(game.legal_actions()))))
        total, steps = total + step.reward, steps + 1
    assert len(game.removed) < num_units
    assert steps == len(game.removed) + 1
    assert total == pytest.approx(100 * (game.metric(game.removed) - game.metric(())))


def test_a_game_may_begin_with_a_prior():
    game = make_game(unit_reward=[0.25, -0.5, 1.0], prior=(1,))
    assert game.removed == game.prior == (1,)
    np.testing.assert_array_equal(game.initial_state, np.array([0.5, 0.0, 0.2], dtype=np.float32))
    back = game.step(1)
    assert back.reward == pytest.approx(100 * (game.metric(()) - game.metric((1,))) - 0.5)
    assert game.removed == ()
    np.testing.assert_array_equal(game.state, STATE)
    assert game.legal_actions().tolist() == [True, False, True, True], "a unit changes once"
    taken = game.step(2)
    assert taken.reward == pytest.approx(100 * (game.metric((2,)) - game.metric(())) + 1.0)
    assert game.objective((2,)) - game.objective((1,)) == pytest.approx(back.reward + taken.reward)
    np.testing.assert_array_equal(game.reset(), game.initial_state)
    assert game.removed == (1,)


def test_one_unit_stays_with_a_prior_too():
    game = make_game(prior=(0, 1))
    assert game.legal_actions().tolist() == [True, True, False, True]
    game.step(0)
    assert game.legal_actions().tolist() == [False, True, True, True]
    game.step(2)
    assert game.legal_actions().tolist() == [False, True, False, True], "0 was put back and stays"


def test_of_equal_masks_the_best_has_the_fewest_changes():
    game = PruningGame(STATE, lambda removed: 0.5, prior=(0, 1))
    game.step(0)
    assert set(game.scores) == {(0, 1), (1,)}
    assert game.best_mask() == (0, 1)
