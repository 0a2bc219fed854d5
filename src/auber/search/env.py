"""The three pruning games as Gymnasium environments.

    import gymnasium, auber.search.env
    env = gymnasium.make("auber/HeadPruning-v0")  # a made-up layer
    env = gymnasium.make("auber/HeadPruning-v0", state=state, score=scorer)  # a real one
    env = gymnasium.make("auber/NeuronPruning-v0", state=state, score=scorer)  # blocks of neurons
    env = gymnasium.make("auber/PlanExchange-v0", layout=layout, start=plan, score=scorer)

Importing the module registers the environments; `gymnasium.make("auber.search.env:...")` also
imports it. Observations, actions and rewards are those of the game. `info` has the legal actions,
`action_mask` (int8, 1 = legal), and the metric now, `score`. When the episode ends, the last state
is returned once more and no action is legal.

An illegal action ends the episode as stopping does, so agents that cannot use a mask can play too:
every action has a meaning, the number of steps is bounded, and the best return is that of the game.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from auber.models.plan import PruningPlan
from auber.search.blocks import Layout, Slot
from auber.search.exchange_game import ExchangeGame
from auber.search.game import FloatArray, GameError, PruningGame
from auber.search.methods import Mask
from auber.search.toy import ToyLayer

ENV_ID = "auber/HeadPruning-v0"
NEURON_ENV_ID = "auber/NeuronPruning-v0"
EXCHANGE_ENV_ID = "auber/PlanExchange-v0"


class GameEnv(gymnasium.Env[FloatArray, np.int64]):
    """The environment of a game."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, game: PruningGame | ExchangeGame) -> None:
        self.game = game
        state = game.reset()
        self.action_space = spaces.Discrete(game.stop + 1)
        self.observation_space = spaces.Box(0.0, 1.0, state.shape, np.float32)
        if not self.observation_space.contains(state):
            raise GameError(
                f"environment: a state's entries must be from 0 to 1, found {state.tolist()}"
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin a new episode. The game is deterministic; the seed only sets `np_random`."""
        super().reset(seed=seed, options=options)
        return self.game.reset().copy(), self._info()

    def step(self, action: np.int64 | int) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Take an action; an illegal one stops."""
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
        return {"action_mask": mask, "score": self.game.score}


class HeadPruningEnv(GameEnv):
    """The game of one layer's heads; without `state` and `score` a `ToyLayer` of 12 heads."""

    game: PruningGame
    _toy_units = 12

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
            toy = ToyLayer(self._toy_units)
            state, score = toy.state, toy.score
        if state is None or score is None:
            raise GameError(
                "environment: state and score belong together; "
                "give both, or neither for the made-up layer"
            )
        super().__init__(
            PruningGame(state, score, scale=scale, stop_reward=stop_reward, unit_reward=head_reward)
        )


class NeuronPruningEnv(HeadPruningEnv):
    """The game of one layer's blocks of neurons; without arguments a `ToyLayer` of 16 blocks."""

    _toy_units = 16

    def __init__(
        self,
        state: FloatArray | None = None,
        score: Callable[[Mask], float] | None = None,
        *,
        block_reward: float = 0.0,
        **settings: float,
    ) -> None:
        super().__init__(state, score, head_reward=block_reward, **settings)


class PlanExchangeEnv(GameEnv):
    """The exchange game of a whole model; without arguments a made-up one of three layers."""

    game: ExchangeGame

    def __init__(
        self,
        layout: Layout | None = None,
        start: PruningPlan | None = None,
        score: Callable[[PruningPlan], float] | None = None,
        *,
        length: int = 16,
        scale: float = 100.0,
    ) -> None:
        if layout is None and start is None and score is None:
            layout, start, score = _toy_model()
        if layout is None or start is None or score is None:
            raise GameError(
                "environment: layout, start and score belong together; give all three, or none "
                "for the made-up model"
            )
        super().__init__(ExchangeGame(layout, start, score, length=length, scale=scale))


def _toy_model() -> tuple[Layout, PruningPlan, Callable[[PruningPlan], float]]:
    """Return three layers of four heads and four blocks, half of which are removed."""
    blocks = tuple((unit,) for unit in range(4))
    layout = Layout(
        [Slot("head", layer, blocks, 2) for layer in range(3)]
        + [Slot("neuron", layer, blocks, 3) for layer in range(3)]
    )
    toy = ToyLayer(layout.num_blocks)
    half = dict.fromkeys(range(3), (0, 1))

    def score(plan: PruningPlan) -> float:
        return toy.score(tuple(np.flatnonzero(layout.flags(plan)).tolist()))

    return layout, PruningPlan(half, half), score


for _id, _class in (
    (ENV_ID, HeadPruningEnv),
    (NEURON_ENV_ID, NeuronPruningEnv),
    (EXCHANGE_ENV_ID, PlanExchangeEnv),
):
    if _id not in gymnasium.registry:  # importlib.reload runs this again
        gymnasium.register(_id, entry_point=f"auber.search.env:{_class.__name__}")
