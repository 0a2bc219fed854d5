"""One run from a start model to a result: first tuning, decisions with tuning between, last tuning, the scores.

The run is a row of stages (`first`, then `plan` or the layers, then `last`). A finished stage is never done again: a run that
was killed walks over what is done, loads the newest weights and goes on. Each stage draws from generators of its own,
so where it was cut leaves no trace in the numbers.

Every method walks the same way, so that all get the same tuning: a ranking method removes its heads first and then goes
through the tunings of `tuned_layers` (those of the run it is matched with), a control likewise with no head removed. Under
protocol crossfit all layers are decided on the scouts first (`scouts`), where there is one from a plan that is given (`prior`); what
comes of it is then carried out on the origin, the model before any tuning, which gets the first tuning (`rewind`) and those after
the layers, or on the start.

`job` says what is to be done, `tunings` tunes, `decisions` asks the method, `rewards` meters the scores, `records`
checks what was written before, `work` weighs the stages for who shows the time left, `accounts` makes the result out of the stages' records, and `notices` has the words for what a person should know.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from auber.data.encoding import EncodedRows, encode_split
from auber.data.splits import Splits, make_splits
from auber.errors import ModelError, RunError
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads, remove_remaining
from auber.run import notices
from auber.run.accounts import describe_result, layer_numbers, result_numbers
from auber.run.budget import best_plan, most_to_remove
from auber.run.decisions import Decisions
from auber.run.fold_models import Scouts
from auber.run.folder import Run
from auber.run.job import Job
from auber.run.records import check_result, check_stage
from auber.run.tunings import Tunings
from auber.run.work import Work
from auber.scoring import CrossFitScorer, MaskScorer, Workers, make_scorer, open_workers
from auber.search.registry import get_method
from auber.search.stages import (
    BUDGET,
    PLAN,
    PRIOR,
    REWIND,
    TIMING,
    layer_of,
    layer_stage,
    tuning_stage,
)
from auber.system.progress import Progress
from auber.training.evaluation import Scores, evaluate_rows
from auber.training.latency import LIMITS, measure_saving
from auber.training.tuning import require_finite_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["Job", "Pipeline", "check_result"]

logger = logging.getLogger(__name__)


class Pipeline:
    """Carries a job through its stages in a run's folder."""

    def __init__(
        self,
        job: Job,
        run: Run,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        progress: Progress,
        origin: PreTrainedModel | None = None,
    ) -> None:
        self.job, self.run, self.tokenizer, self.progress = job, run, tokenizer, progress
        self.model = model.to(job.hardware.device)
        encoder = encoder_of(self.model)
        task, config = job.task, job.config
        self._train = encode_split(tokenizer, task, "train", config.max_length)
        self.splits: Splits = make_splits(
            task.train.labels, config, encoder.num_layers, not task.has_classes
        )
        self._tunings = Tunings(job, self._train, self.splits, progress)
        self._work = Work(job, self.splits, encoder)
        self._done: list[str] = []
        self._behind = (
            False  # whether finished stages were walked over whose weights are not loaded yet
        )
        self._decisions = Decisions(job, run.ledger, progress)
        self._scouts: Scouts | None = None
        if origin is not None:
            self._scouts = Scouts(
                run, origin, self.splits.folds, job.hardware.device, self._tune_scout
            )
        run.write("splits.json", self.splits.to_json())
        self._say(notices.cut_rows(self._train, config.max_length))

    def finetune(self) -> None:
        """The first tuning alone."""
        self._plan([self._work.first(), self._work.evaluation()])
        self._announce(["first"])
        self._first_stage(self.splits.first)

    def prune(self) -> None:
        """All stages of the method."""
        method, layers = self.job.method, self.job.layers(encoder_of(self.model).num_layers)
        if method.removes_heads:
            self._say(notices.layers_that_stay(encoder_of(self.model), layers))
        if method.choose_layer is None:
            self._prune_by_plan(layers)
        elif self._scouts is not None:
            self._prune_by_scouts(self._scouts, layers)
        else:
            self._prune_by_layers(layers)

    def _prune_by_layers(self, layers: list[int]) -> None:
        """Decide one layer after the other, with tuning between."""
        timing = self._timing_stages()
        work = self._work
        *after, last = work.later(layers)
        by_layer = [
            each
            for layer, tuning in zip(layers, after, strict=True)
            for each in (work.search(layer), tuning)
        ]
        self._plan([work.first(), *(0.0 for _ in timing), *by_layer, last, work.evaluation()])
        self._announce(["first", *timing, *map(layer_stage, layers), "last"])
        fewest = min(len(self.splits.layers[layer].reward) for layer in layers)
        with open_workers(self.job.config, self.job.hardware, fewest) as workers:
            self._first_stage(self.splits.first)
            if timing:
                self._stage(TIMING, self._time_heads, keeps=False)
            for layer in layers:
                self._stage(
                    layer_stage(layer), partial(self._search_layer, layer, workers), shown=2
                )
        self._last_stage()

    def _prune_by_scouts(self, scouts: Scouts, layers: list[int]) -> None:
        """Decide all layers on the scouts, carry the plan out on the origin or the start, and tune it."""
        search, timing = self.job.config.search, self._timing_stages()
        prior, budget, rewind = (
            [PRIOR] * (search.prior != "none"),
            [BUDGET] * (search.heads > 0),
            [REWIND] * search.rewind,
        )
        decided = [
            "first",
            *timing,
            *prior,
            *scouts.stages,
            *map(layer_stage, layers),
            *budget,
            *rewind,
        ]
        after = len(layers) + 1  # tunings of every model
        work = self._work
        self._plan(
            [
                work.first(),
                *(0.0 for _ in timing),
                *(work.ranking(search.prior) for _ in prior),
                *work.scouts(layers),
                *map(work.search, layers),
                *(work.first() for _ in rewind),
                *work.later(layers),
                work.evaluation(),
            ]
        )
        self._announce([*decided, *map(tuning_stage, layers), "last"])
        self._first_stage(self.splits.first)
        if timing:
            self._stage(TIMING, self._time_heads, keeps=False)
        if prior:
            self._stage(PRIOR, partial(self._choose_prior, layers), keeps=False)
        self._say(
            f"{len(scouts.stages)} scouts: each is tuned on all rows but those that it scores afterwards"
        )
        for fold, name in enumerate(scouts.stages):
            if self.run.stage(name) is None:
                self.run.forget_others(
                    [*self._done, *scouts.stages]
                )  # they know nothing of each other
                info = self._measured(partial(scouts.make, fold))
                scouts.keep(fold, info)
                self.run.log("stage", stage=name, **info)
            else:
                check_stage(name, self.run.read_stage(name))
                self.progress.skip(1 + after)
            self._done.append(name)
        for layer in layers:
            self._stage(layer_stage(layer), partial(self._decide_layer, layer), keeps=False)
        if budget:
            self._stage(BUDGET, partial(self._spend, layers), shown=0, keeps=False)
        scouts.release()
        if rewind:
            self._stage(REWIND, partial(self._rewind, scouts))
        plan = self._decided()
        tuned = [layer for layer in layers if layer in plan]
        self.progress.skip(len(layers) - len(tuned))
        self._announce([*decided, *map(tuning_stage, tuned), "last"])
        with self._tunings.in_a_row():
            for layer in tuned:
                self._stage(tuning_stage(layer), partial(self._tune_only, layer))
            self._last_stage()

    def _prune_by_plan(self, layers: list[int]) -> None:
        """Decide all heads at once, then tune as often as the run that this one is matched with."""
        method = self.job.method
        choices, last = int(method.removes_heads), ["last"] * method.tunes
        work = self._work
        choice = [work.ranking(method.name)] * choices
        self._plan(
            [
                work.first(),
                *choice,
                *(work.later(layers) if method.tunes else ()),
                work.evaluation(),
            ]
        )
        self._announce(["first", PLAN, *last])
        self._first_stage(self.splits.first if method.removes_heads else self.splits.original_first)
        self._stage(PLAN, self._choose_plan, shown=choices)
        tuned = self._layers_to_tune(layers)
        self.progress.skip(len(layers) - len(tuned) if method.tunes else 0)
        self._announce(["first", PLAN, *map(layer_stage, tuned), *last])
        with self._tunings.in_a_row():
            for layer in tuned:
                self._stage(layer_stage(layer), partial(self._tune_only, layer))
            if method.tunes:
                self._last_stage()

    def conclude(self, kind: str) -> dict[str, Any]:
        """Evaluate the model, once on dev, and write model and result."""
        self._catch_up()
        started = time.perf_counter()
        self.progress.begin("evaluating", 2)
        train = self._evaluate(self._train, "train")
        self.progress.step(1)
        dev_rows = encode_split(self.tokenizer, self.job.task, "dev", self.job.config.max_length)
        dev = self._evaluate(dev_rows, "dev")
        reason = notices.blindness(
            self.job.task.metric, self.job.task.num_labels, dev_rows, self.job.hardware.device
        )
        if reason is not None:
            logger.warning("dev: %s; give more rows", reason)
        self.run.log("dev_evaluation", score=dev.score, rows=dev.rows)
        self.progress.end()
        encoder = encoder_of(self.model)
        self.progress.record(0, result_numbers(train, dev, encoder.removed.num_removed))
        result = describe_result(
            self.job,
            kind,
            encoder,
            {name: self._info(name) for name in self._done},
            train=train,
            dev=dev,
            evaluation_seconds=time.perf_counter() - started,
            upgrades=self.run.upgrades,
        )
        return self.run.finish(self.model, self.tokenizer, encoder.removed, result)

    def _plan(self, work: list[float]) -> None:
        """Tell how many stages there will be, and how much work each is."""
        self.progress.plan(len(work))
        self.progress.weigh(work)

    # --- stages -----------------------------------------------------------------------------------------------------

    def _stage(
        self, name: str, work: Callable[[], dict[str, Any]], *, shown: int = 1, keeps: bool = True
    ) -> None:
        """Do a stage unless it is done. `work` changes the model in place and returns what to record.

        The weights are kept where the record shows that they changed, by tuning steps or by removed heads; not `keeps`: heads are
        all that goes, and a run that was cut removes them again. `shown` is how many stages of the progress display it stands for.
        """
        info = self.run.stage(name)
        if info is None:
            self._catch_up()
            self.run.forget_others(self._done)
            info = self._measured(work)
            changed = bool(info.get("removed")) or info.get("tuning", {}).get("steps", 0) > 0
            self.run.finish_stage(name, info, self.model if changed and keeps else None)
            self.run.write("plan.json", encoder_of(self.model).removed.to_json())
            self.run.log("stage", stage=name, **info)
        else:
            check_stage(name, self.run.read_stage(name))
            self._behind = True
            self.progress.skip(shown)
        self._done.append(name)

    def _measured(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What some work says of itself, with the time it took and the most of a GPU's memory."""
        started = time.perf_counter()
        self.job.hardware.reset_peak()
        info = work()
        info["seconds"] = round(time.perf_counter() - started, 3)
        if (peak := self.job.hardware.peak_bytes()) is not None:
            info["peak_gpu_bytes"] = peak
        return info

    def _catch_up(self) -> None:
        """Load the weights of the stages that were walked over."""
        if self._behind:
            self.model = self.run.load_weights(self._done, self.model)
            self._behind = False
            if self._scouts is not None:
                remove_remaining(self.model, self._decided())

    def _first_stage(self, rows: tuple[int, ...]) -> None:
        if (reason := notices.untrained_classifier(self.job)) is not None:
            logger.warning("%s", reason)
        self._stage("first", lambda: self._first_tuning(rows))
        expected, found = self.job.expected_start, self._info("first")["digest"]
        # Under heldout a control is tuned on more rows from the start.
        begins_alike = self.job.method.removes_heads or self.job.config.protocol != "heldout"
        if begins_alike and expected not in (None, found):
            raise RunError(
                "the run to match started from other fine-tuned weights than this one; "
                "give both the same --model, seed and settings, or start both from one 'auber finetune' run"
            )

    def _last_stage(self) -> None:
        self._stage("last", lambda: {"tuning": self._tunings.last(self.model).to_json()})

    def _first_tuning(self, rows: tuple[int, ...]) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if self.job.first_tuning:
            info["tuning"] = self._tunings.first(self.model, rows).to_json()
        else:
            require_finite_weights(self.model, "start")
            self.progress.skip(1)
        return {**info, "digest": weights_digest(self.model)}

    def _search_layer(self, layer: int, workers: Workers | None) -> dict[str, Any]:
        """Decide one layer by the method, remove its heads, and tune what is left; pass over one that can lose none."""
        info = self._decide_layer(layer, workers)
        if info["removed"]:
            info["tuning"] = self._tunings.after_layer(self.model, layer).to_json()
        else:
            self.progress.skip(1)
        return info

    def _decide_layer(self, layer: int, workers: Workers | None = None) -> dict[str, Any]:
        """Decide one layer by the method and remove its heads; pass over one that can lose none."""
        encoder = encoder_of(self.model)
        if len(encoder.present(layer)) < 2:
            self.progress.skip(1)
            return {"removed": []}
        rows = self.splits.layers[layer].reward
        self._decisions.warn_of_blindness(layer, self._train.select(rows))
        scorer = self._scorer(layer, rows, workers)
        info = self._decisions.search(
            encoder, scorer, len(rows), self._prior().removed(layer), self._time_pay()
        )
        self.progress.record(layer, layer_numbers(info))
        if info["removed"]:
            remove_heads(self.model, PruningPlan({layer: info["removed"]}))
        return info

    def _timing_stages(self) -> list[str]:
        """The stage that times heads, where their time is paid for."""
        return [TIMING] * (self.job.config.reward.latency > 0)

    def _time_heads(self) -> dict[str, Any]:
        """Measure what a head saves: once, so that a run that was cut goes on by the same number."""
        config, hardware = self.job.config, self.job.hardware
        length = min(config.max_length, encoder_of(self.model).num_positions)
        self.progress.begin("timing heads", LIMITS.repeats)
        saving = measure_saving(
            self.model, hardware, config.reward.latency_rows, length, self.progress.step
        )
        self.progress.end()
        if saving is None:
            return {"timing": None}
        self.progress.say(saving.words(hardware.name))
        return {"timing": saving.to_json()}

    def _time_pay(self) -> float:
        """The points for the time that a removed head saves."""
        timing = self._info(TIMING)["timing"] if TIMING in self._done else None
        return self.job.config.reward.latency * timing["percent_a_head"] if timing else 0.0

    def _choose_prior(self, layers: list[int]) -> dict[str, Any]:
        """The plan that the searches of these layers begin from; nothing is removed yet."""
        encoder, search = encoder_of(self.model), self.job.config.search
        everywhere = range(encoder.num_layers)
        wanted = search.heads or round(
            search.prior_share * sum(len(encoder.present(layer)) for layer in everywhere)
        )
        number = min(wanted, most_to_remove(encoder, everywhere))
        if not number:
            self.progress.skip(1)
            return {"plan": PruningPlan().to_json()}
        self._say(
            f"the search begins from what method {search.prior} removes when told to take {number} heads"
        )
        choice = self._decisions.rank(
            get_method(search.prior), self.model, self._train.select(self.splits.first), number
        )
        plan = PruningPlan(
            {layer: heads for layer, heads in choice.plan.items() if layer in layers}
        )
        return {"plan": plan.to_json(), **choice.details}

    def _prior(self) -> PruningPlan:
        """The plan that the searches begin from."""
        return (
            PruningPlan.from_json(self._info(PRIOR)["plan"])
            if PRIOR in self._done
            else PruningPlan()
        )

    def _spend(self, layers: list[int]) -> dict[str, Any]:
        """Share the heads that are to go out among the layers, and remove them."""
        sizes = {
            layer: {
                len(each["removed"]): (tuple(each["removed"]), each["gain"])
                for each in info["sizes"]
            }
            for layer in layers
            if "sizes" in (info := self._info(layer_stage(layer)))
        }
        wanted = self.job.config.search.heads
        plan, gain = best_plan(wanted, sizes)
        self._say(notices.other_size(wanted, plan.num_removed))
        remove_heads(self.model, plan)
        return {"plan": plan.to_json(), "gain": gain}

    def _scorer(self, layer: int, rows: tuple[int, ...], workers: Workers | None) -> MaskScorer:
        """Who scores a layer's masks on these rows: the model itself, or the scouts."""
        hardware, metric = self.job.hardware, self.job.reward_metric
        if self._scouts is None:
            return make_scorer(
                self.model, layer, self._train.select(rows), metric, hardware, workers
            )
        parts = self._scouts.parts(self._train, rows, self._beside(layer))
        return CrossFitScorer(parts, layer, metric, hardware)

    def _beside(self, layer: int) -> PruningPlan:
        """What is gone in the other layers while the scouts are asked for one: what was decided, else the prior."""
        plan: dict[int, Sequence[int]] = dict(self._prior())
        if not self.job.config.search.heads:  # else they are only known when all layers are
            plan |= self._decided_layers()
        return PruningPlan({other: heads for other, heads in plan.items() if other != layer})

    def _rewind(self, scouts: Scouts) -> dict[str, Any]:
        """Carry the plan out on the origin, and tune it as a start is tuned."""
        plan = encoder_of(self.model).removed
        self.model = scouts.fresh(plan)
        tuning = self._tunings.rewound(self.model)
        return {"plan": plan.to_json(), "tuning": tuning.to_json()}

    def _tune_scout(self, scout: PreTrainedModel, fold: int) -> dict[str, Any]:
        reports = self._tunings.of_scout(fold).all(
            scout, self.job.layers(encoder_of(scout).num_layers)
        )
        steps, seconds = sum(each.steps for each in reports), sum(each.seconds for each in reports)
        return {"scouting": {"tunings": len(reports), "steps": steps, "seconds": round(seconds, 3)}}

    def _decided(self) -> PruningPlan:
        """What the finished stages have decided to remove."""
        if BUDGET in self._done:
            return PruningPlan.from_json(self._info(BUDGET)["plan"])
        return PruningPlan(self._decided_layers())

    def _decided_layers(self) -> dict[int, list[int]]:
        """The heads that go by the layers that were decided, also where there are none."""
        layers = {layer_of(name): self.run.read_stage(name) for name in self._done}
        return {
            layer: read.get("removed", list) for layer, read in layers.items() if layer is not None
        }

    def _choose_plan(self) -> dict[str, Any]:
        """Decide all heads at once by the method, and remove them."""
        rows = self._train.select(self.splits.first)
        choice = self._decisions.rank(self.job.method, self.model, rows, self.job.num_removed or 0)
        remove_heads(self.model, choice.plan)
        return {"removed": choice.plan.to_json(), **choice.details}

    def _tune_only(self, layer: int) -> dict[str, Any]:
        return {"tuning": self._tunings.after_layer(self.model, layer).to_json()}

    def _evaluate(self, rows: EncodedRows, split: str) -> Scores:
        """The scores that are reported; a model that computes no finite numbers has none."""
        scores = evaluate_rows(self.model, rows, self.job.task.metric)
        if not math.isfinite(scores.loss):
            raise ModelError(
                f"evaluating: the loss on {split} must be a finite number, found {scores.loss}: the model's weights are finite "
                "but too large to compute with; give lower learning rates, and as that is another run, another --out"
            )
        return scores

    # --- what a person should know ----------------------------------------------------------------------------------

    def _say(self, words: str | None) -> None:
        if words is not None:
            self.progress.say(words)

    # --- what is known of the stages --------------------------------------------------------------------------------

    def _announce(self, stages: list[str]) -> None:
        """Write down which stages there will be, for who looks on from outside."""
        encoder = encoder_of(self.model)
        self.run.log(
            "planned", stages=stages, layers=encoder.num_layers, heads_per_layer=encoder.num_heads
        )

    def _layers_to_tune(self, layers: list[int]) -> list[int]:
        """Which of these a ranking method is tuned for: another run's, else those that lost heads; all for the control."""
        if not self.job.method.tunes:
            return []
        if self.job.tuned_layers is not None:
            return list(self.job.tuned_layers)
        if not self.job.method.removes_heads:
            return layers
        removed = PruningPlan.from_json(self._info(PLAN)["removed"])
        return [layer for layer in layers if layer in removed]

    def _info(self, stage: str) -> dict[str, Any]:
        info = self.run.stage(stage)
        assert info is not None, f"stage {stage} is done before it is read"
        return info
