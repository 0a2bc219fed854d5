"""What a run's method decides: the heads of a layer, of all layers, and the best plan of a size.

The user is told where a decision says little: rewards that are all equal, an agent that learned
nothing, a model that explains nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

from auber.data.encoding import EncodedRows
from auber.errors import ModelError, first_line
from auber.metrics.task_metrics import get_metric
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.models.plan import PruningPlan
from auber.run.folder import Run
from auber.run.request import Request
from auber.run.rewards import MeteredScorer
from auber.run.waypoints import Waypoint
from auber.scoring import MaskScorer
from auber.search.methods import LayerSearch, Mask, Method, RankingChoice, RankingInputs
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


class Decisions:
    """Decides by a request's method. It removes no heads. Some messages are given only once."""

    def __init__(self, request: Request, run: Run, progress: Progress) -> None:
        self._request, self._run, self._progress = request, run, progress
        self._given: set[str] = set()  # messages that are given once

    def rank(
        self,
        method: Method,
        model: PreTrainedModel,
        rows: EncodedRows,
        num_removed: int | None,
        waypoint: Waypoint | None = None,
        known: dict[Any, Any] | None = None,
    ) -> RankingChoice:
        """Return the plan of a ranking method, the run's own or the prior.

        It removes a number of heads, or units down to the size of a waypoint; a search has a part
        of its time for each step. Rankings of the same model for several sizes have `known` in
        common.
        """
        assert method.choose_plan is not None
        hardware, config = self._request.hardware, self._request.config
        if waypoint is not None:
            minutes = config.search.minutes / waypoint.steps
            config = config.replace({"size.keep": waypoint.share, "search.minutes": minutes})
        work = RankingInputs(
            model=model,
            encoder=encoder_of(model),
            num_removed=num_removed,
            rows=rows,
            metric=self._request.task.metric,
            hardware=hardware,
            config=config,
            progress=self._progress,
            known={} if known is None else known,
            is_answered=self._request.task.is_answered,
            settle=self._run.settle,
        )
        try:
            return method.choose_plan(work)
        except torch.OutOfMemoryError as error:
            reason = first_line(error)
            raise ModelError(
                f"plan: the passes of method '{method.name}' over the rows do not fit into the "
                f"memory of {hardware.name} ({reason}); free some of it, or lower max_length"
            ) from error

    def search(
        self,
        encoder: Encoder,
        scorer: MaskScorer,
        num_rows: int,
        given: Mask,
        time_pay: float = 0.0,
    ) -> dict[str, Any]:
        """Search one layer, starting from the mask `given`, and return what to record.

        `time_pay` are the points for the time that each removed head saves. If the number of heads
        is set, the layer decides nothing alone: the gain of each number is recorded.
        """
        config, choose = self._request.config, self._request.method.choose_layer
        layer = scorer.layer
        assert choose is not None
        metered = MeteredScorer(scorer, self._run.ledger)
        started = time.perf_counter()
        costs = self._find_change_costs(metered, given)
        work = LayerSearch(
            layer=layer,
            encoder=encoder,
            heads=scorer.present,
            score_many=metered.score_many,
            config=config,
            progress=self._progress,
            prior=given,
            change_costs=costs,
            latency_reward=time_pay,
        )
        choice = choose(work)
        if config.search.heads:
            metered.score_many([given])  # a player of the user's own may not have asked for it
        seconds = time.perf_counter() - started
        known = metered.known
        search: dict[str, Any] = {
            "present": list(scorer.present),
            "seconds": round(seconds, 3),
            "reward_seconds": round(metered.seconds, 3),
            "rewards_asked": choice.rewards_asked + metered.asked_for_noise,
            "rewards_computed": len(known),
            "reward_rows": num_rows,
        }
        listed = [costs[head] for head in scorer.present] if costs else []
        optional = {"given": list(given), "change_costs": listed, "time_pay": time_pay}
        search |= {key: value for key, value in optional.items() if value}
        if () in known:  # a search that starts from a prior need not ask for it
            search["unpruned_score"] = known[()]
        info: dict[str, Any] = {
            "removed": list(choice.removed),
            "search": {**search, **choice.details},
        }
        if config.search.heads:
            start = work.objective(given, known[given])
            gains = {mask: work.objective(mask, score) - start for mask, score in known.items()}
            info["removed"] = []
            info["sizes"] = [
                {"removed": list(mask), "score": known[mask], "gain": gain}
                for _, (mask, gain) in sorted(best_by_size(gains).items())
            ]
        self._say_equal_rewards(layer, known.values())
        if config.reward.measure == "smooth" and () in known:
            self._say_nothing_learned(known[()], num_rows)
        self._say_no_update(layer, choice.details.get("updates"))
        return info

    def warn_of_blindness(self, layer: int, rows: EncodedRows) -> None:
        """Warn once if the metric gives every mask the same score on the reward sets."""
        request = self._request
        metric, device = request.reward_metric, request.hardware.device
        reason = explain_blindness(metric, request.task.num_labels, rows, device)
        if reason is not None and "blindness" not in self._given:
            self._given.add("blindness")
            logger.warning(
                "layer %d: reward set: %s and rewards cannot tell masks apart; raise "
                "reward.fraction or reward.max_rows, or give more rows",
                layer,
                reason,
            )

    def _find_change_costs(self, metered: MeteredScorer, start: Mask) -> dict[int, float]:
        """Return the points that a change of each head must gain, by the setting of caution.

        If the number of heads is set and there is no prior, there is nothing to be cautious about.
        """
        reward, search = self._request.config.reward, self._request.config.search
        if not reward.caution or (search.heads and search.prior == "none"):
            return {}
        unit = reward.scale * reward.caution
        return {head: unit * error for head, error in metered.estimate_noise(start).items()}

    def _say_equal_rewards(self, layer: int, scores: Collection[float]) -> None:
        if len(scores) > 1 and len(set(scores)) == 1:
            self._progress.say(
                f"layer {layer}: all {len(scores)} masks scored the same "
                f"({next(iter(scores)):.4f}), so the rewards do not distinguish heads"
            )

    def _say_nothing_learned(self, unpruned: float, num_rows: int) -> None:
        """Say once that a smooth reward finds nothing in the outputs of the unpruned layer."""
        rule = get_metric(self._request.reward_metric)
        if rule.by_row is None or rule.compares == "spans" or unpruned > 0:
            return  # F1 of spans is no explained share
        self._say_once(
            "nothing learned",
            f"the unpruned model explains nothing of the {num_rows} reward rows: what it learned "
            "does not hold for them, and the reward values no head; more rows, another "
            "first.learning_rate or more first.epochs may change that",
        )

    def _say_no_update(self, layer: int, updates: int | None) -> None:
        """Say once that the games were too few or too short for the agent to learn."""
        config = self._request.config
        agent = config.agent
        if updates != 0 or not (agent.episodes and agent.updates_per_episode):
            return
        is_rollout = agent.choose == "rollout" and not config.search.heads
        decides = "an untrained network decides" if is_rollout else "the best random mask decides"
        self._say_once(
            "no update",
            f"layer {layer}: the agent made no update, because its {agent.episodes} games had "
            f"fewer than {agent.learning_starts} moves; {decides}; raise agent.episodes, or lower "
            "agent.learning_starts (said once; the report names all such layers)",
        )

    def _say_once(self, key: str, words: str) -> None:
        if key not in self._given:
            self._given.add(key)
            self._progress.say(words)


