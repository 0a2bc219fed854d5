"""Choose the learning rate and the epochs of the first tuning on held-out rows of train.

All rates are tried for the fewest epochs, the better half of them for the next number of epochs,
and so on (successive halving). A trial is the first tuning of a run, on most of the rows that the
run may use for it; it is scored on the others, which are drawn by class and by seed. The dev set is
never used. The trials are stored in `tuning.json` of the run's folder, so that they can be resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from auber.config import Config
from auber.data.encoding import encode_split
from auber.data.splits import hold_out, make_splits
from auber.data.task import TaskData
from auber.errors import ConfigError, ModelError, RunError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.run.files import TUNING, is_run
from auber.run.fine_tuned import check_lengths
from auber.run.resuming import check_place
from auber.run.stage_record import Trial
from auber.run.trials import HELD_OUT, halve, try_tuning
from auber.system.distributed import num_processes
from auber.system.files import write_json
from auber.system.locks import held
from auber.system.progress import Progress
from auber.system.records import Count, Name, Number, Record, read
from auber.training.devices import resolve_hardware

RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
EPOCHS = (3, 6, 10)
_MAY_HAVE_SEEN = "may have seen the rows to hold out; give the pretrained model, or omit --tune"

N = TypeVar("N", int, float)


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
    _check_grid(rates, epochs)
    check_place(folder, resume=resume)
    has_trials = (folder / TUNING).is_file()
    if has_trials and not resume:
        raise RunError(
            f"{folder}: holds the trials of --tune; add --resume to continue, or choose another "
            "folder for --out"
        )
    if is_run(folder) and not has_trials:
        raise RunError(f"{folder}: its run was begun without --tune; leave --tune out")
    progress = progress or Progress()
    trials = _Trials(model, task, config, sorted(rates), sorted(epochs), folder / TUNING, progress)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder):
            trials.open()
            halve(trials.record.rates, trials.record.epochs, trials.run)
            trials.progress.part(trials.share, 1.0)
    except OSError as error:
        raise RunError(
            f"{folder}: cannot be written ({error.strerror}); choose another folder for --out"
        ) from error
    if trials.record.best.score is None:
        raise ConfigError("--tune: every trial diverged; give smaller --rates")
    return trials.record


def parse_list(text: str, option: str, kind: type[N]) -> tuple[N, ...]:
    """Return the numbers of an option such as `--rates 1e-5,2e-5`."""
    try:
        return tuple(kind(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"{option} must be numbers with commas between, found '{text}'"
        ) from error


class _Trials:
    """Run trials on held-out rows and store them."""

    def __init__(
        self,
        model: str | Path,
        task: TaskData,
        config: Config,
        rates: Sequence[float],
        epochs: Sequence[int],
        path: Path,
        progress: Progress,
    ) -> None:
        self._source, self._task, self._config = model, task, config
        self._path, self.progress = path, progress
        self.share = 0.0  # of all work, with the run that follows
        self._hardware = resolve_hardware(config)
        loaded = self._load()
        if loaded.is_trained:
            raise ModelError(f"{model}: has a trained classifier, which {_MAY_HAVE_SEEN}")
        check_lengths(loaded.model, loaded.tokenizer, task, config.max_length, ("train", "dev"))
        num_layers = encoder_of(loaded.model).num_layers
        rows = make_splits(task.train.labels, config, num_layers, not task.has_classes).first
        labels = task.train.labels if task.has_classes else None
        tuned, scored = hold_out(rows, labels, HELD_OUT, config.seed)
        encoded = encode_split(loaded.tokenizer, task, "train", config.max_length)
        self._tuned, self._scored = encoded.select(tuned), encoded.select(scored)
        self.record = RecipeRecord(
            model=Path(model).resolve().name if Path(model).exists() else str(model),
            weights=checkpoint.weights_digest(loaded.model.base_model),
            task=task.name,
            data=task.content_hash,
            metric=task.metric,
            seed=config.seed,
            protocol=config.protocol,
            max_length=config.max_length,
            batch_size=config.first.batch_size,
            device_type=self._hardware.device.type,
            precision=self._hardware.precision,
            threads=self._hardware.threads,
            rates=tuple(rates),
            epochs=tuple(epochs),
            rows_tuned=len(tuned),
            rows_held_out=len(scored),
        )

    def open(self) -> None:
        """Take over the trials in the file, which must be of the same choice."""
        if self._path.is_file():
            earlier = read(RecipeRecord, self._path, "delete it to repeat the trials")
            before, now = earlier.to_json(), self.record.to_json()
            changed = [
                f"{key} was {before[key]!r} and is now {now[key]!r}"
                for key in now
                if key != "trials" and before[key] != now[key]
            ]
            if changed:
                raise RunError(
                    f"{self._path}: holds trials of another choice: {', '.join(changed)}; use what "
                    "it had or another folder for --out"
                )
            self.record = earlier
        write_json(self._path, self.record.to_json())
        size, work = len(self.record.rates), list[float]()
        for epochs in self.record.epochs:
            work += [float(epochs)] * size
            size = -(-size // 2)
        work = work[len(self.record.trials) :]
        # The run that follows tunes on all rows, for the most epochs at worst.
        self.share = sum(work) / (sum(work) + max(self.record.epochs) / (1 - HELD_OUT))
        self.progress.part(0.0, self.share)
        self.progress.plan(work)

    def run(self, rate: float, epochs: int) -> Trial:
        """Return a trial, from the file if it is there."""
        for trial in self.record.trials:
            if (trial.learning_rate, trial.epochs) == (rate, epochs):
                return trial
        trial = self._try(rate, epochs)
        self.record = self.record.model_copy(update={"trials": (*self.record.trials, trial)})
        write_json(self._path, self.record.to_json())
        return trial

    def _try(self, rate: float, epochs: int) -> Trial:
        changed = {"first.learning_rate": rate, "first.epochs": epochs}
        return try_tuning(
            self._load().model,
            self._tuned,
            self._scored,
            self._config.replace(changed).first,
            self._task.metric,
            seed=self._config.seed,
            hardware=self._hardware,
            progress=self.progress,
        )

    def _load(self) -> checkpoint.Classifier:
        if is_run(self._source):
            raise ModelError(f"{self._source}: is a run, whose model {_MAY_HAVE_SEEN}")
        return checkpoint.load_classifier(
            self._source,
            num_labels=self._task.num_labels,
            label_names=self._task.label_names,
            is_regression=self._task.is_regression,
            kind=self._task.kind,
            seed=self._config.seed,
            device=self._hardware.device,
        )


def _check_grid(rates: Sequence[float], epochs: Sequence[int]) -> None:
    if not rates or len(set(rates)) < len(rates) or not all(0 < rate < 1 for rate in rates):
        raise ConfigError(
            f"--rates must be different numbers between 0 and 1, such as 1e-5,2e-5, found {rates}"
        )
    if not epochs or len(set(epochs)) < len(epochs) or not all(0 < n < 10_000 for n in epochs):
        raise ConfigError(
            f"--epochs must be different whole numbers from 1, such as 3,6,10, found {epochs}"
        )
    if num_processes() > 1:
        raise ConfigError(
            f"--tune works in one process, found {num_processes()}; tune first without torchrun"
        )
