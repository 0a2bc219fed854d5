"""The deep Q-network: acting, targets, updates, reproducibility, and that it learns."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch

from auber.config import Agent, make_config
from auber.errors import ConfigError
from auber.search.game import PruningGame, Step
from auber.search.players.dqn import (
    DQNAgent,
    Learner,
    QNetwork,
    check_games,
    epsilon,
    play_layer,
)
from auber.search.players.exhaustive import all_masks
from auber.search.players.greedy import choose_layer
from auber.search.players.replay import Batch, ReplayMemory, unpack
from auber.search.toy import ToyLayer
from auber.training.cuda_graphs import CudaGraphCapture
from tests.recorders import Repeater
from tests.search.made import CountingToy


def replace(config, **changes):
    return config.model_copy(update=changes)


DEFAULT = make_config("default", settings={"protocol": "seen"}).agent  # without a prior
SMALL = replace(
    DEFAULT,
    episodes=12,
    hidden_size=16,
    hidden_layers=1,
    batch_size=16,
    learning_starts=16,
    updates_per_episode=2,
)
PRESETS = ("paper", "default")


def make_agent(num_units=4, **changes):
    return DQNAgent(num_units, replace(SMALL, **changes), seed=0, layer=0)


def play_episode(game, agent):
    state = game.reset()
    while state is not None:
        step = game.step(agent.act(state, game.legal_actions()))
        agent.remember(step)
        state = step.next_state


def play_toy(layer, config, seed=0, **options):
    return play_layer(PruningGame(layer.state, layer.score), config, seed=seed, layer=0, **options)


def set_values(network, values):
    """Make the network answer `values` to any state."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.layers[-1].bias.copy_(torch.tensor(values))


def one_transition(*, action, reward, next_legal):
    return Batch(
        states=torch.full((1, 2), 0.5),
        actions=torch.tensor([action]),
        rewards=torch.tensor([reward]),
        next_states=torch.zeros(1, 2),
        next_legal=torch.tensor([next_legal or [False] * 3]),
        done=torch.tensor([next_legal is None]),
    )


# --- the network ---------------------------------------------------------------------------------


def test_the_network_has_the_papers_layers():
    network = QNetwork(12, Agent(), seed=0)
    shapes = [tuple(layer.weight.shape) for layer in network.layers]
    assert shapes == [(512, 12), (512, 512), (512, 512), (13, 512)]
    assert network(torch.zeros(5, 12)).shape == (5, 13)


def test_a_scaled_state_has_mean_one():
    plain, scaled = (QNetwork(4, replace(SMALL, scale_state=each), 0) for each in (False, True))
    state = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    torch.testing.assert_close(scaled(state), plain(state * 4))


# --- acting and exploration ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "expected"), [(0, 1.0), (256, 0.05 + 0.95 / math.e), (512, 0.05 + 0.95 / math.e**2)]
)
def test_epsilon_at_exact_steps(actions, expected):
    assert epsilon(Agent(), actions) == pytest.approx(expected, abs=1e-15)


def test_forced_actions_do_not_count_for_epsilon():
    agent = make_agent(3)
    agent.act(np.zeros(3, dtype=np.float32), np.array([False, False, False, True]))
    assert agent.actions_taken == 0
    agent.act(np.zeros(3, dtype=np.float32), np.array([False, False, True, True]))
    assert agent.actions_taken == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_illegal_actions_are_never_chosen(share):
    agent = make_agent(epsilon_start=share, epsilon_end=share)
    set_values(agent.learner.policy, [9.0, 1.0, 8.0, 0.5, 0.0])  # highest for illegal actions
    legal = np.array([False, True, False, True, True])
    state = np.array([0.0, 0.5, 0.0, 0.5], dtype=np.float32)
    chosen = {agent.act(state, legal) for _ in range(200)}
    assert chosen == ({1} if share == 0 else {1, 3, 4})


