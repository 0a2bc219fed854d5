"""What the record of a searched layer tells of scores: what the search began from, and the masks it has them of.

A search begins from the unpruned layer, or from the heads that a plan leaves (`given`, see `search.prior`). Earlier versions have the
score of either as `unpruned_score`; now that is the unpruned layer's alone, and missing where nobody asked for it.

Pages and watchers ask the same of a record, of which `Fields` names what is damaged. Scores are the metric on the reward set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auber.run.fields import Fields

Mask = tuple[int, ...]  # the removed heads of a layer, in order


@dataclass(frozen=True)
class SearchScores:
    """The scores of one layer's search, as far as its record has them."""

    given: float | None  # of what the search began from
    unpruned: float | None  # of the layer with all its heads
    # Of the best mask, of the one that the policy chose and, where a number of heads was given, of the best of every size.
    masks: Mapping[Mask, float]

    def of(self, removed: Iterable[int]) -> float | None:
        """The score of a mask; None where it is not recorded."""
        return self.masks.get(tuple(sorted(removed)))

    def gain(self, removed: Iterable[int]) -> float | None:
        """What a mask scored beyond what the search began from; None where either is not recorded."""
        score = self.of(removed)
        return None if score is None or self.given is None else score - self.given


def read_scores(stage: Fields) -> SearchScores:
    """The scores in the record of a layer's stage."""
    masks: dict[Mask, float] = {}
    for name in ("best", "rollout"):
        score = stage.find(f"search.{name}_score", float)
        if score is not None:
            masks[tuple(sorted(stage.items(f"search.{name}", int)))] = score
    for entry in stage.items("sizes", dict):
        size = Fields(f"{stage.where}: sizes", entry)
        masks[tuple(sorted(size.items("removed", int)))] = size.get("score", float)
    given, unpruned = (stage.find(f"search.{name}_score", float) for name in ("given", "unpruned"))
    if given is None:  # of an earlier version
        given, unpruned = unpruned, None if stage.items("search.given", int) else unpruned
    return SearchScores(given, unpruned, masks)
