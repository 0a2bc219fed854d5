"""Presets: named settings.

The defaults are the settings of `paper`; the others give what differs from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from auber.config.values import Value


@dataclass(frozen=True)
class Preset:
    """Named settings, with changes for some tasks and under some protocols."""

    doc: str
    settings: Mapping[str, Value]
    per_task: Mapping[str, Mapping[str, Value]]
    # Used only with their protocol: with another one they would contradict it.
    per_protocol: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


# Of the defaults, from the paper itself are
#   protocol, max_length, first.epochs, first.learning_rate, first.batch_size, reward.fraction,
#   reward.stop, reward.measure, search.order, search.layers, search.matrix, search.norm,
#   agent.hidden_size, agent.hidden_layers, agent.batch_size, agent.replay_size, agent.gamma,
#   agent.epsilon_*, agent.choose, layer.learning_rate and last.patience;
# from the authors' code, where the paper is silent,
#   reward.scale, agent.episodes, agent.optimizer, agent.learning_rate, agent.momentum,
#   agent.gradient_clamp, agent.learning_starts, agent.updates_per_episode, agent.target_every,
#   layer.epochs and layer.batch_size;
# the rest is ours.
_RTE_FIRST: dict[str, Value] = {"first.epochs": 4, "first.learning_rate": 1e-5}  # P

PRESETS: dict[str, Preset] = {
    "paper": Preset(
        "The settings of the paper; of the authors' code where the paper is silent; ours where "
        "both are.",
        {},
        {"rte": _RTE_FIRST},
    ),
    "reference": Preset(
        "The settings of the authors' code.",
        {"search.norm": "l2", "reward.fraction": 0.25, "agent.stop_value": 0.2},
        {"rte": {**_RTE_FIRST, "reward.fraction": 1.0}, "wnli": {"reward.fraction": 1.0}},
    ),
    "default": Preset(
        "The search corrects the plan of voita's gates for a third of the heads. Cross-fitted fold "
        "models score the rows with a smooth measure and a margin of one standard error. Later "
        "tunings use five times the paper's learning rate. The agent learns more from each reward: "
        "smaller network, scaled state, Adam, 8 updates per episode, target network updated every "
        "2 episodes, faster exploration decay to 0.1, and the best mask seen as the plan.",
        {
            "protocol": "crossfit",
            "agent.hidden_size": 128,
            "agent.scale_state": True,
            "agent.optimizer": "adam",
            "agent.learning_rate": 0.002,
            "agent.updates_per_episode": 8,
            "agent.target_every": 2,
            "agent.epsilon_end": 0.1,
            "agent.epsilon_decay": 96.0,
            "agent.choose": "best",
            "layer.learning_rate": 1e-5,
            "last.learning_rate": 1e-5,
        },
        {"rte": _RTE_FIRST},
        {
            "crossfit": {
                "reward.measure": "smooth",
                "reward.caution": 1.0,
                "reward.folds": 5,
                "reward.max_rows": 2000,
                "search.prior": "voita",
                "search.rewind": False,
                "agent.episodes": 40,  # games that start from a plan are short
            }
        },
    ),
}
