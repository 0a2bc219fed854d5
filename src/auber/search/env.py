"""The pruning game as a Gymnasium environment.

    import gymnasium, auber.search.env
    env = gymnasium.make("auber/HeadPruning-v0")  # a made-up layer
    env = gymnasium.make("auber/HeadPruning-v0", state=state, score=scorer)  # a real one

Importing the module registers the environment; `gymnasium.make("auber.search.env:...")` also
imports it. Observations, actions and rewards are those of the game. `info` has the legal actions,
`action_mask` (int8, 1 = legal), and the metric now, `score`. When the episode ends, the last state
is returned once more and no action is legal.

An illegal action ends the episode as stopping does, so agents that cannot use a mask can play too:
every action has a meaning, an episode has at most as many steps as heads, and the best return is
that of the game.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from auber.search.game import FloatArray, GameError, PruningGame
from auber.search.methods import Mask
from auber.search.toy import ToyLayer

ENV_ID = "auber/HeadPruning-v0"


class HeadPruningEnv(gymnasium.Env[FloatArray, np.int64]):
    """The game of one layer; without `state` and `score` a `ToyLayer` of 12 heads."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        state: FloatArray | None = None,
        score: Callable[[Mask], float] | None = None,
        *,
        scale: float = 100.0,
        stop_reward: float = 0.0,
        head_reward: float = 0.0,
    ) -> None:
        if state is None and score is None:
            toy = ToyLayer()
            state, score = toy.state, toy.score
        if state is None or score is None:
            raise GameError(
                "environment: state and score belong together; "
                "give both, or neither for the made-up layer"
            )
        self.game = PruningGame(
            state, score, scale=scale, stop_reward=stop_reward, unit_reward=head_reward
        )
        self.action_space = spaces.Discrete(self.game.num_units + 1)
        self.observation_space = spaces.Box(0.0, 1.0, (self.game.num_units,), np.float32)
        if not self.observation_space.contains(self.game.initial_state):
            raise GameError(
                "environment: a state's entries must be from 0 to 1, "
                f"found {self.game.initial_state.tolist()}"
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Put all heads back. The game is deterministic; the seed only sets `np_random`."""
        super().reset(seed=seed, options=options)
        return self.game.reset().copy(), self._info()

    def step(self, action: np.int64 | int) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Remove a head or stop; an illegal action stops."""
        if not self.action_space.contains(action):
            raise GameError(
                f"environment: an action must be from 0 to {self.game.stop}, found {action!r}"
            )
        if self.game.over:
            raise GameError("environment: the episode is over; call reset() before step()")
        legal = self.game.legal_actions()
        step = self.game.step(int(action) if legal[action] else self.game.stop)
        observation = step.state if step.next_state is None else step.next_state
        return observation.copy(), step.reward, step.done, False, self._info()

    def _info(self) -> dict[str, Any]:
        mask: NDArray[np.int8] = self.game.legal_actions().astype(np.int8)
        return {"action_mask": mask, "score": self.game.metric(self.game.removed)}


if ENV_ID not in gymnasium.registry:  # importlib.reload runs this again
    gymnasium.register(ENV_ID, entry_point="auber.search.env:HeadPruningEnv")
