from __future__ import annotations

import numpy as np

from auber.search.game import PruningGame
from auber.search.players.random import play_randomly
from auber.search.toy import ToyLayer


def test_random_play_finds_the_optimum_of_a_small_layer():
    layer = ToyLayer(4, seed=0, bias=0.002)
    for episodes, is_optimal in ((0, False), (200, True)):
        game = PruningGame(layer.state, layer.score)
        best = play_randomly(game, episodes, np.random.default_rng(0))
        assert (best == layer.optimum()[0]) == is_optimal
        assert best == game.best_mask()
    assert game.rewards_computed == 2**4 - 1
