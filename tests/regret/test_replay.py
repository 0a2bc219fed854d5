from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from auber.errors import RunError
from auber.regret.measure import expected_regret
from auber.regret.replay import BUDGETS, REWARDS, replay_layer
from auber.search.players import auber, greedy
from auber.search.toy import ToyLayer
from tests.regret.made import make_layer
from tests.search.made import CountingToy
from tests.small import small_config

CONFIG = small_config(agent__episodes=40)


def missed(toy: CountingToy, optimum: float, rewards: int) -> float:
    """What the best of the first so many different masks that were asked for is below the best of all, in points."""
    return 100 * (
        optimum - max(toy.score(mask) for mask in islice(dict.fromkeys(toy.asked), rewards))
    )


def test_a_replay_is_the_search_on_the_layer_itself():
    """The methods play on a layer that counts what it is asked for; the replay must have missed the same."""
    toy = CountingToy(ToyLayer(8, 1, bias=0.002))
    work = toy.search(CONFIG)
    chosen = auber.choose_layer(work)
    state = tuple(chosen.details["state"])
    # The toy model's one layer is layer 0, so that is the number the agent's draws come from.
    table = replace(make_layer(1, 8), layer=0, states={"value": {"l1": state}})
    replay = replay_layer(table, {"mine": CONFIG}, [CONFIG.seed])
    (play,) = replay.agents["mine"]
    optimum = toy.layer.optimum()[1]
    assert play.regret == pytest.approx(
        [missed(toy, optimum, rewards) for rewards in REWARDS], abs=1e-12
    )
    assert play.rewards == chosen.rewards_computed == len(set(toy.asked))
    assert play.rollout == pytest.approx(
        100 * (optimum - chosen.details["rollout_score"]), abs=1e-12
    )
    assert play.choice == pytest.approx(100 * (optimum - toy.score(chosen.removed)), abs=1e-12)
    toy.asked.clear()
    chosen = greedy.choose_layer(work)
    assert replay.greedy.regret == pytest.approx(
        [missed(toy, optimum, rewards) for rewards in REWARDS], abs=1e-12
    )
    assert replay.greedy.rewards == len(toy.asked)
    assert replay.greedy.choice == pytest.approx(
        100 * (optimum - toy.score(chosen.removed)), abs=1e-12
    )
    assert replay.greedy.rollout is None


def test_random_search_is_the_expectation():
    table = make_layer(1, 8)
    random = replay_layer(table, {"mine": small_config(agent__episodes=0)}, [0]).random
    assert random == pytest.approx(
        [100 * expected_regret(table.scores, rewards) for rewards in REWARDS]
    )
    assert list(random) == sorted(random, reverse=True)
    assert random[0] == pytest.approx(100 * (table.optimum - table.unpruned))
    assert random[0] > random[-1] == 0.0  # 300 draws without repeats are more than all 255 masks


def test_every_budget_is_on_the_curve():
    assert set(BUDGETS) <= set(REWARDS)
    assert REWARDS[0] == 1
    assert list(REWARDS) == sorted(REWARDS)


def test_presets_differ_and_so_do_seeds_and_the_same_repeats():
    table = make_layer(2, 7)
    presets = {
        "best": CONFIG.replace({"agent.choose": "best"}),
        "wide": CONFIG.replace({"agent.hidden_size": 24}),
    }
    heard = []
    replay = replay_layer(table, presets, range(3), lambda: heard.append(1))
    assert len(heard) == 6
    assert replay == replay_layer(table, presets, range(3))
    assert len({play.regret for play in replay.agents["best"]}) > 1
    assert replay.agents["best"] != replay.agents["wide"]
    for play in replay.agents["best"]:
        assert play.choice == pytest.approx(play.regret[-1])  # all 127 masks fit into 300 rewards
    assert any(play.rollout > play.choice for play in replay.agents["best"])


def test_a_state_that_was_not_recorded():
    preset = CONFIG.replace({"search.norm": "l2"})
    message = "^layer 2: preset mine plays on the state 'value l2', which must be in the table, found value l1; record"
    with pytest.raises(RunError, match=message):
        replay_layer(make_layer(2), {"mine": preset}, [0])


def test_a_layer_of_one_head_leaves_nothing_to_miss():
    replay = replay_layer(make_layer(0, 1), {"mine": CONFIG}, [0])
    assert {*replay.agents["mine"][0].regret, *replay.greedy.regret, *replay.random} == {0.0}
