"""Every setting, declared once: type, default, range and meaning.

The defaults are those of the preset `paper`.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from auber.config.toml import format_toml
from auber.config.values import Int, SettingInfo, Value, build, declared, flatten
from auber.errors import ConfigError

# Which models have seen the rows that give the reward.
Protocol = Literal["seen", "heldout", "crossfit"]
PROTOCOLS: tuple[str, ...] = typing.get_args(Protocol)

_ALL_LAYERS = "all"
_LAYERS_FORM = "all, or different layers such as 2,6,10"
_DECAYED_RATE = "peak learning rate, decayed linearly to 0"


def _normalize_layers(text: str) -> str:
    """Return `2,6,10` in ascending order, or `all`."""
    if text.strip() in ("", _ALL_LAYERS):
        return _ALL_LAYERS
    words = [word.strip() for word in text.split(",")]
    if all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        layers = sorted(map(int, words))
        if len(set(layers)) == len(layers):
            return ",".join(map(str, layers))
    raise ValueError(f"must be {_LAYERS_FORM}")


class Section(BaseModel):
    """Base class of the groups of settings."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        defer_build=True,  # until first use: importing this module stays quick
    )


class FirstTuning(Section):
    """The fine-tuning of a pretrained encoder before the search."""

    when: Literal["auto", "always", "never"] = Field(
        default="auto", description="auto: only if the model has no trained classifier yet"
    )
    epochs: Int = Field(default=3, ge=0, description="passes over the rows")
    learning_rate: float = Field(default=2e-5, ge=0, description=_DECAYED_RATE)
    batch_size: Int = Field(default=32, ge=1, description="rows per step")


class LayerTuning(Section):
    """The fine-tuning on mini-train after heads of a layer were removed."""

    epochs: Int = Field(default=3, ge=0, description="passes over mini-train; 0: none")
    learning_rate: float = Field(default=2e-6, ge=0, description=_DECAYED_RATE)
    batch_size: Int = Field(default=32, ge=1, description="rows per step")


class LastTuning(Section):
    """The fine-tuning with early stopping after the last layer."""

    epochs: Int = Field(default=6, ge=0, description="largest number of passes; 0: none")
    learning_rate: float = Field(default=2e-6, ge=0, description=_DECAYED_RATE)
    batch_size: Int = Field(default=32, ge=1, description="rows per step")
    watch_fraction: float = Field(
        default=0.1,
        ge=0.01,
        le=0.5,
        description="share of train held out for early stopping (protocols seen and crossfit)",
    )
    evaluations_per_epoch: Int = Field(
        default=8, ge=1, description="evaluations on the held-out rows per epoch"
    )
    patience: Int = Field(
        default=20, ge=1, description="evaluations without improvement before stopping"
    )
    watch: Literal["metric", "loss"] = Field(
        default="metric",
        description="quantity that early stopping compares; the lower loss breaks ties",
    )


class Reward(Section):
    """The reward of the game, and the rows that it is computed on."""

    fraction: float = Field(
        default=2 / 3,
        ge=0.01,
        le=1,
        description="share of train in the reward set, the rest is mini-train; 1: both are all of "
        "train (under heldout the reward set still excludes mini-train)",
    )
    max_rows: Int = Field(
        default=0,
        ge=0,
        description="largest number of rows in the reward set, sampled by class; 0: no limit",
    )
    scale: float = Field(
        default=100.0, ge=1e-6, description="factor from the metric to the reward (100: points)"
    )
    stop: float = Field(default=0.0, description="reward of stopping")
    measure: Literal["metric", "smooth"] = Field(
        default="metric",
        description="quantity whose change is the reward: the task's metric, or (smooth) the share "
        "of the labels' entropy that the outputs explain, independent of their scale and bias; the "
        "share of variance for regression, F1 for spans",
    )
    caution: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="gain required to remove a head, in standard errors of the mean change of a "
        "row's score when one head is removed; with a search.prior, the gain required for each "
        "change of it (measure smooth)",
    )
    folds: Int = Field(
        default=3,
        ge=2,
        le=100,
        description="folds of train; each row is scored by the fold model that was trained without "
        "it (protocol crossfit)",
    )
    head: float = Field(
        default=0.0,
        ge=0,
        description="reward for each removed head in addition to the change of the metric: the "
        "points you would give for a smaller model",
    )
    latency: float = Field(
        default=0.0,
        ge=0,
        description="points you would give for one percent of the model's latency: each removed "
        "head is rewarded for its share, measured on this machine before the search; 0: off",
    )
    latency_rows: Int = Field(
        default=1,
        ge=1,
        description="batch size of that measurement, with max_length tokens per row",
    )
    shards: Int = Field(
        default=1,
        ge=1,
        description="parts of the reward set that are scored in parallel (protocols seen and "
        "heldout)",
    )
    spread: Literal["devices", "ray"] = Field(
        default="devices",
        description="where the parts are scored: on the GPUs (or CPU threads) of this process, or "
        "on Ray workers",
    )


