"""What the stages of several target sizes do, each with a copy of the fine-tuned model.

So does a single size with steps on the way, repair or a tolerance.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from auber.models.surgery import remove
from auber.run.finished import find_plan
from auber.run.held_out import HeldOut
from auber.run.steps import Steps
from auber.scoring.repair import repair
from auber.search.stages import LAST, PLAN, STEP, size_stage


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

    def take_step(self, share: float) -> dict[str, Any]:
        """Prune to a share on the way to the sizes, by a new ranking, and tune."""
        info, steps = self._prune(share), self._steps
        with steps.tunings.reusing_captures():
            info["tuning"] = steps.tunings.step(steps.model, share).to_json()
        return info

    def tune_size(self, share: float) -> dict[str, Any]:
        """Prune to a size, and tune; with a tolerance, compare with the unpruned model."""
        info, steps = self._prune(share), self._steps
        with steps.tunings.reusing_captures():
            info["tuning"] = steps.tunings.last(steps.model, share).to_json()
        if self._held_out is not None:
            unpruned, device = size_stage(LAST, 1.0), self._request.hardware.device
            load = partial(steps.run.load_stage, unpruned, device) if share < 1 else None
            info["held_out"] = self._held_out.compare(steps.model, load)
        return info

    def _prune(self, share: float) -> dict[str, Any]:
        """Prune the fine-tuned model, or that of the step before, to a share."""
        steps, request, info = self._steps, self._request, dict[str, Any]()
        size, on_the_way = request.config.size, request.steps_to(share)
        if on_the_way:
            before = size_stage(STEP, on_the_way[-1])
            steps.model = steps.run.load_stage(before, request.hardware.device)
        else:
            steps.model = steps.copy_fine_tuned()
        if size.step_epochs and share < 1:
            choice = steps.decisions.rank(
                request.method, steps.model, steps.first_rows, None, share
            )
            plan, info = choice.plan, {"removed": choice.plan.to_json(), **choice.details}
        else:
            plan = find_plan(steps.done, size_stage(PLAN, share))
        remove(steps.model, plan)
        if size.repair and share < 1:
            unpruned, seed = steps.copy_fine_tuned(), request.config.seed
            repair(steps.model, unpruned, steps.first_rows, seed=seed, progress=steps.progress)
        return info
