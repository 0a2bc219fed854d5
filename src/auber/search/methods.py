"""What a pruning method is: a layer search or a ranking, and its entry in the registry.

A layer search decides one layer at a time, with tuning in between, and decides how many heads go.
A ranking scores all units at once and removes a number of heads, or units down to a size. Controls
are rankings that remove nothing. No method sees rows of the dev set.

Importing this module imports neither torch nor numpy, so that methods can be listed quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from auber.config import Config, Size, Value
from auber.models.plan import PruningPlan
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.data.encoding import EncodedRows
    from auber.models.encoders.base import Encoder
    from auber.training.devices import Hardware

T = TypeVar("T")
Mask = tuple[int, ...]  # what is removed from a layer, in ascending order


@dataclass(frozen=True)
class LayerSearch:
    """The inputs of a layer search: one layer, a scorer of masks and the settings."""

    layer: int
    encoder: Encoder
    heads: tuple[int, ...]  # those still present, numbered as in the unpruned model
    score_many: Callable[[Sequence[Mask]], list[float]]  # removed heads -> metric on the reward set
    config: Config
    progress: Progress
    prior: Mask = ()  # the heads that the plan to begin from removes
    change_costs: Mapping[int, float] = field(default_factory=dict)  # points to gain, by head
    latency_reward: float = 0.0  # points for the time that each removed head saves

    def score(self, removed: Mask) -> float:
        """Return the metric on the reward set with these heads removed."""
        return self.score_many([removed])[0]

    def change_reward(self, head: int) -> float:
        """Return the points for removing a head or putting it back, besides those of the metric."""
        reward = self.config.reward.head + self.latency_reward
        return (-reward if head in self.prior else reward) - self.change_costs.get(head, 0.0)

    def objective(self, removed: Mask, score: float) -> float:
        """Return what a search maximises: the metric in points, plus the rewards of all changes."""
        changed = {*self.prior} ^ {*removed}
        return self.config.reward.scale * score + sum(map(self.change_reward, changed))


@dataclass(frozen=True)
class LayerChoice:
    """The result of a layer search."""

    removed: Mask
    rewards_asked: int
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON, for the record


class ScoredMasks:
    """The masks that a layer search has scored, in order, and the choice among them."""

    def __init__(self, search: LayerSearch) -> None:
        self.scores: dict[Mask, float] = {}
        self._search = search

    def __len__(self) -> int:
        return len(self.scores)

    def add(self, masks: Iterable[Mask], most: int | None = None) -> None:
        """Score the masks that are not known, at most the first `most` of them."""
        new = list(dict.fromkeys(mask for mask in masks if mask not in self.scores))[:most]
        self.scores.update(zip(new, self._search.score_many(new) if new else [], strict=True))

    def objective(self, mask: Mask) -> float:
        """Return what the search maximises."""
        return self._search.objective(mask, self.scores[mask])

    def rank(self, mask: Mask) -> tuple[float, int]:
        """Return the objective and, because each change must gain something, minus the changes."""
        return self.objective(mask), -len({*self._search.prior} ^ {*mask})

    def best(self) -> Mask:
        """Return the mask of the highest rank, the first of equal ones."""
        return max(self.scores, key=self.rank)

    def curve(self) -> list[list[float]]:
        """Return [masks scored, best score so far] at each improvement, for the record."""
        return [list(point) for point in score_curve(self.scores.values())]

    def choose(self, mask: Mask, **details: Any) -> LayerChoice:
        """Return the choice of a mask; no mask has been scored twice."""
        known = {
            "given_score": self.scores[self._search.prior],
            "best": list(mask),
            "best_score": self.scores[mask],
        }
        return LayerChoice(mask, len(self), known | details)


def score_curve(scores: Iterable[float]) -> list[tuple[int, float]]:
    """Return (masks scored, best score so far) at each improvement."""
    curve: list[tuple[int, float]] = []
    for count, score in enumerate(scores, start=1):
        if not curve or score > curve[-1][1]:
            curve.append((count, score))
    return curve


def kinds_of(size: Size) -> tuple[str, ...]:
    """Return the kinds of units that go for a target size."""
    if size.even:
        return ("neurons",)
    return ("heads", "neurons") if size.units == "both" else (size.units,)


@dataclass(frozen=True)
class RankingInputs:
    """The inputs of a ranking: the fine-tuned model, its training rows, and what to remove."""

    model: PreTrainedModel  # must not be changed
    encoder: Encoder
    num_removed: int | None  # heads; None: to the target size of the settings
    rows: EncodedRows
    metric: str  # of the task
    hardware: Hardware
    config: Config
    progress: Progress
    known: dict[Any, Any] = field(default_factory=dict)  # computed once for several target sizes
    is_answered: bool = False  # the labels are the model's own answers
    # Returns a number by name, measured by the clock once in a run, even if it is resumed.
    settle: Callable[[str, Callable[[], int]], int] = lambda _name, measure: measure()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of units among which to choose."""
        return ("heads",) if self.num_removed is not None else kinds_of(self.config.size)

    def once(self, key: Any, compute: Callable[[], T]) -> T:
        """Return what `compute` returned when a ranking of this model first asked for the key."""
        if key not in self.known:
            self.known[key] = compute()
        found: T = self.known[key]
        return found


@dataclass(frozen=True)
class RankingChoice:
    """The result of a ranking."""

    plan: PruningPlan
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON, for the record


@dataclass(frozen=True)
class Method:
    """An entry of the registry. Exactly one of the two functions is given."""

    name: str
    doc: str
    choose_layer: Callable[[LayerSearch], LayerChoice] | None = None
    choose_plan: Callable[[RankingInputs], RankingChoice] | None = None
    settings: Mapping[str, Value] = field(default_factory=dict)  # that an ablation changes
    removes_heads: bool = True
    removes_neurons: bool = False
    tunes: bool = True
    # Of a layer search: raises `ConfigError` if it cannot use the settings or the number of heads
    # of a layer, given by layer.
    check: Callable[[Config, Mapping[int, int]], None] = lambda _config, _heads: None

    @property
    def decides_number(self) -> bool:
        """Whether the method itself decides how many heads go."""
        return self.choose_layer is not None

    def uses_fold_models(self, protocol: str) -> bool:
        """Return whether its rewards come from fold models, made from the pretrained model."""
        return protocol == "crossfit" and self.choose_layer is not None
