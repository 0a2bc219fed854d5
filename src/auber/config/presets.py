"""Named settings: what each preset changes of the defaults, and what it changes further under a protocol and for some tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from auber.config.values import Value


@dataclass(frozen=True)
class Preset:
    """Named settings: what differs from the defaults, and what differs further under a protocol and for some tasks."""

    doc: str
    settings: Mapping[str, Value]
    per_task: Mapping[str, Mapping[str, Value]]
    # Whoever chooses another protocol than the preset's own gets none of these, as they would contradict it.
    per_protocol: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


_RTE_FIRST: dict[str, Value] = {"first.epochs": 4, "first.learning_rate": 1e-5}

PRESETS: dict[str, Preset] = {
    "paper": Preset(
        "the paper's settings; the authors' code where the paper is silent; ours where both are",
        {},
        {"rte": _RTE_FIRST},
    ),
    "reference": Preset(
        "the settings of the authors' code",
        {"search.norm": "l2", "reward.fraction": 0.25, "agent.stop_value": 0.2},
        {"rte": {**_RTE_FIRST, "reward.fraction": 1.0}, "wnli": {"reward.fraction": 1.0}},
    ),
    "default": Preset(
        "Rows are scored by scouts that never saw them, by a smooth measure and with caution. A search by these scores corrects the plan of "
        "voita's gates for a third of the heads. The tunings after it go at five times the paper's rate. The agent learns more from each reward "
        "than the paper's: a smaller network that sees the state at unit scale, Adam, 8 updates an episode, target copied every 2, exploration "
        "that narrows sooner but never below a tenth, and the best mask seen as the plan.",
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
                "agent.episodes": 40,  # games that begin from a plan are short
            }
        },
    ),
}