class Search(Section):
    """The layers to search, their order, and the state that the agent sees."""

    order: Literal["forward", "reverse"] = Field(
        default="forward", description="first layer to last, or last to first"
    )
    layers: Annotated[str, AfterValidator(_normalize_layers)] = Field(
        default=_ALL_LAYERS,
        json_schema_extra={"form": _LAYERS_FORM},
        description="layers that a layer-wise method searches; the others stay unchanged. "
        "original+tuning is tuned once for each of these layers unless a run prescribes its "
        "tunings. Ranking methods choose among all layers",
    )
    prior: Literal["none", "voita"] = Field(
        default="none",
        description="plan that the search starts from and corrects: no head removed, or the heads "
        "whose gates method voita closes (protocol crossfit)",
    )
    prior_share: float = Field(
        default=1 / 3,
        ge=0.01,
        le=0.9,
        description="share of all heads that the prior removes unless search.heads gives a number; "
        "heads outside search.layers stay",
    )
    heads: Int = Field(
        default=0,
        ge=0,
        description="number of heads to remove in total, chosen from the best masks of each layer "
        "with the prior for the others; 0: decided by the rewards (protocol crossfit)",
    )
    rewind: bool = Field(
        default=True,
        description="apply the plan to the model before any tuning and repeat the first tuning; "
        "false: apply it to the fine-tuned model (protocol crossfit)",
    )
    matrix: Literal["value", "query", "key"] = Field(
        default="value", description="projection whose norm per head is the state"
    )
    norm: Literal["l1", "l2"] = Field(default="l1", description="entrywise norm of that projection")

    def layers_of(self, num_layers: int) -> list[int]:
        """Return the layers to search in a model with `num_layers` layers, ascending."""
        if self.layers == _ALL_LAYERS:
            return list(range(num_layers))
        chosen = [int(word) for word in self.layers.split(",")]
        missing = ", ".join(str(layer) for layer in chosen if layer >= num_layers)
        if missing:
            raise ConfigError(
                f"search.layers must name layers of the model, which has {num_layers} "
                f"(0 to {num_layers - 1}), found {missing}; remove these"
            )
        return chosen


