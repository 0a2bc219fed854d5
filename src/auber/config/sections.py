"""Every setting, declared once: type, default, range and meaning, by what it is about.

The defaults are the `paper` preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from auber.config.declarations import build, declared, flatten, setting
from auber.config.toml import format_toml
from auber.config.values import Form, SettingInfo, Value
from auber.errors import ConfigError

PROTOCOLS = ("seen", "heldout", "crossfit")  # who has seen the rows that reward
ALL_LAYERS = "all"


def _read_layers(text: str) -> str | None:
    """`2,6,10` in ascending order, or `all`; no layer twice."""
    if text.strip() in ("", ALL_LAYERS):
        return ALL_LAYERS
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        return None
    layers = sorted(int(word) for word in words)
    return ",".join(map(str, layers)) if len(set(layers)) == len(layers) else None


@dataclass(frozen=True)
class FirstTuning:
    """The fine-tuning that makes the start of the search out of a pretrained encoder."""

    when: str = setting(
        "auto",
        "auto: only if the model has no trained classifier yet",
        choices=("auto", "always", "never"),
    )
    epochs: int = setting(3, "passes over its rows", low=0)
    learning_rate: float = setting(2e-5, "peak rate, decayed linearly to 0", low=0)
    batch_size: int = setting(32, "rows a step", low=1)


@dataclass(frozen=True)
class LayerTuning:
    """The fine-tuning on mini-train after a layer has lost heads."""

    epochs: int = setting(3, "passes over mini-train; 0: none", low=0)
    learning_rate: float = setting(2e-6, "peak rate, decayed linearly to 0", low=0)
    batch_size: int = setting(32, "rows a step", low=1)


@dataclass(frozen=True)
class LastTuning:
    """The fine-tuning with early stopping after the last layer."""

    epochs: int = setting(6, "at most this many passes; 0: none", low=0)
    learning_rate: float = setting(2e-6, "peak rate, decayed linearly to 0", low=0)
    batch_size: int = setting(32, "rows a step", low=1)
    watch_fraction: float = setting(
        0.1,
        "share of train set apart for early stopping (protocols seen and crossfit)",
        low=0.01,
        high=0.5,
    )
    evaluations_per_epoch: int = setting(8, "looks at the watched rows in an epoch", low=1)
    patience: int = setting(20, "evaluations without a better one before it stops", low=1)
    watch: str = setting(
        "metric",
        "what early stopping compares; ties go to the lower loss",
        choices=("metric", "loss"),
    )


@dataclass(frozen=True)
class Reward:
    """What the game pays, and on which rows."""

    fraction: float = setting(
        2 / 3,
        "share of train that is the reward set, the rest is mini-train; 1: both are all of train (under heldout only what mini-train is not)",
        low=0.01,
        high=1,
    )
    max_rows: int = setting(
        0, "bound on the rows of the reward set, drawn by class; 0: no bound", low=0
    )
    scale: float = setting(100.0, "factor from the metric to the reward (100: points)", low=1e-6)
    stop: float = setting(0.0, "reward of stopping")
    measure: str = setting(
        "metric",
        "what rewards are changes of: the task's metric, or (smooth) the share of the labels' entropy that the outputs explain, whatever "
        "their scale and bias; for numbers that of their variance, for spans their F1",
        choices=("metric", "smooth"),
    )
    caution: float = setting(
        0.0,
        "standard errors that a removed head has to gain (of the mean change of a row's score when one head goes), so that gains stand "
        "out of their noise; with a search.prior, that each change of it has to gain (measure smooth)",
        low=0,
        high=10,
    )
    folds: int = setting(
        3,
        "scouts, and parts of train that each of them has not seen and scores (protocol crossfit)",
        low=2,
        high=100,
    )
    head: float = setting(
        0.0,
        "reward of each removed head beside the metric's change: points you would give for a smaller model",
        low=0,
    )
    latency: float = setting(
        0.0,
        "points you would give for one percent of the model's time: each removed head pays for what it saves, measured on this machine "
        "before the search; 0: nothing is measured",
        low=0,
    )
    latency_rows: int = setting(
        1, "rows of a call, of max_length tokens each, when that time is measured", low=1
    )
    shards: int = setting(
        1,
        "parts the reward set is dealt into, to be scored side by side (protocols seen and heldout)",
        low=1,
    )
    spread: str = setting(
        "devices",
        "where the parts are scored: a GPU (on a CPU a thread) of this process each, or a Ray worker each",
        choices=("devices", "ray"),
    )


@dataclass(frozen=True)
class Search:
    """Which layers are searched, in which order, and what the agent sees of one."""

    order: str = setting(
        "forward", "first layer to last, or last to first", choices=("forward", "reverse")
    )
    layers: str = setting(
        ALL_LAYERS,
        "the layers a layer-wise method searches, the others are left alone; original+tuning, if no run prescribes its tunings, "
        "gets those of these layers; ranking methods choose among all layers",
        form=Form("all, or different layers such as 2,6,10", _read_layers),
    )
    prior: str = setting(
        "none",
        "the plan that a search begins from and corrects: none removed, or what the gates of method voita close (protocol crossfit)",
        choices=("none", "voita"),
    )
    prior_share: float = setting(
        1 / 3,
        "share of all heads that the prior removes, where search.heads does not say how many; what it names outside of search.layers stays",
        low=0.01,
        high=0.9,
    )
    heads: int = setting(
        0,
        "how many heads go in all, by the best masks of each layer beside the prior for the others; 0: as many as the rewards say "
        "(protocol crossfit)",
        low=0,
    )
    rewind: bool = setting(
        True,
        "carry the plan out on the model before any tuning, which is then tuned as the start was; false: on the fine-tuned start "
        "(protocol crossfit)",
    )
    matrix: str = setting(
        "value", "projection whose norm per head is the state", choices=("value", "query", "key")
    )
    norm: str = setting("l1", "entrywise norm of that projection", choices=("l1", "l2"))

    def layers_of(self, num_layers: int) -> list[int]:
        """The layers to search of a model with so many, ascending."""
        chosen = (
            list(range(num_layers))
            if self.layers == ALL_LAYERS
            else [int(word) for word in self.layers.split(",")]
        )
        missing = [str(layer) for layer in chosen if layer >= num_layers]
        if missing:
            raise ConfigError(
                f"search.layers must name layers of the model, which has {num_layers} (0 to {num_layers - 1}), "
                f"found {', '.join(missing)}; leave out what it does not have"
            )
        return chosen


@dataclass(frozen=True)
class Agent:
    """The deep Q-network that plays a layer."""

    episodes: int = setting(150, "games a layer", low=0)
    hidden_size: int = setting(512, "width of a hidden layer", low=1)
    hidden_layers: int = setting(3, "hidden layers, LeakyReLU between", low=0)
    scale_state: bool = setting(
        False, "the network's input is the state times the number of heads, 1 on average"
    )
    optimizer: str = setting("sgd", "sgd uses agent.momentum", choices=("sgd", "adam"))
    learning_rate: float = setting(0.03, "rate of the optimiser", low=0)
    momentum: float = setting(0.9, "momentum of sgd", low=0, high=0.9999)
    gradient_clamp: float = setting(
        1.0, "each gradient entry is clamped to plus or minus this", low=1e-9
    )
    batch_size: int = setting(128, "transitions an update", low=1)
    learning_starts: int = setting(128, "transitions stored before the first update", low=1)
    updates_per_episode: int = setting(1, "updates after an episode", low=0)
    replay_size: int = setting(5000, "transitions kept, the oldest go first", low=1)
    target_every: int = setting(35, "episodes between copies to the target network", low=1)
    gamma: float = setting(1.0, "discount", low=0, high=1)
    epsilon_start: float = setting(1.0, "share of random actions at first", low=0, high=1)
    epsilon_end: float = setting(0.05, "share of random actions in the long run", low=0, high=1)
    epsilon_decay: float = setting(256.0, "actions in which the difference falls to 1/e", low=1e-9)
    double_q: bool = setting(
        False, "the policy network chooses the action the target network values"
    )
    stop_value: float | None = setting(
        None, "fix the value of stopping at this; none: it is learned"
    )
    choose: str = setting(
        "rollout",
        "the layer's plan: the greedy roll-out, or the best mask seen",
        choices=("rollout", "best"),
    )


@dataclass(frozen=True)
class RandomPruning:
    """The method `random`."""

    draw: int = setting(0, "which of several independent draws of heads", low=0)


@dataclass(frozen=True)
class Voita:
    """The gates of the method `voita`."""

    epochs: int = setting(3, "passes over the rows for each penalty tried", low=1)
    learning_rate: float = setting(0.1, "rate of Adam on the gates' logarithms", low=1e-9)
    batch_size: int = setting(32, "rows a step", low=1)
    temperature: float = setting(
        2 / 3, "of the hard-concrete distribution; lower: nearer to 0 and 1", low=0.01
    )
    stretch: float = setting(
        0.1, "the distribution is stretched by this beyond 0 and 1, then cut there", low=1e-6
    )
    trials: int = setting(8, "penalties tried at most", low=1)


@dataclass(frozen=True)
class Config:
    """All settings of a run. Build one with `make_config`."""

    seed: int = setting(0, "decides every random draw", low=0)
    protocol: str = setting(
        "seen",
        "who has seen the rows that reward: the model itself (seen), nobody, as they are held out of train (heldout), or others than "
        "those that score them (crossfit)",
        choices=PROTOCOLS,
    )
    max_length: int = setting(128, "tokens a row is cut to", low=4)
    device: str = setting(
        "auto", "auto: a GPU if there is one", choices=("auto", "cpu", "cuda", "mps")
    )
    precision: str = setting(
        "auto", "auto: bfloat16 on a GPU, else float32", choices=("auto", "float32", "bfloat16")
    )
    threads: int = setting(0, "CPU threads of torch; 0: as many as torch finds", low=0)
    first: FirstTuning = field(default_factory=FirstTuning)
    reward: Reward = field(default_factory=Reward)
    search: Search = field(default_factory=Search)
    agent: Agent = field(default_factory=Agent)
    layer: LayerTuning = field(default_factory=LayerTuning)
    last: LastTuning = field(default_factory=LastTuning)
    random: RandomPruning = field(default_factory=RandomPruning)
    voita: Voita = field(default_factory=Voita)

    def replace(self, settings: Mapping[str, Any]) -> Config:
        """A copy with some settings changed, given by dotted key."""
        return build(Config, {**self.flat(), **settings}, where="settings")

    def flat(self) -> dict[str, Value]:
        """Every setting by dotted key."""
        return flatten(self)

    def to_toml(self) -> str:
        """The settings as TOML that `read_toml` takes back."""
        return format_toml(self.flat())


def settings() -> tuple[SettingInfo, ...]:
    """All settings in the order of their declaration."""
    return declared(Config)
