from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from auber.config import Agent, make_config
from auber.errors import ConfigError
from auber.search.game import FloatArray, PruningGame
from auber.search.players.dqn import (
    DQNAgent,
    LayerOutcome,
    QNetwork,
    check_games,
    epsilon,
    play_layer,
)
from auber.search.players.replay import Batch, unpack
from auber.search.toy import ToyLayer


def replace(config: Agent, **changes: object) -> Agent:
    return config.model_copy(update=changes)


DEFAULT = make_config(
    "default", settings={"protocol": "seen"}
).agent  # of games that begin with all heads
SMALL = replace(
    DEFAULT,
    episodes=12,
    hidden_size=16,
    hidden_layers=1,
    batch_size=16,
    learning_starts=16,
    updates_per_episode=2,
)


def make_agent(
    num_heads: int = 4, config: Agent = SMALL, seed: int = 0, layer: int = 0
) -> DQNAgent:
    return DQNAgent(num_heads, config, seed=seed, layer=layer)


def play_episode(game: PruningGame, agent: DQNAgent) -> None:
    state: FloatArray | None = game.reset()
    while state is not None:
        step = game.step(agent.act(state, game.legal_actions()))
        agent.remember(step)
        state = step.next_state


def play_toy(layer: ToyLayer, config: Agent, seed: int = 0) -> LayerOutcome:
    return play_layer(PruningGame(layer.state, layer.score), config, seed=seed, layer=0)


