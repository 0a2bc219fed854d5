"""The request: what one run is to do. `auber.run.validation` makes it from arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from auber.config import Config
from auber.data.task import TaskData
from auber.metrics.task_metrics import smooth_metric
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.run import provenance
from auber.run.fine_tuned import FineTuned
from auber.run.records import RunIdentity
from auber.run.result_record import ResultRecord
from auber.run.waypoints import Waypoint, find_waypoints
from auber.search.methods import Method
from auber.search.rankings.selection import costs_of
from auber.system.distributed import num_processes
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_USUAL_RATE = 2e-5  # for later tunings of a model that was fine-tuned elsewhere
_DISTILLATION_RATE = 1e-4  # for those that learn from the unpruned model alone


@dataclass(frozen=True)
class Request:
    """What a run is to do."""

    kind: Literal["prune", "finetune"]
    task: TaskData
    start: FineTuned
    config: Config  # with the settings of the method
    hardware: Hardware
    method: Method
    needs_first_tuning: bool
    num_removed: int | None = None  # heads that a ranking removes; None: to the target size
    matched: ResultRecord | None = None  # result of the run that this one is compared with
    pretrained: PreTrainedModel | None = None  # what fold models are trained from
    command: str | None = None  # the command line
    # Of a task without labels, once the unpruned model has answered: its outputs by split, packed.
    answers: Mapping[str, Tensor] | None = None

    @property
    def reward_metric(self) -> str:
        """The name of the metric whose changes are the rewards."""
        is_smooth = self.config.reward.measure == "smooth"
        return smooth_metric(self.task.metric) if is_smooth else self.task.metric

    @property
    def needs_fold_models(self) -> bool:
        """Whether the rewards come from fold models."""
        return self.method.uses_fold_models(self.config.protocol)

    @property
    def tuned_layers(self) -> tuple[int, ...] | None:
        """The layers to tune after; None: those that the method decides one by one.

        The matched run prescribes them. A target size is reached at once, so that there are none.
        """
        if self.matched is not None:
            return self.matched.tuned_layers
        return () if self.config.size.keep else None

    @property
    def sizes(self) -> tuple[float, ...]:
        """The shares to keep if the run makes a model of each, the largest first; else none.

        With a tolerance the first is 1, the unpruned model that the others are compared with.
        """
        size = self.config.size
        if not self.method.removes_heads:
            return ()
        if size.tolerance is not None:
            return (1.0, *(share for share in size.shares if share < 1))
        return size.shares if len(size.shares) > 1 else ()

    def waypoints(self, share: float) -> tuple[Waypoint, ...]:
        """Return the sizes on the way to a share, and the share itself at the end."""
        encoder, config = encoder_of(self.start.model), self.config
        now = costs_of(encoder, config.max_length).share(encoder.removed)
        return find_waypoints(now, share, config.size.step, config.last.epochs)

    def is_taught(self, share: float | None = None) -> bool:
        """Return whether the last tuning, of one of several sizes if a share is given, is taught.

        The teacher is the unpruned model.
        """
        if share is None:
            sizes = self.config.size.shares if self.method.removes_heads else ()
            share = min(sizes, default=1.0)
        teacher = self.config.teacher
        is_small = teacher.below == 1 or share < teacher.below
        return self.task.is_answered or (is_small and bool(teacher.outputs or teacher.hidden))

    @property
    def needs_rate(self) -> bool:
        """Whether a learning rate has to be chosen for tunings whose setting is `auto`."""
        config = self.config
        later = "auto" in (config.layer.learning_rate, config.last.learning_rate)
        is_used = self.needs_first_tuning or self.needs_fold_models or (later and self.method.tunes)
        return config.first.learning_rate == "auto" and is_used

    @property
    def known_rate(self) -> tuple[float, str] | None:
        """The learning rate if it needs no trials, and the reason.

        Trials need a model that has not seen the rows: the pretrained one.
        """
        if self.task.is_answered and self.matched is None:
            return _DISTILLATION_RATE, "the usual one for learning from the unpruned model"
        for result, place in ((self.matched, "the matched run"), (self.start.result, "this model")):
            if result is not None:
                rate = result.learning_rate or result.config.get("first.learning_rate")
                if isinstance(rate, (int, float)):
                    return rate, f"{place} was tuned with it (first.learning_rate)"
        if self.needs_first_tuning or self.pretrained is not None:
            return None
        return _USUAL_RATE, (
            "the usual one, because the model has been fine-tuned elsewhere, and no rows of train "
            "are left to choose it on; set last.learning_rate to change it"
        )

    @property
    def layers(self) -> list[int]:
        """The layers in the order of the search; raise `ConfigError` for missing ones.

        A ranking method chooses among all layers, others go through those of `search.layers`.
        """
        search, num_layers = self.config.search, encoder_of(self.start.model).num_layers
        is_ranking = self.method.choose_layer is None and self.method.removes_heads
        layers = list(range(num_layers)) if is_ranking else search.layers_of(num_layers)
        return layers if search.order == "forward" else layers[::-1]

    def identify(self) -> RunIdentity:
        """Return what a run must have in common with this request to be resumed by it."""
        return RunIdentity(
            kind=self.kind,
            model=self.start.name,
            weights=weights_digest(self.start.model),
            origin=None if self.pretrained is None else weights_digest(self.pretrained),
            task=self.task.name,
            metric=self.task.metric,
            data=self.task.content_hash,
            method=self.method.name,
            heads=self.num_removed,
            tuned_layers=self.tuned_layers,
            device_type=self.hardware.device.type,
            computed_in=self.hardware.precision,
            computed_on_threads=self.hardware.threads,
            # Each process takes a part of every batch, which changes the last bits of sums.
            processes=num_processes(),
            versions=provenance.versions(),
            source=self.start.source,
        )
