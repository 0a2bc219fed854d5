"""One task, seed and encoder of an experiment: its rows, with development rows set apart from train, and its tunings.

Dev is never read. Every tuning draws from the seed that a run of `auber` draws it from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auber import seeds
from auber.config import Config, make_config
from auber.devices import Hardware, resolve_hardware
from auber.encoders import encoder_of
from auber.evaluation import predict
from auber.metrics import get_metric
from auber.rates.tunings import hold_out, load_encoder
from auber.splits import Splits, make_splits
from auber.tasks import load_task
from auber.tasks.base import TaskData
from auber.tasks.encoding import EncodedRows, encode_rows
from auber.tuning import KeptSteps, tune

MEASURES = ("metric", "soft", "likelihood", "calibrated")


def soft_metric(logits: Tensor, labels: Tensor, metric: str) -> Tensor:
    """The metric of a confusion matrix that counts probabilities in the place of decisions."""
    probabilities = logits.float().softmax(-1).double()  # (rows, classes)
    truth = torch.nn.functional.one_hot(labels, logits.shape[-1]).double()  # (rows, classes)
    return get_metric(metric).finish(truth.T @ probabilities)


def row_likelihoods(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-likelihood of each row's label: (rows,)."""
    return logits.float().log_softmax(-1).gather(1, labels[:, None])[:, 0].double()


def calibrated_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of `calibrated_rows`."""
    return calibrated_rows(logits, labels).mean()


def calibrated_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-likelihood of each row under the best scale of the logits, not below 0, and the best bias of each class: (rows,).

    A mask that only makes the model surer, less sure or fonder of a class gains nothing by it: any tuning sets that right. Where
    the best scale would be negative the logits tell nothing, and the classes' frequencies remain.
    """
    fit = calibration(logits, labels)
    truth = torch.nn.functional.one_hot(labels, logits.shape[1]).double()  # (rows, classes)
    of_classes = truth.mean(0).log()[labels]  # (rows,)
    return torch.where(fit[0] > 0, row_likelihoods(logits.double() * fit[0] + fit[1:], labels), of_classes)


def calibration(logits: Tensor, labels: Tensor) -> Tensor:
    """The scale of the logits and the bias of each class under which the labels are likeliest: (1 + classes,)."""
    num_rows, num_classes = logits.shape
    logits = logits.double()
    truth = torch.nn.functional.one_hot(labels, num_classes).double()  # (rows, classes)
    biases = torch.eye(num_classes, dtype=torch.float64, device=logits.device).expand(num_rows, -1, -1)
    features = torch.cat([logits[..., None], biases], -1)  # (rows, classes, 1 + classes)
    ridge = 1e-6 * torch.eye(num_classes + 1, dtype=torch.float64, device=logits.device)  # all biases may move together
    fit = torch.zeros(num_classes + 1, dtype=torch.float64, device=logits.device)
    fit[0] = 1
    for _ in range(8):  # Newton's steps; the likelihood is concave in the fit
        probabilities = (features @ fit).softmax(-1)  # (rows, classes)
        slope = torch.einsum("rc,rcf->f", truth - probabilities, features) / num_rows
        mean = torch.einsum("rc,rcf->rf", probabilities, features)  # (rows, 1 + classes)
        curve = torch.einsum("rc,rcf,rcg->fg", probabilities, features, features) - mean.T @ mean
        step, _ = torch.linalg.solve_ex(
            curve / num_rows + ridge, slope
        )  # checks nothing, so that nobody waits for a GPU
        fit = fit + step.clamp(-1, 1)
    return fit


def measure(name: str, logits: Tensor, labels: Tensor, metric: str) -> Tensor:
    """One of `MEASURES`, a float64 scalar on the logits' device."""
    if name == "metric":
        return get_metric(metric).compute(logits, labels)
    if name == "calibrated":
        return calibrated_likelihood(logits, labels)
    return soft_metric(logits, labels, metric) if name == "soft" else row_likelihoods(logits, labels).mean()


def measures(logits: Tensor, labels: Tensor, metric: str) -> list[float]:
    """All of `MEASURES`, in points."""
    found = torch.stack([measure(name, logits, labels, metric) for name in MEASURES])
    return (100 * found).tolist()


@dataclass(frozen=True, eq=False)
class Subject:
    """What the experiments are made on."""

    model: str  # folder of a pretrained encoder
    task: TaskData
    config: Config
    hardware: Hardware
    rows: EncodedRows  # what may be tuned on
    develop: EncodedRows  # what is only scored, at the end
    num_layers: int
    kept: KeptSteps = field(default_factory=KeptSteps)  # of the model tuned last

    @cached_property
    def splits(self) -> Splits:
        """Mini-train, reward and watch rows among `rows`, as a run draws them."""
        return make_splits(self.rows.labels.tolist(), self.config, self.num_layers, not self.task.has_classes)

    def start(self) -> Any:
        """The pretrained encoder with a new classifier."""
        return load_encoder(self.model, self.task, self.config.seed, self.hardware.device).model

    def first_tuned(self, rows: Iterable[int]) -> Any:
        """The start after the first tuning on some of the rows."""
        model = self.start()
        self.tune(model, rows, self.config.first, "first")
        return model

    def all_tuned(self, rows: Iterable[int]) -> Any:
        """The start after all tunings that a run's model gets, on those of their rows that are among these."""
        own, model = np.fromiter(rows, np.int64), self.start()
        last, watched = (np.intersect1d(some, own) for some in (self.splits.last_train, self.splits.last_watch))
        self.tune(model, own, self.config.first, "first")
        for layer, split in enumerate(self.splits.layers):
            self.tune(model, np.intersect1d(split.mini_train, own), self.config.layer, "layer", layer)
        self.tune(model, last, self.config.last, "last", watched=watched)
        return model

    def tune(
        self,
        model: Any,
        rows: Iterable[int],
        settings: Any,
        purpose: str,
        layer: int | None = None,
        watched: Iterable[int] = (),
    ) -> None:
        """Tune a model in place; the last tuning is watched on these rows, by default on its own, as in a run."""
        watched = tuple(int(row) for row in watched) or self.splits.last_watch
        watch = (self.rows.select(watched), self.task.metric) if purpose == "last" else None
        tune(
            model,
            self.rows.select(tuple(int(row) for row in rows)),
            settings,
            seed=seeds.derive(self.config.seed, f"tuning/{purpose}", layer),
            hardware=self.hardware,
            watch=watch,
            kept=self.kept,
        )

    def scores(self, model: Any, rows: EncodedRows) -> list[float]:
        """All measures of a model on rows."""
        return measures(predict(model, rows), rows.labels.to(self.hardware.device), self.task.metric)


def make_subject(
    model: str, task: str, data: Path | None, settings: dict[str, Any], develop: float, preset: str
) -> Subject:
    """Read the task and cut development rows off its train rows, by class and seed."""
    loaded = load_task(task, data=data)
    config = make_config(preset, task=task, settings={"threads": 1, "protocol": "seen", **settings})
    hardware = resolve_hardware(config)
    start = load_encoder(model, loaded, config.seed, hardware.device)
    train = encode_rows(start.tokenizer, loaded.train, config.max_length, loaded.is_regression)
    tuned, held_out = hold_out(loaded, develop, config.seed)
    num_layers = encoder_of(start.model).num_layers
    return Subject(model, loaded, config, hardware, train.select(tuned), train.select(held_out), num_layers)


def make_folds(num_rows: int, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, by chance and as even as can be: (rows,)."""
    return seeds.generator(seed, "experiment/folds").permutation(num_rows) % folds
