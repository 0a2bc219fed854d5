"""AUBER: a deep Q-network plays the pruning game of each layer. Its ablations are settings of the same method.

The agent is imported where it plays, so that the table of methods can be read without loading torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from auber.config import Config
from auber.search.methods import LayerChoice, LayerWork, Method
from auber.search.stages import layer_stage

if TYPE_CHECKING:
    from auber.search.players.dqn import EpisodeInfo


def choose_layer(work: LayerWork) -> LayerChoice:
    """Learn to prune one layer, and prune it as the learned policy would."""
    from auber.search.game import PruningGame
    from auber.search.players.dqn import play_layer
    from auber.search.state import projection_state

    config = work.config
    weight = getattr(work.encoder.parts(work.layer), config.search.matrix).weight
    state = projection_state(weight, len(work.heads), config.search.norm)

    def score(positions: tuple[int, ...]) -> float:
        return work.score(tuple(work.heads[position] for position in positions))

    def on_episode(info: EpisodeInfo) -> None:
        work.progress.step(info.episode, f"best {info.best_score:.4f}")
        numbers = {
            "best_score": info.best_score,
            "return": info.episode_return,
            "epsilon": info.epsilon,
            "rewards_asked": game.rewards_asked,
            "rewards_computed": info.rewards_computed,
        }
        if info.loss is not None:
            numbers["loss"] = info.loss
        name = f"{layer_stage(work.layer)}/search"
        work.progress.record(
            info.episode, {f"{name}/{key}": value for key, value in numbers.items()}
        )

    game = PruningGame(
        state.numpy(),
        score,
        scale=config.reward.scale,
        stop_reward=config.reward.stop,
        head_reward=[work.pay(head) for head in work.heads],
        given=tuple(work.heads.index(head) for head in work.given),
    )
    work.progress.begin(f"layer {work.layer}: searching", config.agent.episodes)
    # On a GPU the agent's updates take a tenth of the time; elsewhere it computes on the CPU whatever the rewards use.
    device = weight.device if weight.device.type == "cuda" else "cpu"
    outcome = play_layer(
        game, config.agent, seed=config.seed, layer=work.layer, on_episode=on_episode, device=device
    )
    work.progress.end()
    return LayerChoice(
        removed=tuple(work.heads[position] for position in outcome.removed),
        rewards_asked=outcome.rewards_asked,
        rewards_computed=outcome.rewards_computed,
        details={
            "state": [float(value) for value in state],
            "given_score": outcome.given_score,
            "rollout": [work.heads[position] for position in outcome.rollout],
            "rollout_score": outcome.rollout_score,
            "best": [work.heads[position] for position in outcome.best],
            "best_score": outcome.best_score,
            "q_values": list(outcome.q_values),
            "updates": outcome.updates,
            "curve": [list(point) for point in outcome.curve],
        },
    )


def _check(config: Config, heads: Mapping[int, int]) -> None:
    """Raise `ConfigError` where the agent could not learn."""
    from auber.search.players.dqn import check_games, check_memory

    check_memory(config.agent)
    for layer, number in heads.items():
        if (
            number > 1 and not config.search.heads
        ):  # else there is nothing to learn, or the roll-out does not decide
            check_games(config.agent, number, layer, has_given=config.search.prior != "none")


_as_auber = partial(Method, choose_layer=choose_layer, check=_check)

METHODS = (
    _as_auber("auber", "a deep Q-network learns which heads to remove, layer by layer"),
    _as_auber(
        "auber-query", "auber whose state is the query matrix", settings={"search.matrix": "query"}
    ),
    _as_auber(
        "auber-key", "auber whose state is the key matrix", settings={"search.matrix": "key"}
    ),
    _as_auber("auber-l2", "auber whose state is an L2 norm", settings={"search.norm": "l2"}),
    _as_auber(
        "auber-reverse",
        "auber from the last layer to the first",
        settings={"search.order": "reverse"},
    ),
)
