"""Short tunings on some rows of train, scored on others: what chooses a learning rate.

`choose_rate` serves `first.learning_rate = auto`. It tries a few rates on a sample of the rows that
the first tuning may use. The score is smooth, because a few hundred rows show little difference in
accuracy after short tunings. Short tunings favour high rates, at which a longer one may diverge, so
the lowest rate within one standard error of the best is chosen.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from auber.config import FirstTuning
from auber.data.encoding import EncodedRows
from auber.data.splits import Indices, draw_rows, hold_out
from auber.errors import ConfigError
from auber.metrics.task_metrics import get_metric, smooth_metric
from auber.run.stage_record import Trial
from auber.system import seeds
from auber.system.progress import Progress
from auber.training.devices import Hardware
from auber.training.evaluation import evaluate_rows, predict
from auber.training.monitor import DivergedError
from auber.training.tuning import tune

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RATES = (2e-5, 5e-5, 1e-4, 2e-4)
EPOCHS = 3
HELD_OUT = 0.2  # share of the rows
_MOST_ROWS = {"cuda": 5000, "cpu": 500}  # of a sample: on two CPU cores about a minute


def count_rows(hardware: Hardware) -> int:
    """Return the largest number of rows that a trial is tuned on."""
    return _MOST_ROWS.get(hardware.device.type, _MOST_ROWS["cpu"])


class RateChoice(NamedTuple):
    """The chosen learning rate and the trials behind it."""

    rate: float
    trials: list[Trial]
    rows: int  # held out

    def describe(self) -> str:
        """Return the choice in one line."""
        tried = ", ".join(f"{trial.learning_rate:g}" for trial in self.trials)
        seconds = sum(trial.seconds for trial in self.trials)
        return (
            f"learning rate {self.rate:g}, chosen from {tried} in {seconds:.0f} s: each was tried "
            f"for {EPOCHS} epochs and scored on {self.rows} held-out rows of train"
        )


def choose_rate(
    model: PreTrainedModel,
    train: EncodedRows,
    rows: Indices,
    labels: Sequence[Any] | None,
    metric: str,
    settings: FirstTuning,
    *,
    seed: int,
    hardware: Hardware,
    progress: Progress,
) -> RateChoice:
    """Return the learning rate for a pretrained model, which is not changed.

    `labels` are the classes of all rows of train; None if they have none.
    """
    tuned, scored = _draw(rows, labels, count_rows(hardware), seed)
    smooth = smooth_metric(metric)

    trials = [
        try_tuning(
            copy.deepcopy(model).to(hardware.device),
            train.select(tuned),
            train.select(scored),
            settings.model_copy(update={"learning_rate": rate, "epochs": EPOCHS}),
            smooth,
            seed=seed,
            hardware=hardware,
            progress=progress,
        )
        for rate in RATES
    ]
    best = min(trials, key=lambda trial: trial.rank)
    if best.score is None:
        raise ConfigError(
            "first.learning_rate: auto found no rate, every trial diverged; set a lower one than "
            f"{RATES[0]:g}"
        )
    good = [t for t in trials if t.score is not None and t.score >= best.score - best.error]
    return RateChoice(min(trial.learning_rate for trial in good), trials, len(scored))


def try_tuning(
    model: PreTrainedModel,
    tuned: EncodedRows,
    scored: EncodedRows,
    settings: FirstTuning,
    metric: str,
    *,
    seed: int,
    hardware: Hardware,
    progress: Progress,
) -> Trial:
    """Tune a model in place, as a run's first tuning would, and score it on other rows."""
    started, rule = time.perf_counter(), get_metric(metric)
    rate, epochs = settings.learning_rate, settings.epochs
    assert rate != "auto"
    score, error, one_class = None, 0.0, False
    try:
        tune(
            model,
            tuned,
            settings,
            seed=seeds.derive(seed, "tuning/first"),
            hardware=hardware,
            stage=f"trying learning rate {rate:g}, {epochs} epoch{'s' if epochs > 1 else ''}",
            progress=progress,
        )
        found = evaluate_rows(model, scored, metric)
        one_class = found.one_class
        if math.isfinite(found.score):
            score = found.score
            if rule.by_row is not None:
                truth = scored.truth(hardware.device)
                terms = rule.by_row(rule.statistics(predict(model, scored), truth))
                error = float(terms.std()) / math.sqrt(len(terms)) if len(terms) > 1 else 0.0
    except DivergedError:
        progress.end()
    seconds = round(time.perf_counter() - started, 3)
    return Trial(
        learning_rate=rate,
        epochs=epochs,
        score=score,
        error=error,
        one_class=one_class,
        seconds=seconds,
    )


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


def _draw(
    rows: Indices, labels: Sequence[Any] | None, most: int, seed: int
) -> tuple[Indices, Indices]:
    """Return at most `most` rows to tune on, and rows to score; by class if all are frequent."""
    chosen = draw_rows(rows, round(most / (1 - HELD_OUT)), seed, "rows of trials")
    if labels is not None:
        counts = Counter(labels[row] for row in chosen)
        if min(counts.values()) < 2 or len(counts) > HELD_OUT * len(chosen):
            labels = None
    return hold_out(chosen, labels, HELD_OUT, seed)