def test_exploration_falls_with_the_actions_taken():
    state, legal = np.full(4, 0.25, dtype=np.float32), np.ones(5, dtype=np.bool_)
    firsts = set()
    for seed in range(20):
        config = replace(SMALL, epsilon_end=0.0, epsilon_decay=1e-3)
        agent = DQNAgent(4, config, seed=seed, layer=0)
        set_values(agent.learner.policy, [9.0, 1.0, 8.0, 0.5, 0.0])
        first, *others = (agent.act(state, legal) for _ in range(5))
        assert set(others) == {0}
        firsts.add(first)
    assert len(firsts) > 1, "at first every action is random"


def test_seeds_and_layers_have_their_own_draws():
    state, legal = np.full(4, 0.25, dtype=np.float32), np.ones(5, dtype=np.bool_)

    def draws(seed, layer):
        """Return values of the initial weights, random actions and sampled transitions."""
        agent = DQNAgent(4, replace(SMALL, epsilon_end=1.0), seed=seed, layer=layer)
        values, actions = (
            agent.q_values(state).tolist(),
            [agent.act(state, legal) for _ in range(9)],
        )
        for number in range(40):
            agent.remember(Step(state, 4, float(number), None, legal))
        sampled = []
        agent.learner.update = lambda rows: sampled.append(rows) or torch.zeros(())
        agent.finish_episode()
        return values, actions, unpack(torch.cat(sampled)).rewards.tolist()

    first = draws(0, 0)
    assert draws(0, 0) == first
    for other in (draws(1, 0), draws(0, 1)):
        assert all(one != another for one, another in zip(first, other, strict=True))


# --- the Q-learning target -----------------------------------------------------------------------


@pytest.mark.parametrize(("double_q", "expected"), [(False, 3.0), (True, 2.0)])
def test_the_targets_maximum_is_over_legal_actions(double_q, expected):
    agent = make_agent(2, double_q=double_q, gamma=0.5)
    # With double Q-learning the policy chooses action 2, the best legal one.
    set_values(agent.learner.policy, [9.0, 4.0, 5.0])
    set_values(agent.learner.target, [100.0, 4.0, 2.0])
    batch = one_transition(action=0, reward=1.0, next_legal=[False, True, True])
    assert agent.learner.q_targets(batch).tolist() == [expected]


@pytest.mark.parametrize(
    ("action", "reward", "next_legal", "expected"),
    [(2, 0.25, None, 0.25), (0, 1.0, [False, False, True], 0.0)],
    ids=["stop", "before a forced stop"],
)
def test_the_target_of_a_stop_and_of_the_action_before(action, reward, next_legal, expected):
    agent = make_agent(2)
    set_values(agent.learner.target, [100.0, 100.0, -1.0])
    batch = one_transition(action=action, reward=reward, next_legal=next_legal)
    assert agent.learner.q_targets(batch).tolist() == [expected]


def test_a_fixed_stop_value_is_used_and_not_learned():
    agent = make_agent(2, stop_value=0.2, epsilon_start=0.0, epsilon_end=0.0)
    state, legal = np.full(2, 0.5, dtype=np.float32), np.ones(3, dtype=np.bool_)
    set_values(agent.learner.policy, [0.1, 0.0, -50.0])
    set_values(agent.learner.target, [0.1, 0.0, 50.0])
    assert agent.act(state, legal) == 2
    assert agent.q_values(state)[2] == pytest.approx(0.2)
    removal = one_transition(action=0, reward=1.0, next_legal=[False, True, True])
    stop = one_transition(action=2, reward=7.0, next_legal=None)
    targets = [agent.learner.q_targets(batch).item() for batch in (removal, stop)]
    assert targets == pytest.approx([1.2, 0.2])
    game = PruningGame(state, lambda removed: 0.5, stop_reward=7.0)
    for _ in range(SMALL.learning_starts):
        game.reset()
        agent.remember(game.step(2))
    before = [parameter.clone() for parameter in agent.learner.policy.parameters()]
    assert agent.finish_episode() == 0.0
    after = agent.learner.policy.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


