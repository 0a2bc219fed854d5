"""Carry out a request: run its stages in a folder, evaluate the model, write the result.

A finished stage is never repeated. A run that was killed skips what is done, loads the newest
weights and goes on. Each stage draws from random generators of its own, so that the numbers do not
depend on where a run was interrupted.

All methods get the same tuning. A ranking removes its units first and then goes through the tunings
of the run it is matched with; a control does so with no head removed. Under protocol crossfit all
layers are decided on fold models, and the plan is then applied to the pretrained model or to the
fine-tuned one.
"""

from __future__ import annotations

import copy
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.data.encoding import encode_split
from auber.errors import RunError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_remaining
from auber.run.answers import answer_texts
from auber.run.decisions import describe_fixed_layers, explain_blindness
from auber.run.effort import Effort
from auber.run.evaluation import evaluate_models
from auber.run.files import check_digest, read_result, read_result_record
from auber.run.finished import find_decided
from auber.run.folder import Run
from auber.run.progress import follow
from auber.run.request import Request
from auber.run.result import choose_size, describe_result
from auber.run.resuming import Resume
from auber.run.stage_record import StageRecord
from auber.run.stages import Stage, declare_strategy
from auber.run.steps import Steps
from auber.search.stages import LAST, size_stage
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pruned:
    """What a run returns."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    plan: PruningPlan
    result: dict[str, Any]


def carry_out(
    request: Request,
    out: str | Path | None,
    *,
    resume: Resume,
    progress: Progress,
    trackers: Sequence[str],
) -> Pruned:
    """Run the stages of a request that are not finished, in a folder or a temporary one."""
    with tempfile.TemporaryDirectory(prefix="auber-") as scratch:
        folder = out or Path(scratch) / "run"
        run = Run(folder, request.identify(), request.config, resume=resume)
        with run.writing(), closing(run):
            if run.is_complete:
                return _load_finished(request, run, progress)
            run.log("resumed" if run.resumed else "started", process=os.getpid())
            with follow(run, request, progress, trackers) as listener:
                request = answer_texts(request, run, listener)
                pipeline = Pipeline(request, run, listener)
                pipeline.run_stages()
                return pipeline.conclude()


def _load_finished(request: Request, run: Run, progress: Progress) -> Pruned:
    result = read_result_record(run.folder)
    progress.say(f"{run.folder} is complete: nothing to do")
    check_digest(run.folder / "model", result.model_sha256)
    model = checkpoint.load(run.folder / "model", device=request.hardware.device)
    plan = encoder_of(model).removed
    return Pruned(model, request.start.tokenizer, plan, read_result(run.folder))


class Pipeline:
    """Runs the stages of a request in a run's folder."""

    def __init__(self, request: Request, run: Run, progress: Progress) -> None:
        self.request, self.run, self.progress = request, run, progress
        self.steps = Steps(request, run, progress)
        self.strategy = declare_strategy(self.steps)
        self._skipped_any = False  # finished stages whose weights are not loaded yet
        run.write("splits.json", self.steps.splits.to_json())
        self._say_what_to_expect()

    def run_stages(self) -> None:
        """Run the stages that are not finished."""
        steps, request, strategy = self.steps, self.request, self.strategy
        evaluation = Effort(request, steps.splits, steps.encoder).evaluation()
        efforts = [effort for stage in strategy.stages for effort in stage.efforts]
        self.progress.plan([*efforts, evaluation])
        self._announce(strategy.stages)
        with steps.scoring():
            for stage in strategy.decide:
                self._run_stage(stage)
                if stage.name == "first":
                    self._check_same_start()
                    steps.check_learned()
        if steps.fold_models is not None:
            steps.fold_models.release()
        self._announce_tunings()
        with steps.tunings.reusing_captures():
            for stage in strategy.tune:
                if stage.is_needed():
                    self._run_stage(stage)
                    self._say_loss(stage)
                else:
                    self.progress.skip(len(stage.efforts))
        if request.sizes:
            self._announce_tunings()  # without those that no size needed any more

    def conclude(self) -> Pruned:
        """Evaluate the models, once on dev, and write them and the result."""
        self._load_newest_weights()
        request, steps = self.request, self.steps
        tokenizer, task = request.start.tokenizer, request.task
        started = time.perf_counter()
        dev_rows = encode_split(tokenizer, task, "dev", request.config.max_length)
        device = request.hardware.device
        reason = explain_blindness(task.metric, task.num_labels, dev_rows, device)
        if reason is not None:
            logger.warning("dev: %s; give more rows", reason)
        made, before = evaluate_models(steps, self.run, dev_rows)
        model = choose_size(made, steps.done)
        self.run.log("dev_evaluation", score=model.dev.score, rows=model.dev.rows)
        result = describe_result(
            request,
            made,
            before,
            steps.done,
            evaluation_seconds=time.perf_counter() - started,
            upgrades=self.run.upgrades,
        )
        numbers = {
            "result/dev": result["dev"]["score"],
            "result/train": result["train"]["score"],
            "result/gap": result["gap"],
            "result/heads_removed": result["heads"]["removed"],
        }
        self.progress.record(0, numbers)
        result = self.run.finish([each.model for each in made], tokenizer, result)
        return Pruned(model.model, tokenizer, encoder_of(model.model).removed, result)

    def _run_stage(self, stage: Stage) -> None:
        """Run a stage unless it is finished."""
        record, end = self.run.stage(stage.name), self.progress.finished + len(stage.efforts)
        if record is None:
            self._load_newest_weights()
            record = self._finish(stage)
        else:
            self._skipped_any = True
        self.progress.skip(end - self.progress.finished)  # what there was no need to do
        self.steps.done[stage.name] = record
        if stage.name == "first" and self.request.kind == "prune":
            model = self.steps.model
            if self._skipped_any:
                model = self.run.load_weights(["first"], model)
            self.steps.fine_tuned = copy.deepcopy(model).cpu()

    def _finish(self, stage: Stage) -> StageRecord:
        """Run a stage; its weights are stored if they changed, by tuning or by removing units."""
        steps, kept = self.steps, set(self.steps.done)
        if stage.fold is not None:  # fold models do not depend on each other
            kept |= {each.name for each in self.strategy.decide if each.fold is not None}
        if stage.makes_size:  # nor do sizes
            kept |= {each.name for each in self.strategy.tune}
        self.run.forget_others(kept)
        info = self._measure(stage)
        if stage.fold is not None:
            assert steps.fold_models is not None
            fold_model = steps.fold_models.load(stage.fold)
            record = self.run.finish_stage(stage.name, info, fold_model, is_apart=True)
        elif stage.makes_size:
            record = self.run.finish_stage(stage.name, info, steps.model, is_apart=True)
        else:
            changed = bool(info.get("removed")) or info.get("tuning", {}).get("steps", 0) > 0
            model = steps.model if changed and stage.keeps_weights else None
            record = self.run.finish_stage(stage.name, info, model)
            self.run.write("plan.json", steps.encoder.removed.to_json())
        self.run.log("stage", stage=stage.name, **info)
        return record

    def _measure(self, stage: Stage) -> dict[str, Any]:
        """Run a stage; return its record with the time it took and the peak of GPU memory."""
        hardware = self.request.hardware
        started = time.perf_counter()
        hardware.reset_peak()
        info = stage.run()
        info["seconds"] = round(time.perf_counter() - started, 3)
        if (peak := hardware.peak_bytes()) is not None:
            info["peak_gpu_bytes"] = peak
        return info

    def _load_newest_weights(self) -> None:
        """Load the model at the end of the stages that were skipped."""
        if self._skipped_any:
            steps = self.steps
            steps.model = self.run.load_weights(list(steps.done), steps.model)
            remove_remaining(steps.model, find_decided(steps.done))
            self._skipped_any = False

    def _say_loss(self, stage: Stage) -> None:
        """Say whether a size is within the tolerance."""
        found, tolerance = self.steps.done[stage.name].held_out, self.request.config.size.tolerance
        if found is None or stage.name == size_stage(LAST, 1.0):
            return
        _, _, share = stage.name.partition("-")
        verdict = "within" if found.is_within else "not shown to be within"
        self.progress.say(
            f"keep {share}: {found.loss:.1f} points lost on {found.rows} held-out rows, at most "
            f"{found.bound:.1f} (95 %): {verdict} {tolerance:g}"
        )

    def _check_same_start(self) -> None:
        """Raise `RunError` if the matched run started from another fine-tuned model."""
        request = self.request
        # Under heldout a control is tuned on more rows from the start.
        is_comparable = request.method.removes_heads or request.config.protocol != "heldout"
        if request.matched is None or not is_comparable:
            return
        if request.matched.start != self.steps.done["first"].digest:
            raise RunError(
                "the run to match started from other fine-tuned weights than this one; give both "
                "the same --model, seed and settings, or start both from one 'auber finetune' run"
            )

    def _announce_tunings(self) -> None:
        """Announce the stages again, without the tunings that are not needed."""
        tune = [
            stage
            for stage in self.strategy.tune
            if stage.name in self.steps.done or stage.is_needed()
        ]
        self._announce((*self.strategy.decide, *tune))

    def _announce(self, stages: Sequence[Stage]) -> None:
        """Log the stages to come, for 'auber watch'."""
        encoder = self.steps.encoder
        self.run.log(
            "planned",
            stages=[stage.name for stage in stages],
            layers=encoder.num_layers,
            heads_per_layer=encoder.num_heads,
        )

    def _say_what_to_expect(self) -> None:
        request, rows = self.request, self.steps.train
        if rows.num_cut:
            most = request.config.max_length
            self.progress.say(
                f"{rows.num_cut} of {len(rows)} train rows are cut to {most} tokens (max_length)"
            )
        if request.method.removes_heads:
            fixed = describe_fixed_layers(self.steps.encoder, request.layers)
            if fixed is not None:
                self.progress.say(fixed)
        if self.steps.fold_models is not None:
            self.progress.say(
                f"{len(self.steps.fold_models)} fold models: each is tuned on all rows but those "
                "that it scores"
            )
        first = request.config.first
        is_trained = request.needs_first_tuning and first.epochs > 0
        if not request.start.has_classifier and not is_trained:
            found, remedy = "first.when is never", "leave it at auto"
            if request.needs_first_tuning:
                found, remedy = "first.epochs is 0", "raise it"
            logger.warning(
                "the classifier is untrained, because the model came without one and %s: scores "
                "say nothing about the task or its heads; %s, or start from a fine-tuned model",
                found,
                remedy,
            )
