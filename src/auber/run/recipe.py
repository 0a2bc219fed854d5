"""Choose the learning rate and the epochs of the first tuning on held-out rows of train.

All rates are tried for the fewest epochs, the better half of them for the next number of epochs,
and so on (successive halving). A trial is the first tuning of a run, on most of the rows that the
run may use for it; it is scored on the others, which are drawn by class and by seed. The dev set is
never used. The trials are stored in `tuning.json` of the run's folder, so that they can be resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from auber.config import Config
from auber.data.encoding import EncodedRows, encode_split
from auber.data.splits import hold_out, make_splits
from auber.data.task import TaskData
from auber.errors import ConfigError, ModelError, RunError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.run.files import is_run
from auber.run.fine_tuned import check_lengths
from auber.run.folder import TUNING, check_place
from auber.system.distributed import num_processes
from auber.system.files import write_json
from auber.system.locks import held
from auber.system.progress import Progress
from auber.system.records import Count, Name, Number, Record, read
from auber.system.seeds import derive
from auber.training.devices import Hardware, resolve_hardware
from auber.training.evaluation import evaluate_rows
from auber.training.tuning import DivergedError, tune

RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
EPOCHS = (3, 6, 10)
HELD_OUT = 0.2  # share of the rows


class Trial(Record):
    """One tuning and its score on the held-out rows."""

    learning_rate: Number
    epochs: Count
    score: Number | None  # None if it diverged or the score is not a number
    one_class: bool = False  # every row got the same answer
    seconds: Number

    @property
    def rank(self) -> tuple[float, int, float]:
        """Return the sorting key: highest score, then fewest epochs, then smallest rate."""
        score = -math.inf if self.score is None else self.score
        return -score, self.epochs, self.learning_rate


class RecipeRecord(Record):
    """The trials of a choice, and what must not change between them: `tuning.json`."""

    format: Literal[1] = 1
    model: Name
    weights: str  # digest of the encoder
    task: Name
    data: str  # digest of all rows
    metric: Name
    seed: Count
    protocol: Name
    max_length: Count
    batch_size: Count
    device_type: Name
    precision: Name
    threads: Count
    rates: tuple[Number, ...]
    epochs: tuple[Count, ...]
    rows_tuned: Count
    rows_held_out: Count
    trials: Annotated[tuple[Trial, ...], Field(max_length=1000)] = ()

    @property
    def best(self) -> Trial:
        """Return the best trial."""
        return min(self.trials, key=lambda trial: trial.rank)

    def apply(self, config: Config) -> Config:
        """Return the settings with the chosen learning rate and epochs."""
        best = self.best
        return config.replace(
            {"first.learning_rate": best.learning_rate, "first.epochs": best.epochs}
        )

    def describe(self) -> str:
        """Return the choice in one line."""
        best = self.best
        caution = "; every row got the same answer, so nothing was learned" * best.one_class
        return (
            f"tuning: learning rate {best.learning_rate:g} and {best.epochs} epochs, "
            f"{self.metric} {100 * (best.score or 0.0):.2f} on {self.rows_held_out} held-out rows "
            f"of train, the best of {len(self.trials)} trials{caution}"
        )


def choose_recipe(
    model: str | Path,
    task: TaskData,
    config: Config,
    folder: Path,
    *,
    rates: Sequence[float] = RATES,
    epochs: Sequence[int] = EPOCHS,
    resume: bool = False,
    progress: Progress | None = None,
) -> RecipeRecord:
    """Return the trials for a pretrained model (folder or hub name); they are kept in `folder`."""
    progress = progress or Progress()
    rates, epochs = _require_grid(rates, epochs)
    _check_folder(folder, resume=resume)
    if num_processes() > 1:
        raise ConfigError(
            f"--tune works in one process, found {num_processes()}; tune first without torchrun"
        )
    hardware = resolve_hardware(config)
    load, tuned, scored, record = _prepare(model, task, config, hardware, rates, epochs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder):
            record = _resume(folder / TUNING, record)
            done = {(trial.learning_rate, trial.epochs): trial for trial in record.trials}
            progress.plan(sum(_round_sizes(len(rates), len(epochs))) - len(done))

            def run_trial(rate: float, num_epochs: int) -> Trial:
                nonlocal record
                if (rate, num_epochs) not in done:
                    changed = {"first.learning_rate": rate, "first.epochs": num_epochs}
                    trial = _try(load(), tuned, scored, task, config.replace(changed), progress)
                    record = record.model_copy(update={"trials": (*record.trials, trial)})
                    write_json(folder / TUNING, record.to_json())
                    return trial
                return done[rate, num_epochs]

            halve(rates, epochs, run_trial)
    except OSError as error:
        raise RunError(
            f"{folder}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    if record.best.score is None:
        raise ConfigError(
            f"--tune: no trial has a score, at learning rates {', '.join(map(str, rates))}; "
            "give smaller --rates"
        )
    return record


def parse_rates(text: str | None) -> tuple[float, ...]:
    """Return the learning rates of `1e-5,2e-5`, the default ones for None."""
    if text is None:
        return RATES
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--rates must be numbers with commas between, such as 1e-5,2e-5, found '{text}'"
        ) from error


def parse_epochs(text: str | None) -> tuple[int, ...]:
    """Return the numbers of epochs of `3,6,10`, the default ones for None."""
    if text is None:
        return EPOCHS
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise ConfigError(
            f"--epochs must be whole numbers with commas between, such as 3,6,10, found '{text}'"
        )
    return tuple(int(word) for word in words)


def halve(
    rates: Sequence[float], epochs: Sequence[int], run_trial: Callable[[float, int], Trial]
) -> list[Trial]:
    """Return the trials of successive halving: fewer rates for more epochs."""
    trials: list[Trial] = []
    for num_epochs in epochs:
        found = [run_trial(rate, num_epochs) for rate in rates]
        trials += found
        better = sorted(found, key=lambda trial: trial.rank)[: -(-len(found) // 2)]
        rates = [trial.learning_rate for trial in better]
    return trials


def _round_sizes(num_rates: int, num_rounds: int) -> list[int]:
    sizes = [num_rates]
    while len(sizes) < num_rounds:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def _require_grid(
    rates: Sequence[float], epochs: Sequence[int]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return both in ascending order."""
    if not rates or len(set(rates)) < len(rates) or not all(0 < rate < 1 for rate in rates):
        raise ConfigError(
            f"--rates must be different numbers between 0 and 1, such as 1e-5,2e-5, found {rates}"
        )
    if not epochs or len(set(epochs)) < len(epochs) or not all(0 < n < 10_000 for n in epochs):
        raise ConfigError(
            f"--epochs must be different whole numbers from 1, such as 3,6,10, found {epochs}"
        )
    return tuple(sorted(rates)), tuple(sorted(epochs))