class Agent(Section):
    """The deep Q-network that plays a layer."""

    episodes: Int = Field(default=150, ge=0, description="games per layer")
    hidden_size: Int = Field(default=512, ge=1, description="width of a hidden layer")
    hidden_layers: Int = Field(
        default=3, ge=0, description="hidden layers, with LeakyReLU between them"
    )
    scale_state: bool = Field(
        default=False,
        description="multiply the state by the number of heads, so that its mean is 1",
    )
    optimizer: Literal["sgd", "adam"] = Field(default="sgd", description="sgd uses agent.momentum")
    learning_rate: float = Field(default=0.03, ge=0, description="learning rate of the optimizer")
    momentum: float = Field(default=0.9, ge=0, le=0.9999, description="momentum of sgd")
    gradient_clamp: float = Field(
        default=1.0, ge=1e-9, description="clamp each gradient entry to plus or minus this value"
    )
    batch_size: Int = Field(default=128, ge=1, description="transitions per update")
    learning_starts: Int = Field(
        default=128, ge=1, description="transitions stored before the first update"
    )
    updates_per_episode: Int = Field(default=1, ge=0, description="updates after each episode")
    replay_size: Int = Field(
        default=5000, ge=1, description="transitions stored; the oldest are replaced"
    )
    target_every: Int = Field(
        default=35, ge=1, description="episodes between updates of the target network"
    )
    gamma: float = Field(default=1.0, ge=0, le=1, description="discount")
    epsilon_start: float = Field(
        default=1.0, ge=0, le=1, description="share of random actions at the start"
    )
    epsilon_end: float = Field(
        default=0.05, ge=0, le=1, description="share of random actions at the end"
    )
    epsilon_decay: float = Field(
        default=256.0, ge=1e-9, description="actions until the difference falls to 1/e"
    )
    double_q: bool = Field(
        default=False,
        description="double DQN: the policy network selects, the target network evaluates",
    )
    stop_value: float | None = Field(
        default=None, description="fixed Q-value of stopping; none: it is learned"
    )
    choose: Literal["rollout", "best"] = Field(
        default="rollout",
        description="plan of the layer: the greedy roll-out, or the best mask seen",
    )


class RandomPruning(Section):
    """The method `random`."""

    draw: Int = Field(default=0, ge=0, description="index of an independent random draw of heads")


class Voita(Section):
    """The gates of the method `voita`."""

    epochs: Int = Field(default=3, ge=1, description="passes over the rows for each penalty tried")
    learning_rate: float = Field(
        default=0.1, ge=1e-9, description="learning rate of Adam for the gates' logarithms"
    )
    batch_size: Int = Field(default=32, ge=1, description="rows per step")
    temperature: float = Field(
        default=2 / 3,
        ge=0.01,
        description="temperature of the hard-concrete distribution; lower: closer to 0 and 1",
    )
    stretch: float = Field(
        default=0.1,
        ge=1e-6,
        description="stretch of the distribution beyond 0 and 1 before it is clipped",
    )
    trials: Int = Field(default=8, ge=1, description="largest number of penalties tried")


class Config(Section):
    """All settings of a run. Build one with `make_config`."""

    seed: Int = Field(default=0, ge=0, description="seed of all random numbers")
    protocol: Protocol = Field(
        default="seen",
        description="which models have seen the rows that give the reward: the scored model itself "
        "(seen), none, because they are held out of train (heldout), or only other models than the "
        "one that scores them (crossfit)",
    )
    max_length: Int = Field(default=128, ge=4, description="tokens to which a row is truncated")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        default="auto", description="auto: a GPU if there is one"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="auto: bfloat16 on a GPU, else float32"
    )
    threads: Int = Field(default=0, ge=0, description="CPU threads of torch; 0: torch decides")
    first: FirstTuning = Field(default_factory=FirstTuning)
    reward: Reward = Field(default_factory=Reward)
    search: Search = Field(default_factory=Search)
    agent: Agent = Field(default_factory=Agent)
    layer: LayerTuning = Field(default_factory=LayerTuning)
    last: LastTuning = Field(default_factory=LastTuning)
    random: RandomPruning = Field(default_factory=RandomPruning)
    voita: Voita = Field(default_factory=Voita)

    def replace(self, settings: Mapping[str, Any]) -> Config:
        """Return a copy with some settings changed, given by dotted key."""
        return build(Config, {**self.flat(), **settings}, where="settings")

    def flat(self) -> dict[str, Value]:
        """Return the value of every setting by dotted key."""
        return flatten(self)

    def to_toml(self) -> str:
        """Return the settings as TOML that `read_toml` reads back."""
        return format_toml(self.flat())


def settings() -> tuple[SettingInfo, ...]:
    """Return all settings in the order of their declaration."""
    return declared(Config)