# --- updates -------------------------------------------------------------------------------------


def test_no_update_before_learning_starts():
    agent = make_agent(hidden_size=8, learning_starts=128)
    game = PruningGame(np.full(4, 0.25, dtype=np.float32), lambda removed: 0.1 * len(removed))
    step = game.step(0)
    for _ in range(127):
        agent.remember(step)
    assert agent.finish_episode() is None
    agent.remember(step)
    assert agent.finish_episode() is not None


def test_the_target_network_is_copied_at_exact_episodes():
    agent, copied_at = make_agent(target_every=35), []
    policy, target = agent.learner.policy.layers[0].bias, agent.learner.target.layers[0].bias
    for episode in range(1, 101):
        with torch.no_grad():
            policy.add_(1.0)
        agent.finish_episode()
        if torch.equal(policy, target):
            copied_at.append(episode)
    assert copied_at == [35, 70]


def test_gradients_are_clamped_entrywise():
    agent = make_agent(
        optimizer="sgd",
        momentum=0.0,
        learning_rate=1.0,
        gradient_clamp=1e-3,
        updates_per_episode=1,
    )
    game = PruningGame(np.full(4, 0.25, dtype=np.float32), lambda removed: float(len(removed)))
    for _ in range(20):
        play_episode(game, agent)
    before = [parameter.clone() for parameter in agent.learner.policy.parameters()]
    agent.finish_episode()
    pairs = zip(before, agent.learner.policy.parameters(), strict=True)
    moves = torch.cat([(a - b).detach().abs().flatten() for a, b in pairs])
    assert float(moves.max()) == pytest.approx(1e-3, rel=1e-3)


def random_batches(count):
    layer, generator = ToyLayer(6, seed=3), np.random.default_rng(0)
    game, memory = PruningGame(layer.state, layer.score), ReplayMemory(400, 6)
    while len(memory) < 400:
        game.reset()
        while not game.over:
            memory.push(game.step(int(generator.choice(np.flatnonzero(game.legal_actions())))))
    return [memory.sample(128, generator) for _ in range(count)]


def learned(config, device, capture):
    """Return the losses of 20 updates, and the values of a state after each."""
    learner = Learner(6, config, 1, torch.device(device), capture)
    state = torch.full((1, 6), 1 / 6)
    losses, values = [], []
    for number, rows in enumerate(random_batches(20), 1):
        losses.append(learner.update(rows).item())
        values.append(learner.values(state)[0].cpu())
        if number % 8 == 0:
            learner.copy_to_target()
    return losses, torch.stack(values)


@pytest.mark.parametrize("preset", PRESETS)
def test_replayed_learning_is_the_same(preset):
    config, capture = make_config(preset).agent, Repeater()
    losses, values = learned(config, "cpu", None)
    replayed_losses, replayed_values = learned(config, "cpu", capture)
    assert capture.recorded == 2  # the values of one state, and an update
    assert replayed_losses == losses
    assert torch.equal(replayed_values, values)
    assert len(set(losses)) == 20
    assert not torch.equal(values[0], values[-1])


def test_a_replay_does_not_overwrite_earlier_results():
    learner = Learner(6, make_config("default").agent, 1, torch.device("cpu"), Repeater())
    states = torch.eye(6)
    found = [learner.values(states[number : number + 1]) for number in range(6)]
    torch.testing.assert_close(torch.cat(found), learner.values(states))


