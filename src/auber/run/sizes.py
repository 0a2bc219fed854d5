"""What the stages of several target sizes do, each with a copy of the fine-tuned model.

So does a single size with a tolerance.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from auber.models.surgery import remove
from auber.run.finished import find_plan
from auber.run.held_out import HeldOut
from auber.run.steps import Steps
from auber.search.stages import LAST, PLAN, size_stage


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

    def choose_plan(self, share: float) -> dict[str, Any]:
        """Decide what the fine-tuned model loses for a size; nothing is removed yet."""
        steps, method = self._steps, self._request.method
        model = steps.copy_fine_tuned()
        choice = steps.decisions.rank(method, model, steps.first_rows, None, share, self._known)
        return {"removed": choice.plan.to_json(), **choice.details}

    def tune_size(self, share: float) -> dict[str, Any]:
        """Prune to a size, and tune; with a tolerance, compare with the unpruned model."""
        steps, info = self._steps, dict[str, Any]()
        steps.model = steps.copy_fine_tuned()
        remove(steps.model, find_plan(steps.done, size_stage(PLAN, share)))
        with steps.tunings.reusing_captures():
            info["tuning"] = steps.tunings.last(steps.model, share).to_json()
        if self._held_out is not None:
            unpruned, device = size_stage(LAST, 1.0), self._request.hardware.device
            load = partial(steps.run.load_stage, unpruned, device) if share < 1 else None
            info["held_out"] = self._held_out.compare(steps.model, load)
        return info
