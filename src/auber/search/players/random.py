"""Random play: every action is drawn uniformly from the legal ones.

The baseline for every other player, and the shortest example of one. It is not a `--method`.
"""

from __future__ import annotations

import numpy as np

from auber.search.game import PruningGame
from auber.search.methods import Mask


def play_randomly(game: PruningGame, episodes: int, generator: np.random.Generator) -> Mask:
    """Play episodes of random actions, and return the best mask scored."""
    game.metric(game.prior)
    for _ in range(episodes):
        game.reset()
        while not game.over:
            game.step(int(generator.choice(np.flatnonzero(game.legal_actions()))))
    return game.best_mask()
