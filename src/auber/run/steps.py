"""What each stage of a run does to the model, and what it records.

`auber.run.stages` declares which of these steps a run consists of.
"""

from __future__ import annotations

import copy
import torch
from auber.models import checkpoint
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from auber.data.encoding import EncodedRows, encode_split
from auber.data.splits import make_splits
from auber.errors import ModelError
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.run.decisions import Decisions, best_plan
from auber.run.finished import find_decided, find_decided_layers, find_plan
from auber.run.fold_models import FoldModels
from auber.run.folder import Run
from auber.run.learned import choose_rows, describe_failure, measure_learning
from auber.run.request import Request
from auber.run.stage_record import StageRecord
from auber.run.targets import most_to_remove
from auber.run.trials import choose_rate
from auber.run.tunings import Tunings
from auber.scoring import (
    CrossFitScorer,
    LayerScorer,
    MaskScorer,
    ShardedScorer,
    Workers,
    open_workers,
)
from auber.search.registry import get_method
from auber.search.stages import (
    ANSWERS,
    PRIOR,
    RATE,
    TIMING,
    layer_stage,
)
from auber.system.progress import Progress
from auber.training.distillation import Teacher
from auber.training.latency import LIMITS, measure_saving
from auber.training.monitor import require_finite_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Steps:
    """The steps of a run on its model; `done` has the records of the finished stages."""

    def __init__(self, request: Request, run: Run, progress: Progress) -> None:
        self.request, self.progress, self.run = request, progress, run
        self.model = request.start.model.to(request.hardware.device)
        # What the first stage leaves, on the CPU: the beginning of all that is compared.
        self.fine_tuned: PreTrainedModel | None = None
        self.done: dict[str, StageRecord] = {}
        if (answers := run.stage(ANSWERS)) is not None:
            self.done[ANSWERS] = answers
        task, config = request.task, request.config
        self.train = encode_split(request.start.tokenizer, task, "train", config.max_length)
        # Only folds whose models are tuned on the others need care for shared texts.
        tunes_folds = request.needs_fold_models and not task.is_answered
        connected = task.train if tunes_folds else None
        self.splits = make_splits(
            task.train.labels, config, self.encoder.num_layers, not task.has_classes, connected
        )
        taught = request.answers
        self.tunings = Tunings(
            request,
            self.train if taught is None else self.train.with_taught(taught["train"]),
            self.splits,
            progress,
            find_rate=self._find_rate,
            find_teacher=self._find_teacher,
        )
        self._teacher: Teacher | None = None
        self.fold_models: FoldModels | None = None
        if request.pretrained is not None:
            self.fold_models = FoldModels(
                run, request.pretrained, self.splits.folds, request.hardware.device
            )
        self.decisions = Decisions(request, run, progress)
        self._workers: Workers | None = None

    @property
    def encoder(self) -> Encoder:
        """The encoder of the model."""
        return encoder_of(self.model)

    @property
    def first_rows(self) -> EncodedRows:
        """The rows of the first tuning, on which rankings are computed too."""
        return self.train.select(self.splits.first)

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Inside the context, the workers that share the scoring are at hand."""
        request = self.request
        if request.method.choose_layer is None or self.fold_models is not None:
            yield
            return
        fewest = min(len(self.splits.layers[layer].reward) for layer in request.layers)
        with open_workers(request.config, request.hardware, fewest) as self._workers:
            yield

    # Tuning

    def choose_rate(self) -> dict[str, Any]:
        """Choose the learning rate that `auto` stands for."""
        request, config = self.request, self.request.config
        if (known := request.known_rate) is not None:
            rate, reason = known
            self.progress.say(f"learning rate {rate:g}: {reason}")
            return {"rate": rate}
        task = request.task
        choice = choose_rate(
            request.pretrained or self.model,
            self.train,
            self.splits.first,
            task.train.labels if task.has_classes else None,
            task.metric,
            config.first,
            seed=config.seed,
            hardware=request.hardware,
            progress=self.progress,
        )
        self.progress.say(choice.describe())
        return {"rate": choice.rate, "rate_trials": [trial.to_json() for trial in choice.trials]}

    def _find_rate(self) -> float:
        """Return the learning rate of the tunings whose setting is `auto`."""
        rate = self.request.config.first.learning_rate
        if rate == "auto":
            rate = self.done[RATE].rate or 0.0
        return rate

    def _find_teacher(self) -> Teacher:
        """Return the fine-tuned model as a teacher."""
        if self._teacher is None:
            assert self.fine_tuned is not None, "the first stage is finished"
            settings, model = self.request.config.teacher, self.fine_tuned
            import os

            if folder := os.environ.get("AUBER_TEACHER"):
                model = checkpoint.load(folder, device=torch.device("cpu"))
            if self.request.task.is_answered:
                model = model if settings.hidden or settings.copies else None
                settings = settings.model_copy(update={"outputs": 1.0})
            self._teacher = Teacher(model, settings, self.request.hardware)
        return self._teacher

    def tune_first(self) -> dict[str, Any]:
        """Tune the model on the task, if it needs it, and record its digest."""
        request, info = self.request, dict[str, Any]()
        if request.needs_first_tuning:
            # A control is compared with the model as anybody would tune it, without held-out rows.
            is_control = request.kind == "prune" and not request.method.removes_heads
            rows = self.splits.original_first if is_control else self.splits.first
            info["tuning"] = self.tunings.first(self.model, rows).to_json()
        else:
            require_finite_weights(self.model, "start")
        info["digest"] = weights_digest(self.model)
        if not request.task.is_answered:  # else the labels are the model's own
            chosen = self.train.select(choose_rows(self.splits.first, request.config.seed))
            found = measure_learning(self.model, chosen, request.task.metric)
            info["learned"] = found.to_json()
        return info

    def check_learned(self) -> None:
        """Raise `ModelError` if the fine-tuned model learned nothing and the settings require it.

        A control is not stopped: how it does is its result.
        """
        request, found = self.request, self.done["first"].learned
        if not (request.method.removes_heads and request.config.first.require_learned):
            return
        if found is not None and not found.learned:  # None: an earlier version did not measure it
            raise ModelError(
                f"first tuning: {describe_failure(found, request.task.metric)}, so nothing shows "
                "what it can do without; give another first.learning_rate, more first.epochs or "
                "another --model, or set first.require_learned=false, and as that is another run, "
                "another folder for --out"
            )

    def tune_after(self, layer: int) -> dict[str, Any]:
        """Tune after a layer that was decided before."""
        return {"tuning": self.tunings.after_layer(self.model, layer).to_json()}

    def tune_last(self) -> dict[str, Any]:
        """Run the last tuning."""
        return {"tuning": self.tunings.last(self.model).to_json()}

    def tune_fold_model(self, fold: int) -> dict[str, Any]:
        """Train the model that scores the rows of a fold."""
        assert self.fold_models is not None
        model, reports = self.fold_models.make(fold), []
        if not self.request.task.is_answered:  # else it is the unpruned model, which learned none
            tunings = Tunings(
                self.request, self.train, self.splits, self.progress, fold, self._find_rate
            )
            reports = tunings.run_all(model, self.request.layers)
        return {
            "scouting": {
                "tunings": len(reports),
                "steps": sum(report.steps for report in reports),
                "seconds": round(sum(report.seconds for report in reports), 3),
            }
        }

    def rewind(self) -> dict[str, Any]:
        """Remove the decided heads from the pretrained model instead, and repeat its tuning."""
        assert self.fold_models is not None
        plan = self.encoder.removed
        self.model = self.fold_models.copy_pretrained(plan)
        self.fold_models.release()
        tuning = self.tunings.first_after_rewind(self.model)
        return {"plan": plan.to_json(), "tuning": tuning.to_json()}

    # Deciding

    def time_heads(self) -> dict[str, Any]:
        """Measure the time that a head takes, once, so that a resumed run uses the same number."""
        config, hardware = self.request.config, self.request.hardware
        length = min(config.max_length, self.encoder.num_positions)
        self.progress.begin("timing heads", LIMITS.repeats)
        saving = measure_saving(
            self.model, hardware, config.reward.latency_rows, length, self.progress.step
        )
        self.progress.end()
        if saving is None:
            return {"timing": None}
        self.progress.say(saving.words(hardware.name))
        return {"timing": saving.to_json()}

    def choose_prior(self) -> dict[str, Any]:
        """Choose the plan that the searches start from; nothing is removed yet."""
        encoder, search, layers = self.encoder, self.request.config.search, self.request.layers
        everywhere = range(encoder.num_layers)
        present = sum(len(encoder.present(layer)) for layer in everywhere)
        wanted = search.heads or round(search.prior_share * present)
        number = min(wanted, most_to_remove(encoder, everywhere))
        if not number:
            return {"plan": {}}
        self.progress.say(
            f"the search starts from the {number} heads that method {search.prior} would remove"
        )
        method = get_method(search.prior)
        choice = self.decisions.rank(method, self.model, self.first_rows, number)
        plan = {layer: heads for layer, heads in choice.plan.heads.items() if layer in layers}
        return {"plan": PruningPlan(plan).to_json(), **choice.details}

    def choose_plan(self) -> dict[str, Any]:
        """Decide all units at once, and remove them."""
        request = self.request
        choice = self.decisions.rank(
            request.method, self.model, self.first_rows, request.num_removed
        )
        remove(self.model, choice.plan)
        return {"removed": choice.plan.to_json(), **choice.details}

    def decide(self, layer: int) -> dict[str, Any]:
        """Decide one layer and remove its heads; skip a layer that can lose none."""
        encoder = self.encoder
        if len(encoder.present(layer)) < 2:
            return {"removed": []}
        rows = self.splits.layers[layer].reward
        self.decisions.warn_of_blindness(layer, self.train.select(rows))
        info = self.decisions.search(
            encoder,
            self._make_scorer(layer, rows),
            len(rows),
            find_plan(self.done, PRIOR).heads.get(layer, ()),
            self._find_time_pay(),
        )
        self.progress.record(layer, _describe_search(info))
        if info["removed"]:
            remove(self.model, PruningPlan({layer: info["removed"]}))
        return info

    def decide_and_tune(self, layer: int) -> dict[str, Any]:
        """Decide one layer, remove its heads, and tune the model if it lost any."""
        info = self.decide(layer)
        return info | self.tune_after(layer) if info["removed"] else info

    def distribute_heads(self) -> dict[str, Any]:
        """Distribute the given number of heads over the layers, and remove them."""
        sizes = {}
        for layer in self.request.layers:
            found = self.done[layer_stage(layer)].sizes or ()
            if found:
                sizes[layer] = {len(each.removed): (each.removed, each.gain) for each in found}
        wanted = self.request.config.search.heads
        plan, gain = best_plan(wanted, sizes)
        if plan.num_heads != wanted:
            self.progress.say(
                f"{plan.num_heads} heads are removed, the nearest number to {wanted} that the "
                "scored masks allow; raise agent.episodes to score more"
            )
        remove(self.model, plan)
        return {"plan": plan.to_json(), "gain": gain}

    def is_tuned(self, layer: int) -> bool:
        """Return whether the model is tuned after a layer.

        The matched run prescribes it; otherwise the layers that lost heads, and all for a control.
        Without epochs, there is no such tuning.
        """
        if not self.request.config.layer.epochs:
            return False
        if self.request.tuned_layers is not None or not self.request.method.removes_heads:
            return True
        return layer in find_decided(self.done).heads

    def copy_fine_tuned(self) -> PreTrainedModel:
        """Return a copy of the fine-tuned model on the run's device."""
        assert self.fine_tuned is not None, "the first stage is finished"
        return copy.deepcopy(self.fine_tuned).to(self.request.hardware.device)

    def _find_time_pay(self) -> float:
        """Return the points for the time that a removed head saves."""
        timing = self.done[TIMING].timing if TIMING in self.done else None
        return self.request.config.reward.latency * timing.percent_a_head if timing else 0.0

    def _make_scorer(self, layer: int, rows: tuple[int, ...]) -> MaskScorer:
        """Return the scorer of a layer's masks: the model itself or the fold models."""
        hardware, metric = self.request.hardware, self.request.reward_metric
        if self.fold_models is None:
            given = (self.model, layer, self.train.select(rows), metric, hardware)
            return ShardedScorer(*given, self._workers) if self._workers else LayerScorer(*given)
        # In the other layers, fold models lack what was decided, or else what the prior removes.
        plan: dict[int, Sequence[int]] = dict(find_plan(self.done, PRIOR).heads)
        if not self.request.config.search.heads:  # with a number, layers are decided at the end
            plan |= find_decided_layers(self.done)
        plan.pop(layer, None)
        parts = self.fold_models.make_parts(self.train, rows, PruningPlan(plan))
        return CrossFitScorer(parts, layer, metric, hardware)


def _describe_search(info: dict[str, Any]) -> dict[str, float]:
    """Return the numbers to report of a searched layer."""
    search = info["search"]
    names = (
        "rewards_asked",
        "rewards_computed",
        "seconds",
        "given_score",
        "unpruned_score",
        "best_score",
    )
    numbers = {f"layers/{name}": search[name] for name in names if name in search}
    return {"layers/removed": len(info["removed"]), **numbers}
