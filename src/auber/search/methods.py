"""What a pruning method is: one of two shapes, and a line in the table of names.

A layer-wise method decides one layer after the other, with tuning between; it decides how many heads go. A ranking method
names all heads at once at a given number. Controls are ranking methods that remove nothing. A method never sees dev rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from auber.config import Config, Value
from auber.models.plan import PruningPlan
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.data.encoding import EncodedRows
    from auber.models.encoders.base import Encoder
    from auber.training.devices import Hardware


Mask = tuple[int, ...]  # the removed heads of a layer, in order


@dataclass(frozen=True)
class LayerWork:
    """What a layer-wise method is given: one layer of a model, and scores for the asking."""

    layer: int
    encoder: Encoder
    heads: tuple[int, ...]  # those still there, numbered as in the unpruned model
    score_many: Callable[
        [Sequence[Mask]], list[float]
    ]  # sets of removed heads -> metric on the reward set
    config: Config
    progress: Progress
    given: Mask = ()  # the heads that the plan it begins from removes
    change_cost: float = (
        0.0  # points that each head has to gain by which a mask departs from that plan
    )
    time_pay: float = 0.0  # points for the time that each removed head saves

    def score(self, removed: Mask) -> float:
        """The metric on the reward set with these heads removed."""
        return self.score_many([removed])[0]

    def pay(self, head: int) -> float:
        """The points that a change of a head pays beside the metric's: what is given for a removed one, less the cost."""
        reward = self.config.reward.head + self.time_pay
        return (-reward if head in self.given else reward) - self.change_cost

    def worth(self, removed: Mask, score: float) -> float:
        """What a search should have most of: the metric, and what the changed heads pay."""
        return self.config.reward.scale * score + sum(map(self.pay, {*self.given} ^ {*removed}))


@dataclass(frozen=True)
class LayerChoice:
    """What a layer-wise method decided."""

    removed: tuple[int, ...]
    rewards_asked: int
    rewards_computed: int
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON, for the record


@dataclass(frozen=True)
class RankingWork:
    """What a ranking method is given: the fine-tuned start, rows it was tuned on, and the number of heads to remove."""

    model: PreTrainedModel  # not to be changed
    encoder: Encoder
    num_removed: int
    rows: EncodedRows
    hardware: Hardware
    config: Config
    progress: Progress


@dataclass(frozen=True)
class RankingChoice:
    """What a ranking method decided."""

    plan: PruningPlan
    details: Mapping[str, Any] = field(default_factory=dict)


def _says_nothing(config: Config, heads: Mapping[int, int]) -> None:
    """Of a method that takes all settings and all sizes."""


@dataclass(frozen=True)
class Method:
    """One entry of the table: exactly one of the two functions is given."""

    name: str
    doc: str
    choose_layer: Callable[[LayerWork], LayerChoice] | None = None
    choose_plan: Callable[[RankingWork], RankingChoice] | None = None
    settings: Mapping[str, Value] = field(default_factory=dict)  # what an ablation changes
    removes_heads: bool = True
    tunes: bool = True
    # Of a layer-wise method: raises a `ConfigError` for settings, or numbers of heads by layer, that it cannot do with.
    check: Callable[[Config, Mapping[int, int]], None] = _says_nothing

    @property
    def decides_number(self) -> bool:
        """Whether the method itself decides how many heads go."""
        return self.choose_layer is not None

    def makes_scouts(self, protocol: str) -> bool:
        """Whether its rewards come from scouts, which are made of the model before any tuning."""
        return protocol == "crossfit" and self.choose_layer is not None