def explain_blindness(
    metric: str, num_labels: int, rows: EncodedRows, device: torch.device
) -> str | None:
    """Return why every model scores the same on these rows; None if the metric can differ."""
    found = get_metric(metric)
    if not found.is_blind(rows.truth(device), num_labels):
        return None
    count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
    return f"{found.name} needs {found.needs}, not to be found in {count}, so every model scores 0"


def describe_fixed_layers(encoder: Encoder, layers: Collection[int]) -> str | None:
    """Return the message that names layers with a single head, which stays."""
    fixed = sorted(layer for layer in layers if len(encoder.present(layer)) < 2)
    if not fixed:
        return None
    names = f"layer{'s' if len(fixed) > 1 else ''} {', '.join(map(str, fixed))}"
    if len(fixed) < len(layers):
        return f"{names}: skipped, because one head must stay in each layer and there is only one"
    return (
        f"nothing to remove: one head must stay in each layer, and {names} had only one; the model "
        "is tuned and evaluated as it is"
    )


# Plans of a given size


def best_by_size(gains: Mapping[Mask, float]) -> dict[int, tuple[Mask, float]]:
    """Return the mask of each size that gains most, and its gain; of equals the first in order."""
    found: dict[int, tuple[Mask, float]] = {}
    for mask in sorted(gains):
        if len(mask) not in found or gains[mask] > found[len(mask)][1]:
            found[len(mask)] = mask, gains[mask]
    return found


def best_plan(
    num_removed: int, layers: Mapping[int, Mapping[int, tuple[Mask, float]]]
) -> tuple[PruningPlan, float]:
    """Return the plan that removes this many heads and gains most, and its gain.

    `layers` has `best_by_size` of each layer. The gains of layers are added, as if each was
    independent of the others; under this approximation the plan is the best one. If the known sizes
    do not add up to the number, the nearest sum is used, of two the smaller.
    """
    # By the number of heads removed in the layers so far.
    best: dict[int, tuple[float, dict[int, Mask]]] = {0: (0.0, {})}
    for layer, sizes in layers.items():
        longer: dict[int, tuple[float, dict[int, Mask]]] = {}
        for removed, (gain, plan) in best.items():
            for size, (mask, more) in sizes.items():
                total = removed + size
                if total not in longer or gain + more > longer[total][0]:
                    longer[total] = gain + more, {**plan, layer: mask}
        best = longer
    nearest = min(best, key=lambda total: (abs(total - num_removed), total))
    gain, plan = best[nearest]
    return PruningPlan(plan), gain
