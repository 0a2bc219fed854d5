"""Every setting, declared once: type, default, range and meaning.

The defaults are those of the preset `paper`.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, PrivateAttr

from auber.config.values import (
    Int,
    SettingInfo,
    Value,
    build,
    declared,
    flatten_tables,
    format_toml,
    setting,
)
from auber.errors import ConfigError
from auber.system.records import Record

# Which models have seen the rows that give the reward.
Protocol = Literal["seen", "heldout", "crossfit"]
PROTOCOLS: tuple[str, ...] = typing.get_args(Protocol)

_ALL_LAYERS = "all"
_LAYERS_FORM = "all, or different layers such as 2,6,10"
_SIZES_FORM = "a share from 0 to 1, or different shares such as 0.5,0.25"
_DECAYED_RATE = "peak learning rate, decayed linearly to 0"
_RATE_FORM = "a number from 0, or auto"
_WARMUP = "share of the steps in which the learning rate rises linearly to its peak"


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


def _normalize_sizes(keep: float | str) -> float | str:
    """Return one share as a number, several as `0.5,0.25` in descending order."""
    try:
        shares = sorted((float(word) for word in str(keep).split(",")), reverse=True)
    except ValueError:
        shares = [-1.0]
    names = [f"{share:g}" for share in shares]
    smallest = 1e-4 if len(shares) > 1 else 0
    if len(set(names)) < len(names) or not all(smallest <= share <= 1 for share in shares):
        raise ValueError(f"must be {_SIZES_FORM}")
    return shares[0] if len(shares) == 1 else ",".join(names)


def _check_rate(value: Any) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value == "auto" or (is_number and 0 <= value <= sys.float_info.max):
        return value
    raise ValueError(f"must be {_RATE_FORM}")


Rate = Annotated[float | Literal["auto"], PlainValidator(_check_rate)]


class FirstTuning(Record):
    """The fine-tuning of a pretrained encoder before the search."""

    when: Literal["auto", "always", "never"] = setting(
        "auto", "auto: only if the model has no trained classifier yet"
    )
    require_learned: bool = setting(
        False,
        "stop before the search if the fine-tuned model is no better than a constant answer on "
        "rows it was tuned on; false: warn",
    )
    epochs: Int = setting(3, "passes over the rows", ge=0)
    learning_rate: Rate = setting(
        2e-5,
        f"{_DECAYED_RATE}; auto: the best of several in short trials on held-out rows of train",
        form=_RATE_FORM,
    )
    warmup: float = setting(0.0, _WARMUP, ge=0, le=0.9)
    batch_size: Int = setting(32, "rows per step", ge=1)


class LayerTuning(Record):
    """The fine-tuning on mini-train after heads of a layer were removed."""

    epochs: Int = setting(3, "passes over mini-train; 0: none", ge=0)
    learning_rate: Rate = setting(
        2e-6, f"{_DECAYED_RATE}; auto: that of the first tuning", form=_RATE_FORM
    )
    warmup: float = setting(0.0, _WARMUP, ge=0, le=0.9)
    batch_size: Int = setting(32, "rows per step", ge=1)


class LastTuning(Record):
    """The fine-tuning with early stopping after the last layer."""

    epochs: Int = setting(6, "largest number of passes; 0: none", ge=0)
    learning_rate: Rate = setting(
        2e-6, f"{_DECAYED_RATE}; auto: that of the first tuning", form=_RATE_FORM
    )
    warmup: float = setting(0.0, _WARMUP, ge=0, le=0.9)
    batch_size: Int = setting(32, "rows per step", ge=1)
    watch_fraction: float = setting(
        0.1,
        "share of train held out for early stopping (protocols seen and crossfit); 0: none, and "
        "the last weights are kept",
        ge=0,
        le=0.5,
    )
    evaluations_per_epoch: Int = setting(8, "evaluations on the held-out rows per epoch", ge=1)
    patience: Int = setting(20, "evaluations without improvement before stopping", ge=1)
    watch: Literal["metric", "loss"] = setting(
        "metric", "quantity that early stopping compares; the lower loss breaks ties"
    )


class Reward(Record):
    """The reward of the game, and the rows that it is computed on."""

    fraction: float = setting(
        2 / 3,
        "share of train in the reward set, the rest is mini-train; 1: both are all of train "
        "(under heldout the reward set still excludes mini-train; under crossfit it is always all "
        "of train)",
        ge=0.01,
        le=1,
    )
    max_rows: Int = setting(
        0, "largest number of rows in the reward set, sampled by class; 0: no limit", ge=0
    )
    scale: float = setting(100.0, "factor from the metric to the reward (100: points)", ge=1e-6)
    stop: float = setting(0.0, "reward of stopping")
    measure: Literal["metric", "smooth"] = setting(
        "metric",
        "quantity whose change is the reward: the task's metric, or (smooth) the share of the "
        "labels' entropy that the outputs explain, independent of their scale and bias; the share "
        "of variance for regression, F1 for spans",
    )
    caution: float = setting(
        0.0,
        "gain required to remove a head, in standard errors of the mean change of a row's score "
        "when that head is removed; with a search.prior, to change a head of it (measure smooth)",
        ge=0,
        le=10,
    )
    folds: Int = setting(
        3,
        "folds of train; each row is scored by the fold model that was trained without it "
        "(protocol crossfit)",
        ge=2,
        le=100,
    )
    head: float = setting(
        0.0,
        "reward for each removed head in addition to the change of the metric: the points you "
        "would give for a smaller model",
        ge=0,
    )
    latency: float = setting(
        0.0,
        "points you would give for one percent of the model's latency: each removed head is "
        "rewarded for its share, measured on this machine before the search; 0: off",
        ge=0,
    )
    latency_rows: Int = setting(
        1, "batch size of that measurement, with max_length tokens per row", ge=1
    )
    shards: Int = setting(
        1, "parts of the reward set that are scored in parallel (protocols seen and heldout)", ge=1
    )
    spread: Literal["devices", "ray"] = setting(
        "devices",
        "where the parts are scored: on the GPUs (or CPU threads) of this process, or on Ray "
        "workers",
    )


class Search(Record):
    """The layers to search, their order, and the state that the agent sees."""

    order: Literal["forward", "reverse"] = setting(
        "forward", "first layer to last, or last to first"
    )
    layers: Annotated[str, AfterValidator(_normalize_layers)] = setting(
        _ALL_LAYERS,
        "layers that a layer-wise method searches; the others stay unchanged. original+tuning is "
        "tuned once for each of these layers unless a run prescribes its tunings. Ranking methods "
        "choose among all layers",
        form=_LAYERS_FORM,
    )
    prior: Literal["none", "voita"] = setting(
        "none",
        "plan that the search starts from and corrects: no head removed, or the heads whose gates "
        "method voita closes (protocol crossfit)",
    )
    prior_share: float = setting(
        1 / 3,
        "share of all heads that the prior removes unless search.heads gives a number; heads "
        "outside search.layers stay",
        ge=0.01,
        le=0.9,
    )
    heads: Int = setting(
        0,
        "number of heads to remove in total, chosen from the best masks of each layer with the "
        "prior for the others; 0: decided by the rewards (protocol crossfit)",
        ge=0,
    )
    rewards: Int = setting(300, "plans that method exchange scores for a size", ge=1)
    rows: Int = setting(1000, "training rows that method exchange scores plans on, at most", ge=2)
    minutes: float = setting(0.0, "largest time of such a search in minutes; 0: no limit", ge=0)
    rewind: bool = setting(
        True,
        "apply the plan to the model before any tuning and repeat the first tuning; false: apply "
        "it to the fine-tuned model (protocol crossfit)",
    )
    matrix: Literal["value", "query", "key"] = setting(
        "value", "projection whose norm per head is the state"
    )
    norm: Literal["l1", "l2"] = setting("l1", "entrywise norm of that projection")

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


class Size(Record):
    """The target sizes of the encoder, for rankings."""

    keep: Annotated[float | str, AfterValidator(_normalize_sizes)] = setting(
        0.0,
        "share of the encoder's multiply-adds that remains, in rows of max_length tokens, or "
        "several shares, each of which gives a model; 0: no target, a number of heads is given",
        form=_SIZES_FORM,
    )
    tolerance: float | None = setting(
        None,
        "points that the chosen size may score below the unpruned model, on rows of train that are "
        "held out of all tunings; none: no size is chosen and no row held out",
        ge=0.01,
        le=100,
    )
    units: Literal["heads", "neurons", "both"] = setting(
        "both", "units to remove: attention heads, feed-forward neurons, or both"
    )
    even: bool = setting(
        False,
        "remove neurons only, as many in every layer: an ordinary model with a smaller "
        "intermediate_size",
    )
    multiple: Int = setting(
        8, "number that the neurons left in a layer are a multiple of; 1: any number", ge=1
    )
    step: float = setting(
        0.0,
        "smallest share of the present multiply-adds that may be left when units are removed; a "
        "smaller size is reached in several such steps, with a part of the last tuning's epochs "
        "after each; 0: always in one step",
        ge=0,
        le=0.95,
    )

    @property
    def shares(self) -> tuple[float, ...]:
        """The target sizes, the largest first; none if a number of heads is given."""
        if isinstance(self.keep, str):
            return tuple(map(float, self.keep.split(",")))
        return (self.keep,) if self.keep else ()

    @property
    def share(self) -> float:
        """The target size of a ranking, which has one."""
        (share,) = self.shares
        return share


class Teaching(Record):
    """What a pruned model learns from the unpruned one, its teacher, in the last tuning.

    Without labels that is all it learns from.
    """

    outputs: float = setting(
        0.0,
        "weight of the distance to the teacher's outputs; labels have the rest; without labels it "
        "is 1",
        ge=0,
        le=1,
    )
    hidden: float = setting(
        0.0, "weight of the distance to the teacher's hidden states, added to the loss", ge=0
    )
    copies: Int = setting(
        0, "copies of each row, with some tokens replaced, to learn from as well", ge=0
    )
    noise: float = setting(
        0.2, "share of a copy's tokens that are replaced by others of the training rows", ge=0, le=1
    )
    below: float = setting(
        1.0,
        "only sizes below this learn from the teacher; 1: every pruned model does; without labels "
        "all do",
        ge=0,
        le=1,
    )


class Agent(Record):
    """The deep Q-network that plays a layer."""

    episodes: Int = setting(150, "games per layer", ge=0)
    hidden_size: Int = setting(512, "width of a hidden layer", ge=1)
    hidden_layers: Int = setting(3, "hidden layers, with LeakyReLU between them", ge=0)
    scale_state: bool = setting(
        False, "multiply the state by the number of heads, so that its mean is 1"
    )
    optimizer: Literal["sgd", "adam"] = setting("sgd", "sgd uses agent.momentum")
    learning_rate: float = setting(0.03, "learning rate of the optimizer", ge=0)
    momentum: float = setting(0.9, "momentum of sgd", ge=0, le=0.9999)
    gradient_clamp: float = setting(
        1.0, "clamp each gradient entry to plus or minus this value", ge=1e-9
    )
    batch_size: Int = setting(128, "transitions per update", ge=1)
    learning_starts: Int = setting(128, "transitions stored before the first update", ge=1)
    updates_per_episode: Int = setting(1, "updates after each episode", ge=0)
    replay_size: Int = setting(5000, "transitions stored; the oldest are replaced", ge=1)
    target_every: Int = setting(35, "episodes between updates of the target network", ge=1)
    gamma: float = setting(1.0, "discount", ge=0, le=1)
    epsilon_start: float = setting(1.0, "share of random actions at the start", ge=0, le=1)
    epsilon_end: float = setting(0.05, "share of random actions at the end", ge=0, le=1)
    epsilon_decay: float = setting(256.0, "actions until the difference falls to 1/e", ge=1e-9)
    double_q: bool = setting(
        False, "double DQN: the policy network selects, the target network evaluates"
    )
    stop_value: float | None = setting(None, "fixed Q-value of stopping; none: it is learned")
    choose: Literal["rollout", "best"] = setting(
        "rollout", "plan of the layer: the greedy roll-out, or the best mask seen"
    )


class Surrogate(Record):
    """The method `surrogate`."""

    rewards: Int = setting(200, "masks scored in each layer", ge=1)
    start: Int = setting(20, "masks scored before the first prediction: random, but one", ge=1)
    batch: Int = setting(8, "best predicted masks scored between two predictions", ge=1)
    penalty: float = setting(
        0.1, "ridge penalty: variance of the noise relative to that of the scores", ge=1e-9
    )


class RandomPruning(Record):
    """The method `random`."""

    draw: Int = setting(0, "index of an independent random draw of heads", ge=0)


class Voita(Record):
    """The gates of the method `voita`."""

    epochs: Int = setting(3, "passes over the rows for each penalty tried", ge=1)
    learning_rate: float = setting(0.1, "learning rate of Adam for the gates' logarithms", ge=1e-9)
    batch_size: Int = setting(32, "rows per step", ge=1)
    temperature: float = setting(
        2 / 3, "temperature of the hard-concrete distribution; lower: closer to 0 and 1", ge=0.01
    )
    stretch: float = setting(
        0.1, "stretch of the distribution beyond 0 and 1 before it is clipped", ge=1e-6
    )
    trials: Int = setting(8, "largest number of penalties tried", ge=1)


class Config(Record):
    """All settings of a run. Build one with `make_config`."""

    seed: Int = setting(0, "seed of all random numbers", ge=0)
    protocol: Protocol = setting(
        "seen",
        "which models have seen the rows that give the reward: the scored model itself (seen), "
        "none, because they are held out of train (heldout), or only other models than the one "
        "that scores them (crossfit)",
    )
    max_length: Int = setting(128, "tokens to which a row is truncated", ge=4)
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "auto: a GPU if there is one")
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", "auto: bfloat16 on a GPU, else float32"
    )
    threads: Int = setting(0, "CPU threads of torch; 0: torch decides", ge=0)
    first: FirstTuning = Field(default_factory=FirstTuning)
    reward: Reward = Field(default_factory=Reward)
    search: Search = Field(default_factory=Search)
    size: Size = Field(default_factory=Size)
    teacher: Teaching = Field(default_factory=Teaching)
    agent: Agent = Field(default_factory=Agent)
    surrogate: Surrogate = Field(default_factory=Surrogate)
    layer: LayerTuning = Field(default_factory=LayerTuning)
    last: LastTuning = Field(default_factory=LastTuning)
    random: RandomPruning = Field(default_factory=RandomPruning)
    voita: Voita = Field(default_factory=Voita)

    _preset: str = PrivateAttr("paper")  # whose values are the defaults

    @property
    def preset(self) -> str:
        """The preset that the settings began with."""
        return self._preset

    def of_preset(self, preset: str) -> Config:
        """Return a copy that names the preset it began with."""
        copied = self.model_copy()
        copied._preset = preset
        return copied

    def replace(self, settings: Mapping[str, Any]) -> Config:
        """Return a copy with some settings changed, given by dotted key."""
        changed = build(Config, {**self.flat(), **settings}, where="settings")
        return changed.of_preset(self.preset)

    def flat(self) -> dict[str, Value]:
        """Return the value of every setting by dotted key."""
        return flatten_tables(self.model_dump())

    def to_toml(self) -> str:
        """Return the settings as TOML that `load_toml` reads back."""
        return format_toml(self.flat())


def settings() -> tuple[SettingInfo, ...]:
    """Return all settings in the order of their declaration."""
    return declared(Config)
