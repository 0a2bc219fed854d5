"""Tries a grid of learning rates: each trial is a first tuning on a part of train, scored on the part held out.

A trial is what `auber finetune` would do with these rows and that rate: the model loaded afresh, a classifier drawn from the
seed, the task's own epochs, batch size and length. The held-out rows are drawn by class and by seed, the same for every
rate. With `out` the record is written after each trial; another call with the same file does what is missing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from auber.config import Config, make_config, require_read
from auber.data.encoding import EncodedRows, encode_rows
from auber.data.splits import Indices, make_splits
from auber.data.task import TaskData
from auber.errors import ConfigError, ModelError, RunError, TaskError
from auber.metrics.task_metrics import get_metric
from auber.models import checkpoint
from auber.run import files as run_files
from auber.run import provenance
from auber.run.rates.choice import to_json
from auber.run.rates.grid import Grid
from auber.run.rates.record import Conditions, Record, TaskRecord, Trial, go_on, read_record
from auber.run.starts import check_lengths
from auber.system.distributed import num_processes
from auber.system.files import write_json
from auber.system.locks import HeldError, held
from auber.system.progress import Progress
from auber.system.seeds import derive
from auber.training.devices import Hardware, resolve_hardware
from auber.training.evaluation import evaluate_rows
from auber.training.tuning import DivergedError, tune

# Every setting that a trial depends on, but for those that the grid holds.
SETTINGS = ("max_length", "device", "precision", "threads", "first.epochs", "first.batch_size")


@dataclass(frozen=True)
class _Subject:
    """A task ready to be tuned on."""

    task: TaskData
    config: Config
    train: EncodedRows


def try_rates(
    model: str | Path,
    tasks: Sequence[TaskData],
    grid: Grid,
    *,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> Record:
    """Tune a pretrained encoder (folder or hub name) at every rate of the grid on each task.

    `settings` change those that the preset has for a task (see `SETTINGS`). `out`: the result file. What comes back is the
    whole of it; `choose_rate` says which rate to take.
    """
    progress = progress or Progress()
    configs = _check(model, tasks, preset, settings or {})
    hardware = resolve_hardware(configs[0])
    tokenizer, name, weights = _read_model(model, tasks, configs)
    subjects = {
        task.name: _Subject(
            task, config, encode_rows(tokenizer, task.train, config.max_length, task.is_regression)
        )
        for task, config in zip(tasks, configs, strict=True)
    }
    record = Record(
        command=command,
        conditions=Conditions(
            name, weights, grid.held_out, hardware.device.type, hardware.precision, hardware.threads
        ),
        asked_tasks=tuple(subjects),
        asked_rates=grid.rates,
        asked_seeds=grid.seeds,
        tasks=tuple(_describe(subject, grid) for subject in subjects.values()),
        trials=(),
        provenance=provenance.describe(hardware),
    )
    with _alone(out):
        if out is not None and out.exists():
            record = go_on(read_record(out), record, str(out))
        _keep(
            record, out
        )  # before anything is computed: a file that cannot be written is found out now
        missing, asked = record.missing, len(subjects) * len(grid.rates) * len(grid.seeds)
        if len(missing) < asked:
            progress.say(f"{out}: {asked - len(missing)} of {asked} tunings are there already")
        progress.plan(len(missing))
        for task_name, seed, rate in missing:
            trial = _try(model, subjects[task_name], seed, rate, grid.held_out, hardware, progress)
            record = record.add(trial)
            _keep(record, out)
    return record


def hold_out(task: TaskData, share: float, seed: int) -> tuple[Indices, Indices]:
    """The rows of train to tune on and the rows to score, each class in its share of both; ascending."""
    labels, total = task.train.labels, len(task.train)
    count = int(share * total + 0.5)
    least = max(2, 0 if task.is_regression else len(set(labels)))
    if not least <= count < total:
        raise TaskError(
            f"{task.name}: from {least} to {total - 1} of its {total} rows of train can be held out, "
            f"a share of {share:g} is {count}; choose another --held-out"
        )
    # A reward set that is bounded is drawn by class; here nothing but the bound makes it smaller than train, and what
    # else is drawn, the rows to watch, is left aside.
    rule = {
        "seed": seed,
        "reward.fraction": 1.0,
        "reward.max_rows": count,
        "last.watch_fraction": 0.5,
    }
    held_out = (
        make_splits(labels, make_config("paper", settings=rule), 1, task.is_regression)
        .layers[0]
        .reward
    )
    rest = tuple(sorted(set(range(total)) - set(held_out)))
    lost = set() if task.is_regression else set(labels) - {labels[row] for row in rest}
    if lost:
        assert task.label_names is not None
        raise TaskError(
            f"{task.name}: some rows of each class must be left to tune on, "
            f"all {labels.count(min(lost))} of class '{task.label_names[int(min(lost))]}' would be held out; "
            "add some or choose another --held-out"
        )
    return rest, held_out


def majority_score(tuned: Tensor, held_out: Tensor, task: TaskData) -> float:
    """The score of always giving the most frequent class of the rows tuned on, for regression their mean."""
    if task.is_regression:
        logits = tuned.mean().expand(len(held_out))  # (rows,)
    else:
        answer = torch.bincount(tuned, minlength=task.num_labels).argmax()
        logits = F.one_hot(answer, task.num_labels).expand(len(held_out), -1)  # (rows, classes)
    return float(get_metric(task.metric).compute(logits, held_out))


def _check(
    model: str | Path, tasks: Sequence[TaskData], preset: str, settings: Mapping[str, Any]
) -> list[Config]:
    """The settings of each task, or an error about what cannot be tried."""
    if num_processes() > 1:
        raise ConfigError(
            f"rates are tried in one process, found a group of {num_processes()}; start it without torchrun"
        )
    names = [task.name for task in tasks]
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"rates are tried on different tasks, at least one, found {', '.join(names) or 'none'}"
        )
    configs = [make_config(preset, task=name, settings=settings) for name in names]
    require_read(
        settings,
        SETTINGS,
        "trying rates",
        {"seed": "give --seeds", "first.learning_rate": "give --rates"},
    )
    for name, config in zip(names, configs, strict=True):
        if config.first.epochs == 0:
            raise ConfigError(
                f"settings: first.epochs must be at least 1 to try rates on {name}, found 0"
            )
    if run_files.is_run(model):
        raise ModelError(
            f"{model}: is a run, whose model has seen the rows to hold out; give the pretrained encoder"
        )
    return configs


def _read_model(
    model: str | Path, tasks: Sequence[TaskData], configs: Sequence[Config]
) -> tuple[Any, str, str]:
    """The tokenizer, the name and the digest of an encoder that has no trained classifier and a position for every token."""
    start = load_encoder(model, tasks[0], seed=0)
    if start.is_trained:
        raise ModelError(
            f"{model}: has a trained classifier, which may have seen the rows to hold out; give the pretrained encoder"
        )
    for task, config in zip(tasks, configs, strict=True):
        check_lengths(start.model, start.tokenizer, task, config.max_length, ("train",))
    name = Path(model).resolve().name if Path(model).exists() else str(model)
    return start.tokenizer, name, checkpoint.weights_digest(start.model.base_model)


def load_encoder(
    model: str | Path, task: TaskData, seed: int, device: torch.device | None = None
) -> checkpoint.Classifier:
    """A model loaded afresh, with a classifier for the task drawn from the seed where it has none."""
    return checkpoint.load_classifier(
        model,
        num_labels=task.num_labels,
        label_names=task.label_names,
        is_regression=task.is_regression,
        seed=seed,
        device=device,
    )


def _describe(subject: _Subject, grid: Grid) -> TaskRecord:
    task, config = subject.task, subject.config
    rest, held_out = hold_out(task, grid.held_out, grid.seeds[0])
    return TaskRecord(
        name=task.name,
        metric=task.metric,
        data=task.content_hash,
        rows_tuned=len(rest),
        rows_held_out=len(held_out),
        epochs=config.first.epochs,
        batch_size=config.first.batch_size,
        max_length=config.max_length,
    )


def _try(
    model: str | Path,
    subject: _Subject,
    seed: int,
    rate: float,
    share: float,
    hardware: Hardware,
    progress: Progress,
) -> Trial:
    """One tuning of a model loaded afresh, and its score."""
    task = subject.task
    rest, held_out = (subject.train.select(rows) for rows in hold_out(task, share, seed))
    loaded = load_encoder(model, task, seed, hardware.device).model
    stage, started = _OpenStage(progress), time.perf_counter()
    try:
        steps = tune(
            loaded,
            rest,
            subject.config.replace({"first.learning_rate": rate}).first,
            seed=derive(seed, "tuning/first"),  # as the first tuning of a run draws it
            hardware=hardware,
            stage=f"{task.name} seed {seed} rate {rate:g}",
            progress=stage,
        ).steps
    except (
        DivergedError
    ) as error:  # a rate that is too high is an answer here: what it left is scored like any other
        steps = error.step
    seconds = time.perf_counter() - started
    scores = evaluate_rows(loaded, held_out, task.metric)
    stage.close(f"{task.metric} {100 * scores.score:.2f}")
    return Trial(
        task=task.name,
        seed=seed,
        rate=rate,
        score=scores.score
        if math.isfinite(scores.score)
        else 0.0,  # a correlation with outputs that are no numbers
        loss=scores.loss if math.isfinite(scores.loss) else None,
        one_class=scores.one_class,
        majority=majority_score(rest.labels, held_out.labels, task),
        steps=steps,
        seconds=round(seconds, 3),
    )


@contextmanager
def _alone(out: Path | None) -> Iterator[None]:
    """Be the only call that adds to a file inside the context: each writes all of it, and would lose what the other has added."""
    if out is None:
        yield
        return
    place = Path(os.path.realpath(out))
    with _telling(out):
        place.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(place.parent, f".{place.name}.lock"))
        except HeldError as error:
            # It speaks of the folder, in which others may well be at work.
            raise RunError(f"{out}{str(error).removeprefix(str(place.parent))}") from error
        yield


def _keep(record: Record, out: Path | None) -> None:
    if out is not None:
        with _telling(out):
            write_json(out, to_json(record), follow=True)


@contextmanager
def _telling(out: Path) -> Iterator[None]:
    """Say in one line that a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{out}: cannot be written ({error.strerror}); choose another --out"
        ) from error


class _OpenStage(Progress):
    """Hands a tuning's steps on, and leaves its stage open until the score can be told with it."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def begin(self, stage: str, total: int) -> None:
        """Hand it on."""
        self._progress.begin(stage, total)

    def step(self, done: int, note: str = "") -> None:
        """Hand it on."""
        super().step(done, note)
        self._progress.step(done, note)

    def close(self, note: str) -> None:
        """The stage is over."""
        self._progress.step(self.done, note)
        self._progress.end()