@pytest.mark.gpu
@pytest.mark.parametrize("preset", PRESETS)
def test_a_gpu_learns_what_the_cpu_learns(preset):
    config = make_config(preset).agent
    losses, values = learned(config, "cpu", None)
    gpu_losses, gpu_values = learned(config, "cuda", CudaGraphCapture(torch.device("cuda")))
    assert gpu_losses == pytest.approx(losses, rel=1e-2, abs=1e-4)
    torch.testing.assert_close(gpu_values, values, rtol=2e-2, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("preset", PRESETS)
def test_play_on_a_gpu_is_reproducible(preset):
    config = make_config(preset).agent
    first, again = (play_toy(ToyLayer(12, 1), config, 4, device="cuda") for _ in range(2))
    assert first == again


# --- settings that cannot work -------------------------------------------------------------------


def test_the_memory_must_hold_what_learning_waits_for():
    message = (
        r"^agent\.replay_size must be at least agent\.learning_starts \(128\), found 64: no update "
        "would ever be made$"
    )
    with pytest.raises(ConfigError, match=message):
        make_agent(learning_starts=128, replay_size=64)


@pytest.mark.parametrize(("has_prior", "most"), [(False, 36), (True, 48)])
def test_games_must_be_enough_for_an_update_if_the_policy_decides(has_prior, most):
    """Of three heads two are removed and the game stops; one of a prior can be put back first."""
    config = replace(SMALL, choose="rollout", learning_starts=most)
    check_games(config, 3, 5, has_prior=has_prior)
    config = replace(config, learning_starts=most + 1)
    message = (
        r"^layer 5: agent\.episodes must be high enough for the agent to learn, found 12: its "
        rf"games on 3 heads make {most} moves at most, and the first update waits for {most + 1}; "
        r"raise it, lower agent\.learning_starts, or let agent\.choose=best decide$"
    )
    with pytest.raises(ConfigError, match=message):
        check_games(config, 3, 5, has_prior=has_prior)
    check_games(replace(config, choose="best"), 3, 5, has_prior=has_prior)
    # the longest game
    prior = (1,) if has_prior else ()
    game = PruningGame(np.full(3, 1 / 3, dtype=np.float32), lambda removed: 0.5, prior=prior)
    moves = 0
    while not game.over:
        legal = game.legal_actions()  # the prior's unit is put back first
        game.step(next((unit for unit in (1, 0, 2) if legal[unit]), game.stop))
        moves += 1
    assert 12 * moves == most


# --- playing a layer -----------------------------------------------------------------------------


def recorded_play(layer, seed):
    infos = []
    outcome = play_toy(
        layer, replace(SMALL, episodes=25), seed, on_episode=lambda *info: infos.append(info)
    )
    return outcome, infos


def test_the_same_seed_gives_the_same_play_bit_for_bit():
    layer = ToyLayer(6, seed=0)
    torch.manual_seed(1)
    first = recorded_play(layer, seed=3)
    torch.manual_seed(2)
    assert recorded_play(layer, seed=3) == first
    assert recorded_play(layer, seed=4)[0].q_values != first[0].q_values


def test_the_agent_computes_on_one_thread_and_the_scorer_on_its_own(monkeypatch):
    layer, forward = ToyLayer(4, seed=0), QNetwork.forward
    threads = {"network": set(), "scorer": set()}

    def watched_forward(self, states):
        threads["network"].add(torch.get_num_threads())
        return forward(self, states)

    def watched_score(removed):
        threads["scorer"].add(torch.get_num_threads())
        return layer.score(removed)

    monkeypatch.setattr(QNetwork, "forward", watched_forward)
    torch.set_num_threads(2)
    try:
        play_layer(PruningGame(layer.state, watched_score), SMALL, seed=0, layer=0)
    finally:
        torch.set_num_threads(1)
    assert threads == {"network": {1}, "scorer": {2}}


def test_the_outcome_is_consistent():
    layer = ToyLayer(6, seed=0)
    outcome, infos = recorded_play(layer, seed=0)
    assert outcome.removed == outcome.best  # by the setting agent.choose
    assert outcome.prior_score == layer.score(())
    assert outcome.rollout_score == layer.score(outcome.rollout)
    assert outcome.best_score == layer.score(outcome.best)
    assert outcome.best_score >= max(outcome.rollout_score, outcome.prior_score)
    assert outcome.rewards_computed <= min(outcome.rewards_asked, 2**6 - 1)
    assert len(outcome.q_values) == 7
    assert outcome.curve[0] == (1, outcome.prior_score)
    assert outcome.curve[-1][1] == outcome.best_score
    assert [episode for episode, _ in infos] == list(range(1, 26))
    assert "loss" not in infos[0][1]
    assert outcome.updates == 2 * sum("loss" in numbers for _, numbers in infos) > 0
    assert infos[-1][1]["epsilon"] < infos[0][1]["epsilon"] < SMALL.epsilon_start


@pytest.mark.parametrize("num_units", [1, 4])
def test_of_equal_masks_the_best_removes_fewest(num_units):
    game = PruningGame(np.full(num_units, 0.25, dtype=np.float32), lambda removed: 0.5)
    outcome = play_layer(game, replace(SMALL, choose="rollout"), seed=0, layer=0)
    assert outcome.removed == outcome.rollout
    assert outcome.best == ()
    if num_units == 1:
        assert (outcome.rewards_computed, outcome.updates) == (1, 0)


def test_unit_rewards_change_the_plan():
    layer = ToyLayer(6, 1, bias=-0.002)
    config = replace(make_config("default").agent, episodes=60)
    games = [PruningGame(layer.state, layer.score, unit_reward=each) for each in (0.0, 0.5, 100.0)]
    free, paid, eager = (play_layer(game, config, seed=0, layer=0) for game in games)
    assert len(free.removed) <= len(paid.removed) <= len(eager.removed) == 5
    assert paid.removed == max(games[1].scores, key=games[1].objective)
    assert paid.best_score == layer.score(paid.removed)
    assert len(eager.rollout) == 5, "the agent has learned from the rewards"


# --- learning on layers with a known optimum -----------------------------------------------------


def greedy_score(layer):
    return layer.score(choose_layer(CountingToy(layer).search()).removed)


def random_search_score(layer, rewards, seed):
    """Return the best of the unpruned layer and `rewards` - 1 other masks."""
    masks = all_masks(range(layer.num_heads))[1:]
    drawn = np.random.default_rng(seed).choice(len(masks), rewards - 1, replace=False)
    return max(layer.score(()), *(layer.score(masks[index]) for index in drawn))


optimum_of = functools.cache(ToyLayer.optimum)


def regret(layer, score):
    """Return the missed share of the possible gain: 0 is the optimum, 1 the unpruned layer."""
    optimum, unpruned = optimum_of(layer)[1], layer.score(())
    return (optimum - score) / (optimum - unpruned)


def test_the_default_agent_finds_the_optimum_that_greedy_misses():
    # the first ten layers of 12 heads whose optimum gains two points
    layers = [ToyLayer(seed=seed) for seed in (0, 2, 3, 4, 5, 6, 8, 9, 12, 13)]
    plays = [(layer, play_toy(layer, DEFAULT, seed=seed)) for seed, layer in enumerate(layers)]
    greedy = [regret(layer, greedy_score(layer)) for layer in layers]
    assert min(greedy) > 0.05
    found = [regret(layer, layer.score(outcome.removed)) for layer, outcome in plays]
    assert sum(share <= 0.05 for share in found) >= 9, found
    random = [
        regret(layer, random_search_score(layer, outcome.rewards_computed, seed))
        for seed, (layer, outcome) in enumerate(plays)
    ]
    assert np.mean(found) < np.mean(random) / 2
    assert np.mean([outcome.rewards_computed for _, outcome in plays]) < 400
    roll_outs = [regret(layer, outcome.rollout_score) for layer, outcome in plays]
    assert np.mean(roll_outs) < np.mean(greedy) / 2
