from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from auber.search.game import GameError, PruningGame

STATE = np.array([0.5, 0.3, 0.2], dtype=np.float32)
SCORES = {(): 0.50, (0,): 0.52, (1,): 0.49, (2,): 0.50, (0, 1): 0.60, (0, 2): 0.40, (1, 2): 0.10}


def make_game(**settings: Any) -> PruningGame:
    return PruningGame(STATE, SCORES.__getitem__, **settings)


def test_a_removal_pays_the_change_of_the_metric_in_points() -> None:
    game = make_game()
    game.reset()
    first = game.step(0)
    assert first.reward == pytest.approx(2.0)
    assert not first.done
    second = game.step(1)
    assert second.reward == pytest.approx(8.0)
    assert game.removed == (0, 1)


def test_a_removal_pays_for_the_head_too() -> None:
    game = make_game(unit_reward=0.25)
    assert game.step(0).reward == pytest.approx(2.25)
    assert game.step(1).reward == pytest.approx(8.25)
    assert game.step(game.stop).reward == 0.0
    assert game.objective((0, 1)) - game.objective(()) == pytest.approx(
        10.5
    )  # what the episode has paid


def test_the_masks_asked_for_are_sorted() -> None:
    game = make_game()
    game.step(1)
    game.step(0)
    assert sorted(game.scores) == [(), (0, 1), (1,)]


def test_a_removal_zeroes_a_copy() -> None:
    game = make_game()
    step = game.step(1)
    np.testing.assert_array_equal(step.state, STATE)
    np.testing.assert_array_equal(step.next_state, np.array([0.5, 0.0, 0.2], dtype=np.float32))
    np.testing.assert_array_equal(game.reset(), STATE)
    with pytest.raises(ValueError, match="read-only"):
        step.state[0] = 1.0


def test_the_callers_state_is_left_alone() -> None:
    state = STATE.copy()
    game = PruningGame(state, SCORES.__getitem__)
    state[0] = 9.0
    np.testing.assert_array_equal(game.reset(), STATE)


def test_a_chosen_stop_pays_the_stop_reward_and_has_no_next_state() -> None:
    game = make_game(stop_reward=0.7)
    step = game.step(game.stop)
    assert (step.reward, step.next_state, step.done) == (0.7, None, True)
    assert not step.next_legal.any()
    assert game.over


def test_after_all_but_one_removal_only_the_stop_is_legal_and_pays_nothing() -> None:
    game = make_game(stop_reward=0.7)
    game.step(2)
    step = game.step(0)
    assert not step.done
    assert step.next_legal.tolist() == [False, False, False, True]
    forced = game.step(game.stop)
    assert (forced.reward, forced.done) == (0.0, True)
    np.testing.assert_array_equal(forced.state, np.array([0.0, 0.3, 0.0], dtype=np.float32))


def test_illegal_actions_are_refused_and_change_nothing() -> None:
    game = make_game()
    game.step(1)
    with pytest.raises(
        GameError, match=r"^game: action 1 is illegal with \[1\] removed; legal: 0, 2, 3$"
    ):
        game.step(1)
    with pytest.raises(GameError, match=r"^game: action -1 is illegal"):
        game.step(-1)
    with pytest.raises(GameError, match=r"^game: action 4 is illegal"):
        game.step(4)
    assert game.removed == (1,)
    game.step(game.stop)
    with pytest.raises(GameError, match=r"legal: none, the episode is over: call reset\(\)$"):
        game.step(0)


def test_a_layer_of_one_head_can_only_be_left_alone() -> None:
    game = PruningGame(np.ones(1, dtype=np.float32), {(): 0.5}.__getitem__, stop_reward=3.0)
    assert game.legal_actions().tolist() == [False, True]
    assert game.step(1).reward == 0.0


def test_each_mask_is_scored_once() -> None:
    calls: list[tuple[int, ...]] = []

    def score(removed: tuple[int, ...]) -> float:
        calls.append(removed)
        return SCORES[removed]

    game = PruningGame(STATE, score)
    for _ in range(3):
        game.reset()
        game.step(0)
        game.step(1)
    assert sorted(calls) == [(), (0,), (0, 1)]
    assert (game.rewards_asked, game.rewards_computed) == (7, 3)


def test_a_score_must_be_finite() -> None:
    game = PruningGame(STATE, lambda removed: float("nan"))
    with pytest.raises(
        GameError,
        match=r"^game: the score must be a finite number, found nan with \[0\] removed$",
    ):
        game.step(0)
    assert game.removed == ()


@pytest.mark.parametrize("state", [np.zeros((2, 2)), np.zeros(0), np.array([0.1, np.nan])])
def test_a_state_must_be_one_number_per_head(state: np.ndarray) -> None:
    with pytest.raises(
        GameError, match=r"^game: the initial state must be one finite number per unit, found"
    ):
        PruningGame(state, SCORES.__getitem__)


@drawn(st.integers(1, 6), st.randoms(use_true_random=False))
def test_any_legal_play_ends_with_a_head_left_and_the_returns_add_up(
    num_heads: int, random: object
) -> None:
    generator = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    table: dict[tuple[int, ...], float] = {}
    game = PruningGame(
        np.full(num_heads, 1 / num_heads, dtype=np.float32),
        lambda removed: table.setdefault(removed, float(generator.random())),
    )
    total, steps = 0.0, 0
    while not game.over:
        step = game.step(int(generator.choice(np.flatnonzero(game.legal_actions()))))
        total, steps = total + step.reward, steps + 1
    assert len(game.removed) < num_heads
    assert steps == len(game.removed) + 1
    assert total == pytest.approx(100 * (game.metric(game.removed) - game.metric(())))


def test_a_game_may_begin_without_some_heads() -> None:
    game = make_game(unit_reward=[0.25, -0.5, 1.0], prior=(1,))
    assert game.removed == game.prior == (1,)
    np.testing.assert_array_equal(game.initial_state, np.array([0.5, 0.0, 0.2], dtype=np.float32))
    back = game.step(1)
    assert back.reward == pytest.approx(100 * (game.metric(()) - game.metric((1,))) - 0.5)
    assert game.removed == ()
    np.testing.assert_array_equal(game.state, STATE)
    assert game.legal_actions().tolist() == [True, False, True, True], "a head is changed once"
    taken = game.step(2)
    assert taken.reward == pytest.approx(100 * (game.metric((2,)) - game.metric(())) + 1.0)
    assert game.objective((2,)) - game.objective((1,)) == pytest.approx(back.reward + taken.reward)
    np.testing.assert_array_equal(game.reset(), game.initial_state)
    assert game.removed == (1,)


def test_one_head_is_left_whatever_a_game_begins_with() -> None:
    game = make_game(prior=(0, 1))
    assert game.legal_actions().tolist() == [True, True, False, True]
    game.step(0)
    assert game.legal_actions().tolist() == [False, True, True, True]
    game.step(2)
    assert game.legal_actions().tolist() == [False, True, False, True], (
        "1 may come back; 0, which came back, stays"
    )


@pytest.mark.parametrize("given", [(0, 1, 2), (3,), (-1,), (1, 1)])
def test_heads_that_a_game_cannot_begin_without(given: tuple[int, ...]) -> None:
    message = rf"^game: the prior must remove some of the 3 units, but not all, found {re.escape(str(list(given)))}$"
    with pytest.raises(GameError, match=message):
        make_game(prior=given)
