"""What one run is to do, decided in full before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

from auber.config import Config
from auber.data.task import TaskData
from auber.metrics.task_metrics import smooth_metric
from auber.search.methods import Method
from auber.training.devices import Hardware


@dataclass(frozen=True)
class Job:
    """The task, the start, the settings and the method of a run."""

    task: TaskData
    model_name: str
    config: Config
    hardware: Hardware
    method: Method
    num_removed: int | None  # for ranking methods
    tuned_layers: (
        tuple[int, ...] | None
    )  # the layers tuned after, where another run prescribes them
    first_tuning: bool  # whether the start model still needs it
    expected_start: str | None = (
        None  # the fine-tuned weights another run started from, where they must be the same
    )
    command: str | None = None  # the command line that asked for it, word for word
    has_trained_classifier: bool = (
        True  # whether the start model came with one; else it was drawn at random
    )

    @property
    def reward_metric(self) -> str:
        """The name of the metric whose changes reward."""
        return (
            smooth_metric(self.task.metric)
            if self.config.reward.measure == "smooth"
            else self.task.metric
        )

    def layers(self, num_layers: int) -> list[int]:
        """The layers gone through, in order: those of `search.layers`, or all where the method chooses among all.

        `ConfigError` where the model, which has so many, lacks one of them.
        """
        search, method = self.config.search, self.method
        chooses_among_all = method.choose_layer is None and method.removes_heads
        layers = list(range(num_layers)) if chooses_among_all else search.layers_of(num_layers)
        return layers if search.order == "forward" else layers[::-1]
