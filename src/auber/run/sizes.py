"""What the stages of several target sizes do, each with a copy of the fine-tuned model.

So does a single size with a tolerance.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from auber.models.surgery import remove
from auber.run.finished import find_plan
from auber.run.held_out import HeldOut
from auber.run.steps import Steps
from auber.run.waypoints import Waypoint
from auber.search.stages import LAST, PLAN, size_stage

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Sizes:
    """The steps of a run for its target sizes, the largest first."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._request = steps, steps.request
        self._known: dict[Any, Any] = {}  # what a ranking computes once for all sizes
        self._held_out: HeldOut | None = None
        if steps.splits.held_out:
            rows = steps.train.select(steps.splits.held_out)
            self._held_out = HeldOut(rows, self._request.task.metric, self._request.config)

    def is_within_tolerance(self) -> bool:
        """Return whether a smaller size may be: no size so far loses more than the tolerance."""
        found = [stage.held_out for stage in self._steps.done.values()]
        return all(held_out is None or held_out.is_within for held_out in found)

    def take_step(self, waypoint: Waypoint, stage: str, previous: str) -> dict[str, Any]:
        """Prune the model of the previous stage to a size on the way to a target, and tune it."""
        self._steps.model, known = self._load(previous)
        return self._steps.take_step(waypoint, stage, known)

    def choose_plan(self, waypoint: Waypoint, previous: str) -> dict[str, Any]:
        """Decide what the model of the previous stage loses for a size; nothing is removed yet."""
        steps, method = self._steps, self._request.method
        model, known = self._load(previous)
        choice = steps.decisions.rank(method, model, steps.first_rows, None, waypoint, known)
        return {"removed": choice.plan.to_json(), **choice.details}

    def tune_size(self, waypoint: Waypoint, previous: str) -> dict[str, Any]:
        """Prune to a size, and tune; with a tolerance, compare with the unpruned model."""
        steps, share, info = self._steps, waypoint.share, dict[str, Any]()
        steps.model, _ = self._load(previous)
        remove(steps.model, find_plan(steps.done, size_stage(PLAN, share)))
        with steps.tunings.reusing_captures():
            info["tuning"] = steps.tunings.last(steps.model, share, waypoint.epochs).to_json()
        if self._held_out is not None:
            unpruned, device = size_stage(LAST, 1.0), self._request.hardware.device
            load = partial(steps.run.load_stage, unpruned, device) if share < 1 else None
            info["held_out"] = self._held_out.compare(steps.model, load)
        return info

    def _load(self, stage: str) -> tuple[PreTrainedModel, dict[Any, Any]]:
        """Return the model at the end of a stage, and what is known of its units."""
        if stage == "first":
            return self._steps.copy_fine_tuned(), self._known
        return self._steps.run.load_stage(stage, self._request.hardware.device), {}
