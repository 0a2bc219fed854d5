"""What the record of a searched layer tells of scores: what the search began from, and the masks it has them of.

Pages and watchers ask the same of a record, of which `Fields` names what is damaged. Scores are the metric on the reward set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auber.fields import Fields

Mask = tuple[int, ...]  # the removed heads of a layer, in order


@dataclass(frozen=True)
class SearchScores:
    """The scores of one layer's search, as far as its record has them."""

    unpruned: float | None
    masks: Mapping[
        Mask, float
    ]  # the best one, the one that the policy chose, and of a given budget the best of every size

    def of(self, removed: Iterable[int]) -> float | None:
        """The score of a mask; None where it is not recorded."""
        return self.masks.get(tuple(sorted(removed)))

    def gain(self, removed: Iterable[int]) -> float | None:
        """What a mask scored beyond what the search began from; None where either is not recorded."""
        score = self.of(removed)
        return None if score is None or self.unpruned is None else score - self.unpruned


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
    return SearchScores(stage.find("search.unpruned_score", float), masks)