def values_are(network: QNetwork, values: list[float]) -> None:
    """Make the network answer `values` to any state."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.layers[-1].bias.copy_(torch.tensor(values))


def test_network_shape_and_layers() -> None:
    network = QNetwork(12, Agent(), seed=0)
    assert [tuple(layer.weight.shape) for layer in network.layers] == [
        (512, 12),
        (512, 512),
        (512, 512),
        (13, 512),
    ]
    assert network(torch.zeros(5, 12)).shape == (5, 13)


def test_network_starts_from_its_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (QNetwork(4, SMALL, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.layers[0].weight, other.layers[0].weight)


def test_scaled_state_averages_one_at_the_input() -> None:
    plain = QNetwork(4, replace(SMALL, scale_state=False), seed=0)
    scaled = QNetwork(4, replace(SMALL, scale_state=True), seed=0)
    state = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    torch.testing.assert_close(scaled(state), plain(state * 4))


@pytest.mark.parametrize(
    ("actions", "expected"), [(0, 1.0), (256, 0.05 + 0.95 / math.e), (512, 0.05 + 0.95 / math.e**2)]
)
def test_epsilon_at_exact_steps(actions: int, expected: float) -> None:
    assert epsilon(Agent(), actions) == pytest.approx(expected, abs=1e-15)


def test_only_chosen_actions_count_for_epsilon() -> None:
    agent = make_agent(num_heads=3)
    agent.act(np.zeros(3, dtype=np.float32), np.array([False, False, False, True]))
    assert agent.actions_taken == 0
    agent.act(np.zeros(3, dtype=np.float32), np.array([False, False, True, True]))
    assert agent.actions_taken == 1


def test_no_update_before_learning_starts() -> None:
    config = replace(Agent(), hidden_size=8, hidden_layers=1)
    agent = make_agent(config=config)
    game = PruningGame(np.full(4, 0.25, dtype=np.float32), lambda removed: 0.1 * len(removed))
    step = game.step(0)
    for _ in range(127):
        agent.remember(step)
    assert agent.finish_episode() is None
    agent.remember(step)
    assert agent.finish_episode() is not None


def test_target_is_copied_at_exactly_the_35th_and_70th_episode() -> None:
    agent = make_agent(config=replace(SMALL, target_every=35))
    copied_at = []
    for episode in range(1, 101):
        with torch.no_grad():
            agent.learner.policy.layers[0].bias.add_(
                1.0
            )  # every episode leaves another policy network
        agent.finish_episode()
        if torch.equal(agent.learner.policy.layers[0].bias, agent.learner.target.layers[0].bias):
            copied_at.append(episode)
    assert copied_at == [35, 70]


@pytest.mark.parametrize("share_of_random", [0.0, 0.5, 1.0])
def test_removed_heads_are_never_chosen_again(share_of_random: float) -> None:
    agent = make_agent(
        config=replace(SMALL, epsilon_start=share_of_random, epsilon_end=share_of_random)
    )
    values_are(
        agent.learner.policy, [9.0, 1.0, 8.0, 0.5, 0.0]
    )  # the policy would love the removed heads
    legal = np.array([False, True, False, True, True])
    chosen = {
        agent.act(np.array([0.0, 0.5, 0.0, 0.5], dtype=np.float32), legal) for _ in range(200)
    }
    assert chosen == ({1} if share_of_random == 0 else {1, 3, 4})


@pytest.mark.parametrize(("double_q", "expected"), [(False, 3.0), (True, 2.0)])
def test_target_maximum_counts_legal_actions_only(double_q: bool, expected: float) -> None:
    agent = make_agent(num_heads=2, config=replace(SMALL, double_q=double_q, gamma=0.5))
    values_are(
        agent.learner.policy, [9.0, 4.0, 5.0]
    )  # double Q takes action 2, the best of the legal ones here
    values_are(agent.learner.target, [100.0, 4.0, 2.0])
    batch = one_transition(action=0, reward=1.0, next_legal=[False, True, True])
    assert agent.learner.q_targets(batch).tolist() == [expected]


def test_target_of_a_stop_is_its_reward() -> None:
    agent = make_agent(num_heads=2)
    values_are(agent.learner.target, [5.0, 5.0, 5.0])
    assert agent.learner.q_targets(
        one_transition(action=2, reward=0.25, next_legal=None)
    ).tolist() == [0.25]


def test_forced_stop_is_all_that_a_single_head_can_hope_for() -> None:
    agent = make_agent(num_heads=2)
    values_are(agent.learner.target, [100.0, 100.0, -1.0])
    batch = one_transition(action=0, reward=1.0, next_legal=[False, False, True])
    assert agent.learner.q_targets(batch).tolist() == [0.0]


def one_transition(*, action: int, reward: float, next_legal: list[bool] | None) -> Batch:
    return Batch(
        states=torch.full((1, 2), 0.5),
        actions=torch.tensor([action]),
        rewards=torch.tensor([reward]),
        next_states=torch.zeros(1, 2),
        next_legal=torch.tensor([next_legal or [False] * 3]),
        done=torch.tensor([next_legal is None]),
    )


def test_fixed_stop_value_rules_acting_and_targets_and_is_not_learned() -> None:
    agent = make_agent(
        num_heads=2,
        config=replace(SMALL, stop_value=0.2, epsilon_start=0.0, epsilon_end=0.0),
    )
    state, legal = np.full(2, 0.5, dtype=np.float32), np.ones(3, dtype=np.bool_)
    values_are(agent.learner.policy, [0.1, 0.0, -50.0])
    values_are(agent.learner.target, [0.1, 0.0, 50.0])
    assert agent.act(state, legal) == 2
    assert agent.q_values(state)[2] == pytest.approx(0.2)
    assert agent.learner.q_targets(
        one_transition(action=0, reward=1.0, next_legal=[False, True, True])
    ).tolist() == pytest.approx([1.2])
    assert agent.learner.q_targets(
        one_transition(action=2, reward=7.0, next_legal=None)
    ).tolist() == pytest.approx([0.2])
    game = PruningGame(state, lambda removed: 0.5, stop_reward=7.0)
    for _ in range(SMALL.learning_starts):
        game.reset()
        agent.remember(game.step(2))
    before = [parameter.clone() for parameter in agent.learner.policy.parameters()]
    assert agent.finish_episode() == 0.0
    assert all(
        torch.equal(a, b) for a, b in zip(before, agent.learner.policy.parameters(), strict=True)
    )


def test_gradients_are_clamped_entrywise() -> None:
    config = replace(
        SMALL,
        optimizer="sgd",
        momentum=0.0,
        learning_rate=1.0,
        gradient_clamp=1e-3,
        updates_per_episode=1,
    )
    agent = make_agent(config=config)
    game = PruningGame(np.full(4, 0.25, dtype=np.float32), lambda removed: float(len(removed)))
    for _ in range(20):
        play_episode(game, agent)
    before = [parameter.clone() for parameter in agent.learner.policy.parameters()]
    agent.finish_episode()
    moves = torch.cat(
        [
            (a - b).detach().abs().flatten()
            for a, b in zip(before, agent.learner.policy.parameters(), strict=True)
        ]
    )
    assert float(moves.max()) == pytest.approx(1e-3, rel=1e-3)


def test_forced_stop_is_stored_like_any_other() -> None:
    agent = make_agent(num_heads=3, config=replace(SMALL, epsilon_start=0.0, epsilon_end=0.0))
    values_are(agent.learner.policy, [3.0, 2.0, 1.0, 0.0])  # removes until it may not
    play_episode(
        PruningGame(np.full(3, 1 / 3, dtype=np.float32), lambda removed: 0.5, stop_reward=4.0),
        agent,
    )
    assert len(agent.memory) == 3
    batch = unpack(agent.memory.sample(3, np.random.default_rng(0)))
    stop = batch.actions == 3
    assert stop.sum() == 1
    assert (batch.rewards[stop].item(), batch.done[stop].item()) == (0.0, True)
    assert (batch.states[stop] > 0).sum() == 1


def test_replay_must_hold_what_learning_waits_for() -> None:
    message = r"^agent\.replay_size must be at least agent\.learning_starts \(128\), found 64: no update would ever be made$"
    with pytest.raises(ConfigError, match=message):
        make_agent(config=replace(Agent(), replay_size=64))


@pytest.mark.parametrize(("has_prior", "most"), [(False, 36), (True, 48)])
def test_games_must_be_enough_for_an_update_where_the_policy_decides(
    has_prior: bool, most: int
) -> None:
    """Of three heads two go and the game stops; one that is given comes back besides."""
    config = replace(SMALL, choose="rollout", learning_starts=most)
    check_games(config, 3, 5, has_prior=has_prior)
    config = replace(config, learning_starts=most + 1)
    message = (
        rf"^layer 5: agent\.episodes must be so many that the agent learns, found 12: its games on 3 heads make {most} moves at most, and "
        rf"the first update waits for {most + 1}; raise it, lower agent\.learning_starts, or let agent\.choose=best decide$"
    )
    with pytest.raises(ConfigError, match=message):
        check_games(config, 3, 5, has_prior=has_prior)
    check_games(replace(config, choose="best"), 3, 5, has_prior=has_prior)


@pytest.mark.parametrize("given", [(), (1,)])
def test_no_game_is_longer_than_that(given: tuple[int, ...]) -> None:
    order = [1, 0, 2]  # what is given comes back first, so that all the others can go
    game = PruningGame(np.full(3, 1 / 3, dtype=np.float32), lambda removed: 0.5, prior=given)
    moves = 0
    while not game.over:
        legal = game.legal_actions()
        game.step(next((head for head in order if legal[head]), game.stop))
        moves += 1
    assert moves == 3 + bool(given)


def test_updates_are_counted() -> None:
    config = replace(SMALL, episodes=9)
    toy = ToyLayer(4, seed=0)
    losses: list[float | None] = []
    for starts, is_taught in ((8, True), (64, False)):
        game = PruningGame(toy.state, toy.score)
        asked = replace(config, learning_starts=starts)
        outcome = play_layer(
            game,
            asked,
            seed=0,
            layer=0,
            on_episode=lambda _, numbers: losses.append(numbers.get("loss")),
        )
        assert outcome.updates == 2 * sum(loss is not None for loss in losses)
        assert (outcome.updates > 0) == is_taught
        losses.clear()


def test_same_seed_same_play_to_the_last_bit() -> None:
    layer = ToyLayer(6, seed=0)
    torch.manual_seed(1)
    one, infos = play_recorded(layer, seed=3)
    torch.manual_seed(2)
    two, same_infos = play_recorded(layer, seed=3)
    assert one == two
    assert infos == same_infos
    assert play_recorded(layer, seed=4)[0].q_values != one.q_values


def play_recorded(
    layer: ToyLayer, seed: int
) -> tuple[LayerOutcome, list[tuple[int, dict[str, float]]]]:
    infos: list[tuple[int, dict[str, float]]] = []
    config = replace(SMALL, episodes=25)
    outcome = play_layer(
        PruningGame(layer.state, layer.score),
        config,
        seed=seed,
        layer=5,
        on_episode=lambda *info: infos.append(info),
    )
    return outcome, infos


def test_agent_computes_on_one_thread_and_the_scorer_on_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = ToyLayer(4, seed=0)
    threads: dict[str, set[int]] = {"network": set(), "scorer": set()}
    forward = QNetwork.forward

    def watched_forward(self: QNetwork, states: torch.Tensor) -> torch.Tensor:
        threads["network"].add(torch.get_num_threads())
        return forward(self, states)

    def watched_score(removed: tuple[int, ...]) -> float:
        threads["scorer"].add(torch.get_num_threads())
        return layer.score(removed)

    monkeypatch.setattr(QNetwork, "forward", watched_forward)
    torch.set_num_threads(2)
    try:
        play_layer(PruningGame(layer.state, watched_score), SMALL, seed=0, layer=0)
    finally:
        torch.set_num_threads(1)
    assert threads == {"network": {1}, "scorer": {2}}


def test_outcome_adds_up() -> None:
    layer = ToyLayer(6, seed=0)
    outcome, infos = play_recorded(layer, seed=0)
    assert outcome.prior_score == layer.score(())
    assert outcome.rollout_score == layer.score(outcome.rollout)
    assert (
        outcome.best_score
        == layer.score(outcome.best)
        >= max(outcome.rollout_score, outcome.prior_score)
    )
    assert outcome.rewards_computed <= min(outcome.rewards_asked, 2**6 - 1)
    assert len(outcome.q_values) == 7
    assert outcome.curve[0] == (1, outcome.prior_score)
    assert outcome.curve[-1][1] == outcome.best_score
    assert [episode for episode, _ in infos] == list(range(1, 26))
    assert "loss" not in infos[0][1]
    assert "loss" in infos[-1][1]
    assert infos[-1][1]["epsilon"] < infos[0][1]["epsilon"] < SMALL.epsilon_start


@pytest.mark.parametrize("choose", ["rollout", "best"])
def test_plan_is_what_choose_says(choose: str) -> None:
    outcome = play_toy(ToyLayer(6, seed=0), replace(SMALL, choose=choose))
    assert outcome.removed == getattr(outcome, choose)


def test_among_equal_scores_the_best_removes_fewest() -> None:
    game = PruningGame(np.full(4, 0.25, dtype=np.float32), lambda removed: 0.5)
    assert play_layer(game, SMALL, seed=0, layer=0).best == ()


def test_layer_of_one_head_is_left_alone() -> None:
    outcome = play_layer(
        PruningGame(np.ones(1, dtype=np.float32), lambda removed: 0.5), SMALL, seed=0, layer=0
    )
    assert (outcome.removed, outcome.rewards_computed, outcome.updates) == ((), 1, 0)


def greedy_score(layer: ToyLayer) -> float:
    """One-step look-ahead: remove what gains most while anything gains."""
    removed: tuple[int, ...] = ()
    while len(removed) < layer.num_heads - 1:
        candidates = [
            tuple(sorted((*removed, head)))
            for head in range(layer.num_heads)
            if head not in removed
        ]
        best = max(candidates, key=layer.score)
        if layer.score(best) <= layer.score(removed):
            break
        removed = best
    return layer.score(removed)


def random_search_score(layer: ToyLayer, rewards: int, seed: int) -> float:
    """The best of the unpruned layer and `rewards` - 1 other masks drawn uniformly."""
    masks = [
        mask
        for size in range(1, layer.num_heads)
        for mask in itertools.combinations(range(layer.num_heads), size)
    ]
    drawn = np.random.default_rng(seed).choice(len(masks), rewards - 1, replace=False)
    return max(layer.score(()), *(layer.score(masks[index]) for index in drawn))


@pytest.fixture(scope="module")
def learned() -> list[tuple[ToyLayer, LayerOutcome]]:
    """The default agent, seeds 0 to 9, on ten layers of 12 heads: the first whose optimum gains two points or more."""
    layers = [ToyLayer(seed=seed) for seed in (0, 2, 3, 4, 5, 6, 8, 9, 12, 13)]
    return [(layer, play_toy(layer, DEFAULT, seed=seed)) for seed, layer in enumerate(layers)]


def regret(layer: ToyLayer, score: float) -> float:
    """The share of the gain that is there to be had which was missed: 0 is the optimum, 1 the unpruned layer."""
    optimum, unpruned = layer.optimum()[1], layer.score(())
    return (optimum - score) / (optimum - unpruned)


def test_default_agent_finds_the_optimum_that_greedy_misses(
    learned: list[tuple[ToyLayer, LayerOutcome]],
) -> None:
    assert all(regret(layer, greedy_score(layer)) > 0.05 for layer, _ in learned)
    found = [regret(layer, layer.score(outcome.removed)) for layer, outcome in learned]
    assert sum(share <= 0.05 for share in found) >= 9, found


def test_default_agent_beats_random_search_at_the_same_cost(
    learned: list[tuple[ToyLayer, LayerOutcome]],
) -> None:
    agent = [regret(layer, layer.score(outcome.removed)) for layer, outcome in learned]
    random = [
        regret(layer, random_search_score(layer, outcome.rewards_computed, seed))
        for seed, (layer, outcome) in enumerate(learned)
    ]
    assert np.mean(agent) < np.mean(random) / 2


def test_default_agent_is_frugal(learned: list[tuple[ToyLayer, LayerOutcome]]) -> None:
    assert np.mean([outcome.rewards_computed for _, outcome in learned]) < 400


def test_default_roll_out_learns_too(learned: list[tuple[ToyLayer, LayerOutcome]]) -> None:
    roll_outs = [regret(layer, outcome.rollout_score) for layer, outcome in learned]
    greedy = [regret(layer, greedy_score(layer)) for layer, _ in learned]
    assert np.mean(roll_outs) < np.mean(greedy) / 2


def test_the_plan_is_what_is_worth_most_and_its_score_is_the_metric() -> None:
    layer = ToyLayer(6, 1, bias=-0.002)
    config = replace(make_config("default").agent, episodes=60)
    games = [PruningGame(layer.state, layer.score, unit_reward=pay) for pay in (0.0, 0.5, 100.0)]
    free, paid, eager = (play_layer(game, config, seed=0, layer=0) for game in games)
    assert len(free.removed) <= len(paid.removed) <= len(eager.removed) == 5
    assert paid.removed == max(games[1].scores, key=games[1].objective)
    assert paid.best_score == layer.score(paid.removed)
    assert len(eager.rollout) == 5, "the agent has learned to be paid"