def _check_folder(folder: Path, *, resume: bool) -> None:
    check_place(folder, resume=resume)
    if (folder / TUNING).is_file() and not resume:
        raise RunError(
            f"{folder}: holds the trials of --tune; add --resume to continue, or choose another "
            "--out"
        )
    if is_run(folder) and not (folder / TUNING).is_file():
        raise RunError(f"{folder}: its run was begun without --tune; leave --tune out")


def _prepare(
    model: str | Path,
    task: TaskData,
    config: Config,
    hardware: Hardware,
    rates: tuple[float, ...],
    epochs: tuple[int, ...],
) -> tuple[Callable[[], Any], EncodedRows, EncodedRows, RecipeRecord]:
    """Return a function that loads the model, the rows to tune on and to score, and a record."""

    def load_start() -> checkpoint.Classifier:
        return checkpoint.load_classifier(
            model,
            num_labels=task.num_labels,
            label_names=task.label_names,
            is_regression=task.is_regression,
            kind=task.kind,
            seed=config.seed,
            device=hardware.device,
        )

    remedy = "may have seen the rows to hold out; give the pretrained model, or leave --tune out"
    if is_run(model):
        raise ModelError(f"{model}: is a run, whose model {remedy}")
    start = load_start()
    if start.is_trained:
        raise ModelError(f"{model}: has a trained classifier, which {remedy}")
    check_lengths(start.model, start.tokenizer, task, config.max_length, ("train", "dev"))
    num_layers = encoder_of(start.model).num_layers
    rows = make_splits(task.train.labels, config, num_layers, not task.has_classes).first
    labels = task.train.labels if task.has_classes else None
    tuned, scored = hold_out(rows, labels, HELD_OUT, config.seed)
    encoded = encode_split(start.tokenizer, task, "train", config.max_length)
    record = RecipeRecord(
        model=Path(model).resolve().name if Path(model).exists() else str(model),
        weights=checkpoint.weights_digest(start.model.base_model),
        task=task.name,
        data=task.content_hash,
        metric=task.metric,
        seed=config.seed,
        protocol=config.protocol,
        max_length=config.max_length,
        batch_size=config.first.batch_size,
        device_type=hardware.device.type,
        precision=hardware.precision,
        threads=hardware.threads,
        rates=rates,
        epochs=epochs,
        rows_tuned=len(tuned),
        rows_held_out=len(scored),
    )
    return lambda: load_start().model, encoded.select(tuned), encoded.select(scored), record


def _resume(path: Path, record: RecipeRecord) -> RecipeRecord:
    """Return the record with the trials of an earlier call, made under the same conditions."""
    if not path.is_file():
        write_json(path, record.to_json())
        return record
    earlier = read(RecipeRecord, path, "delete it to repeat the trials")
    before, now = earlier.to_json(), record.to_json()
    changed = [
        f"{key} was {before[key]!r} and is now {now[key]!r}"
        for key in now
        if key != "trials" and before[key] != now[key]
    ]
    if changed:
        raise RunError(
            f"{path}: holds trials of another choice: {', '.join(changed)}; use what it had or "
            "another --out"
        )
    return earlier


def _try(
    model: Any,
    tuned: EncodedRows,
    scored: EncodedRows,
    task: TaskData,
    config: Config,
    progress: Progress,
) -> Trial:
    """Tune and score a model."""
    first, started = config.first, time.perf_counter()
    stage = f"rate {first.learning_rate:g}, {first.epochs} epochs"
    score, one_class = None, False
    try:
        tune(
            model,
            tuned,
            first,
            seed=derive(config.seed, "tuning/first"),  # as the first tuning of a run
            hardware=resolve_hardware(config),
            stage=stage,
            progress=progress,
        )
        found = evaluate_rows(model, scored, task.metric)
        score, one_class = found.score if math.isfinite(found.score) else None, found.one_class
    except DivergedError:
        progress.end()
    return Trial(
        learning_rate=first.learning_rate,
        epochs=first.epochs,
        score=score,
        one_class=one_class,
        seconds=round(time.perf_counter() - started, 3),
    )
