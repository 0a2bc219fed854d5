"""AUBER: a deep Q-network plays the pruning game of each layer. Its ablations change one setting.

The agent is imported when it plays, so that methods can be listed without importing torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from auber.config import Config
from auber.search.methods import LayerChoice, LayerSearch, Mask, Method
from auber.search.stages import layer_stage


def choose_layer(search: LayerSearch) -> LayerChoice:
    """Learn to prune one layer, and return what the learned policy or the best mask removes."""
    from auber.search.game import PruningGame
    from auber.search.players.dqn import play_layer
    from auber.search.state import projection_state

    config, heads = search.config, search.heads
    weight = getattr(search.encoder.parts(search.layer), config.search.matrix).weight
    state = projection_state(weight, len(heads), config.search.norm)

    def name_heads(positions: Mask) -> Mask:
        return tuple(heads[position] for position in positions)

    def on_episode(episode: int, numbers: dict[str, float]) -> None:
        search.progress.step(episode, f"best {numbers['best_score']:.4f}")
        prefix = f"{layer_stage(search.layer)}/search"
        named = {f"{prefix}/{quantity}": value for quantity, value in numbers.items()}
        search.progress.record(episode, named)

    game = PruningGame(
        state.numpy(),
        lambda positions: search.score(name_heads(positions)),
        scale=config.reward.scale,
        stop_reward=config.reward.stop,
        unit_reward=[search.change_reward(head) for head in heads],
        prior=tuple(heads.index(head) for head in search.prior),
    )
    search.progress.begin(f"layer {search.layer}: searching", config.agent.episodes)
    # On a GPU the agent's updates take a tenth of the time; elsewhere it computes on the CPU.
    device = weight.device if weight.device.type == "cuda" else "cpu"
    outcome = play_layer(
        game,
        config.agent,
        seed=config.seed,
        layer=search.layer,
        on_episode=on_episode,
        device=device,
    )
    search.progress.end()
    return LayerChoice(
        removed=name_heads(outcome.removed),
        rewards_asked=outcome.rewards_asked,
        details={
            "state": [float(value) for value in state],
            "given_score": outcome.prior_score,
            "rollout": list(name_heads(outcome.rollout)),
            "rollout_score": outcome.rollout_score,
            "best": list(name_heads(outcome.best)),
            "best_score": outcome.best_score,
            "q_values": list(outcome.q_values),
            "updates": outcome.updates,
            "curve": [list(point) for point in outcome.curve],
        },
    )


def _check(config: Config, heads: Mapping[int, int]) -> None:
    from auber.search.players.dqn import check_games, check_memory

    check_memory(config.agent)
    for layer, number in heads.items():
        # With one head there is nothing to learn; with `search.heads` the roll-out does not decide.
        if number > 1 and not config.search.heads:
            check_games(config.agent, number, layer, has_prior=config.search.prior != "none")


_ABLATIONS = (
    ("query", "whose state is the query matrix", {"search.matrix": "query"}),
    ("key", "whose state is the key matrix", {"search.matrix": "key"}),
    ("l2", "whose state is an L2 norm", {"search.norm": "l2"}),
    ("reverse", "from the last layer to the first", {"search.order": "reverse"}),
)
_method = partial(Method, choose_layer=choose_layer, check=_check)

METHODS = (
    _method("auber", "a deep Q-network learns which heads to remove, layer by layer"),
    *(
        _method(f"auber-{name}", f"auber {difference}", settings=settings)
        for name, difference, settings in _ABLATIONS
    ),
)
