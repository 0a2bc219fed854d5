from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.search.blocks import rank_by_norm
from auber.search.env import (
    ENV_ID,
    EXCHANGE_ENV_ID,
    NEURON_ENV_ID,
    HeadPruningEnv,
    PlanExchangeEnv,
)
from auber.search.game import GameError
from auber.search.state import block_state
from auber.search.toy import ToyLayer
from tests.tiny_models import tiny_model

STATE = np.array([0.5, 0.3, 0.2], dtype=np.float32)
SCORES = {(): 0.50, (0,): 0.52, (1,): 0.49, (2,): 0.50, (0, 1): 0.60, (0, 2): 0.40, (1, 2): 0.10}


def make_env(**settings):
    """Return the environment after its reset."""
    env = gymnasium.make(ENV_ID, state=STATE, score=SCORES.__getitem__, **settings).unwrapped
    assert isinstance(env, HeadPruningEnv)
    env.reset(seed=0)
    return env


def test_the_environment_passes_gymnasiums_checker():
    check_env(gymnasium.make(f"auber.search.env:{ENV_ID}").unwrapped)
    check_env(make_env())
    observation, info = gymnasium.make(ENV_ID).reset(seed=0)
    np.testing.assert_array_equal(observation, ToyLayer().state)
    assert info["score"] == ToyLayer().score(())
    observation[:] = 9.0  # observations belong to the caller
    np.testing.assert_array_equal(gymnasium.make(ENV_ID).reset(seed=0)[0], ToyLayer().state)


@pytest.mark.parametrize(
    ("name", "actions", "entries"), [(NEURON_ENV_ID, 17, 16), (EXCHANGE_ENV_ID, 31, 6)]
)
def test_the_other_games_pass_gymnasiums_checker(name, actions, entries):
    env = gymnasium.make(f"auber.search.env:{name}").unwrapped
    check_env(env)
    assert (env.action_space.n, env.observation_space.shape) == (actions, (entries,))


def test_a_feed_forward_is_played_by_blocks_on_a_real_layer():
    encoder = encoder_of(tiny_model("modernbert"))  # gated
    blocks = rank_by_norm(encoder, 0, encoder.present_neurons(0), 4)
    state = block_state(encoder.parts(0).contract.weight, blocks).numpy()
    asked = []

    def score(removed):
        asked.append(sorted(neuron for block in removed for neuron in blocks[block]))
        return 0.5 + len(removed) / 100

    env = gymnasium.make(NEURON_ENV_ID, state=state, score=score, block_reward=0.5)
    observation, _ = env.reset(seed=0)
    assert observation.argmin() == 0, "the lowest block is ranked first"
    assert observation.sum() == pytest.approx(1)
    _, reward, *_ = env.step(2)
    assert (reward, asked) == (pytest.approx(1.5), [[], sorted(blocks[2])])


def test_an_exchange_keeps_the_cost_and_ends_in_time():
    env = gymnasium.make(EXCHANGE_ENV_ID, length=3).unwrapped
    assert isinstance(env, PlanExchangeEnv)
    _, info = env.reset(seed=0)
    layout, start, before = env.game.layout, env.game.start, info["score"]
    total, done = 0.0, False
    while not done:
        *others, stop = np.flatnonzero(info["action_mask"])
        _, reward, done, _, info = env.step(others[0] if others else stop)
        total += reward
    assert env.game.exchanges == 3
    saved = [layout.saved(layout.flags(plan)) for plan in (start, env.game.plan)]
    assert saved[1] >= saved[0]
    assert total == pytest.approx(100 * (info["score"] - before))
    with pytest.raises(GameError, match="layout, start and score belong together; give all three"):
        PlanExchangeEnv(layout)


def test_the_action_mask_comes_with_every_reset_and_step():
    env = make_env(stop_reward=0.5)
    _, info = env.reset(seed=0)
    assert info["action_mask"].dtype == np.int8
    assert info["action_mask"].tolist() == [1, 1, 1, 1]
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated) == (pytest.approx(2.0), False, False)
    assert info["action_mask"].tolist() == [0, 1, 1, 1]
    _, _, _, _, info = env.step(1)
    assert info["action_mask"].tolist() == [0, 0, 0, 1]
    _, reward, terminated, _, _ = env.step(2)  # the last head stays: a forced stop
    assert (reward, terminated, env.game.removed) == (0.0, True, (0, 1))


@pytest.mark.parametrize("action", [3, 0], ids=["stop", "illegal"])
def test_a_stop_and_an_illegal_action_end_the_episode_with_the_last_state(action):
    env = make_env(stop_reward=0.5)
    before, *_ = env.step(0)
    after, reward, terminated, _, info = env.step(action)
    np.testing.assert_array_equal(before, after)
    assert (reward, terminated, info["score"]) == (0.5, True, 0.52)
    assert info["action_mask"].tolist() == [0, 0, 0, 0]
    assert env.game.removed == (0,)
    message = r"^environment: the episode is over; call reset\(\) before step\(\)$"
    with pytest.raises(GameError, match=message):
        env.step(0)


def test_wrong_arguments_are_refused():
    message = "^environment: state and score belong together; give both, or neither"
    with pytest.raises(GameError, match=message):
        HeadPruningEnv(state=STATE)
    message = r"^environment: a state's entries must be from 0 to 1, found \[2\.0, 0\.0\]$"
    with pytest.raises(GameError, match=message):
        HeadPruningEnv(np.array([2.0, 0.0]), {(): 0.5}.__getitem__)
    with pytest.raises(GameError, match=r"^environment: an action must be from 0 to 3, found 4$"):
        make_env().step(4)


def test_another_agent_learns_a_legal_plan():
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    layer = ToyLayer(6, seed=1, bias=0.0, single=0.02, pair=0.004)
    env = gymnasium.make(ENV_ID, state=layer.state, score=layer.score)
    agent = stable_baselines3.DQN(
        "MlpPolicy", env, learning_rate=2e-3, learning_starts=100, gamma=1.0,
        target_update_interval=50, exploration_fraction=0.5,
        policy_kwargs={"net_arch": [32, 32]}, seed=0, device="cpu",
    )  # fmt: skip
    agent.learn(1500)
    observation, info = env.reset(seed=0)
    unpruned, terminated = info["score"], False
    while not terminated:
        action, _ = agent.predict(observation, deterministic=True)
        observation, _, terminated, _, info = env.step(action)
    PruningPlan({0: env.unwrapped.game.removed}).check(num_layers=1, num_heads=6, num_neurons=1)
    assert info["score"] > unpruned
