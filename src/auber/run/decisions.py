"""What a run's method decides, and what a person should know of the rewards it was decided by."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import torch

from auber.data.encoding import EncodedRows
from auber.errors import ModelError
from auber.metrics.task_metrics import get_metric
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.run import notices
from auber.run.budget import best_by_size, gains
from auber.run.job import Job
from auber.run.ledger import Ledger
from auber.run.rewards import MeteredScorer
from auber.scoring import MaskScorer
from auber.search.methods import LayerSearch, Mask, Method, RankingChoice, RankingInputs
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


class Decisions:
    """Decides by a job's method; nothing is removed by it. What is said once holds for all layers."""

    def __init__(self, job: Job, ledger: Ledger, progress: Progress) -> None:
        self._job, self._ledger, self._progress = job, ledger, progress
        self._blindness_said = self._nothing_said = self._no_update_said = False

    def rank(
        self, method: Method, model: PreTrainedModel, rows: EncodedRows, num_removed: int
    ) -> RankingChoice:
        """What a ranking method, the job's or another, says of a model's heads."""
        assert method.choose_plan is not None
        hardware, config = self._job.hardware, self._job.config
        try:
            return method.choose_plan(
                RankingInputs(
                    model, encoder_of(model), num_removed, rows, hardware, config, self._progress
                )
            )
        except torch.OutOfMemoryError as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"plan: the passes of method '{method.name}' over the rows do not fit into the memory of "
                f"{hardware.name} ({reason}); free some of it, or lower max_length"
            ) from error

    def search(
        self,
        encoder: Encoder,
        scorer: MaskScorer,
        num_rows: int,
        given: Mask,
        time_pay: float = 0.0,
    ) -> dict[str, Any]:
        """The record of a layer's search, on the scorer's rewards for so many rows; `given` is what it begins from.

        `time_pay` is what the time that a removed head saves is worth, in points.
        Where the number of heads is given, the layer alone decides nothing: noted is what each number would gain.
        """
        config, choose, layer = self._job.config, self._job.method.choose_layer, scorer.layer
        assert choose is not None
        metered = MeteredScorer(scorer, get_metric(self._job.reward_metric), self._ledger)
        started = time.perf_counter()
        cost = self._change_cost(metered)
        work = LayerSearch(
            layer,
            encoder,
            scorer.present,
            metered.score_many,
            config,
            self._progress,
            given,
            cost,
            time_pay,
        )
        choice = choose(work)
        info: dict[str, Any] = {
            "removed": [] if config.search.heads else list(choice.removed),
            "search": {
                "present": list(scorer.present),
                "seconds": round(time.perf_counter() - started, 3),
                "reward_seconds": round(metered.seconds, 3),
                "rewards_asked": choice.rewards_asked + metered.asked_for_noise,
                "rewards_computed": len(metered.known),
                "reward_rows": num_rows,
                **({"given": list(given)} if given else {}),
                **({"change_cost": cost} if cost else {}),
                **({"time_pay": time_pay} if time_pay else {}),
                # Only where it was asked for: a search that begins from a prior need not see the layer with all its heads.
                **({"unpruned_score": metered.known[()]} if () in metered.known else {}),
                **choice.details,
            },
        }
        if config.search.heads:
            info["sizes"] = [
                {"removed": list(mask), "score": metered.known[mask], "gain": gain}
                for _, (mask, gain) in sorted(best_by_size(gains(work, metered.known)).items())
            ]
        self._tell(
            layer, metered.known, num_rows, None if config.search.heads else len(choice.removed)
        )
        if not self._no_update_said:
            no_update = notices.nothing_updated(layer, config, choice.details.get("updates"))
            self._no_update_said = no_update is not None
            self._say(no_update)
        return info

    def warn_of_blindness(self, layer: int, rows: EncodedRows) -> None:
        """Warn where rewards on these rows tell no masks apart; once, because the other layers' reward sets are no better."""
        job = self._job
        if self._blindness_said:
            return
        reason = notices.blindness(
            job.reward_metric, job.task.num_labels, rows, job.hardware.device
        )
        if reason is not None:
            self._blindness_said = True
            logger.warning(
                "layer %d: reward set: %s and rewards tell no masks apart; raise reward.fraction or reward.max_rows, or give more "
                "rows",
                layer, reason,
            )  # fmt: skip

    def _change_cost(self, metered: MeteredScorer) -> float:
        """The points that a head has to gain by which a layer departs from the prior, as the settings' caution has it.

        Where the number of heads is given, and no prior to depart from, caution has nothing to decide.
        """
        reward, search = self._job.config.reward, self._job.config.search
        if not reward.caution or (search.heads and search.prior == "none"):
            return 0.0
        return reward.scale * reward.caution * metered.noise_of_a_head()

    def _tell(
        self, layer: int, scores: dict[Mask, float], num_rows: int, num_removed: int | None
    ) -> None:
        has_prior = self._job.config.search.prior != "none"
        words = [notices.equal_rewards(layer, scores.values(), num_removed, has_prior)]
        if self._job.config.reward.measure == "smooth" and not self._nothing_said and () in scores:
            nothing = notices.nothing_learned(self._job.reward_metric, scores[()], num_rows)
            self._nothing_said = nothing is not None
            words.append(nothing)
        for each in words:
            self._say(each)

    def _say(self, words: str | None) -> None:
        if words is not None:
            self._progress.say(words)
