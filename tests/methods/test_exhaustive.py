from __future__ import annotations

import json
from itertools import combinations, islice
from statistics import mean

import pytest

from auber.errors import ConfigError
from auber.methods import auber, greedy
from auber.methods.exhaustive import best_after, choose_layer, expected_regret
from auber.progress import Silent
from auber.search.toy import ToyLayer
from tests.methods.works import CountingToy
from tests.small import small_config


@pytest.mark.parametrize("steps", [0, 30])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_found(seed, steps):
    toy = CountingToy(ToyLayer(7, seed, bias=0.002, steps=steps))
    choice = choose_layer(toy.work())
    best, score = toy.layer.optimum()
    assert choice.removed == best  # among equals: fewest heads, then the first
    assert choice.details["best_score"] == score
    assert choice.details["unpruned_score"] == toy.score(())
    assert choice.rewards_asked == choice.rewards_computed == 2**7 - 1 == len(set(toy.asked)) == len(toy.asked)
    json.dumps(choice.details)


def test_what_the_other_searches_had_found():
    toy = CountingToy(ToyLayer(8, 1, bias=0.002))
    config = small_config(agent__episodes=40)
    regret = choose_layer(toy.work(config)).details["regret"]
    optimum = toy.layer.optimum()[1]
    # the same searches once more, on the layer itself
    for name, method in (("auber", auber), ("greedy", greedy)):
        alone = CountingToy(toy.layer)
        choice = method.choose_layer(alone.work(config))
        order = list(dict.fromkeys(alone.asked))
        assert regret[f"{name}_rewards"] == len(order)
        for budget in (50, 100, 200, 300):
            best = max(toy.score(mask) for mask in islice(order, budget))
            assert regret[name][str(budget)] == pytest.approx(optimum - best, abs=1e-15)
        if name == "auber":
            assert regret["auber_rollout"] == pytest.approx(optimum - choice.details["rollout_score"], abs=1e-15)
    values = list(regret["random"].values())
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1] == 0.0  # 300 draws without repeats are more than all 255 masks


@pytest.mark.parametrize("rewards", range(1, 8))
def test_expected_regret_against_every_draw(rewards):
    scores = [0.5, 0.9, 0.3, 0.55, 0.8, 0.1]
    bests = [max(scores[0], *draw, 0.0) for draw in combinations(scores[1:], min(rewards, 6) - 1)]
    assert expected_regret(scores, rewards) == pytest.approx(0.9 - mean(bests), abs=1e-12)


def test_expected_regret_of_many_masks_is_a_regret():
    scores = [index / 65534 for index in range(65535)]
    assert expected_regret(scores, 300) == pytest.approx(1 / 300, rel=0.01)


def test_best_after():
    curve = [[1, 0.5], [4, 0.7]]
    assert [best_after(curve, count) for count in (1, 3, 4, 100)] == [0.5, 0.5, 0.7, 0.7]


def test_heads_keep_their_numbers():
    layer, numbers = ToyLayer(4, 3, bias=0.004), (0, 2, 3, 5)
    best = layer.optimum()[0]
    assert best
    assert choose_layer(CountingToy(layer, numbers).work()).removed == tuple(numbers[head] for head in best)


def test_a_layer_of_one_head():
    choice = choose_layer(CountingToy(ToyLayer(1)).work())
    assert (choice.removed, choice.rewards_asked) == ((), 1)


def test_too_many_heads():
    message = (
        r"^layer 0: method 'exhaustive' scores every mask and takes layers of at most 16 heads, found 17 heads; use"
    )
    with pytest.raises(ConfigError, match=message):
        choose_layer(CountingToy(ToyLayer(17)).work())


def test_progress_counts_the_masks():
    class Listener(Silent):
        seen = ()

        def begin(self, stage, total):
            self.seen = (*self.seen, (stage, total))

        def step(self, done, note=""):
            self.seen = (*self.seen, done)

    listener = Listener()
    choose_layer(CountingToy(ToyLayer(9)).work(progress=listener))
    assert listener.seen == (("layer 0: searching", 511), 256, 511)
