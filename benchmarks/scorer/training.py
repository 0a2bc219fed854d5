"""Tuning steps per second beside the plain Trainer, and where the time of a whole run goes.

The plain side is the Trainer of transformers with its defaults: float32, its optimiser and logging,
rows in random order. Only what reaches beyond the measurement is off: trackers, checkpoints and
printing. Both tune a copy of the same model on the same rows after a short warm-up, and the set-up
of the call counts, because every tuning of a search pays for it.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from auber import api
from auber.config import LayerTuning
from auber.data.encoding import EncodedRows, pad_batch
from auber.run.result_record import TIME_PARTS
from auber.system.progress import Progress
from auber.training.devices import Hardware
from auber.training.tuning import tune
from benchmarks.scorer.floor import timed
from benchmarks.scorer.record import SearchRecord, TuningRecord
from benchmarks.scorer.subjects import Subject

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WARM_UP_STEPS = 3
_Tune = Callable[["PreTrainedModel", EncodedRows, LayerTuning], int]  # returns the steps


def compare_tunings(subject: Subject, steps: int, progress: Progress) -> TuningRecord:
    """Time about this many steps each way: passes over the rows, or one pass over some of them."""
    settings, rows, epochs = subject.config.layer, subject.rows, 1
    if steps * settings.batch_size < len(rows):
        rows = rows.select(range(steps * settings.batch_size))
    else:
        epochs = max(1, round(steps / math.ceil(len(rows) / settings.batch_size)))
    settings = settings.model_copy(update={"epochs": epochs})
    given: dict[str, Any] = {"seed": subject.config.seed, "hardware": subject.hardware}

    def tune_here(model: PreTrainedModel, some: EncodedRows, chosen: LayerTuning) -> int:
        return tune(model, some, chosen, stage="tuning", progress=progress, **given).steps

    progress.begin("plain Trainer", 0)
    plain_steps, plain_seconds = _time(subject, partial(train_plainly, **given), rows, settings)
    progress.end()
    our_steps, our_seconds = _time(subject, tune_here, rows, settings)
    assert plain_steps == our_steps, "the same batches and epochs"
    return TuningRecord(
        batch_size=settings.batch_size,
        rows=len(rows),
        steps=our_steps,
        plain_seconds=plain_seconds,
        seconds=our_seconds,
    )


def train_plainly(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: LayerTuning,
    *,
    seed: int,
    hardware: Hardware,
) -> int:
    """Tune a model in place with the Trainer's defaults and return the steps."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    with tempfile.TemporaryDirectory(prefix="auber-") as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            num_train_epochs=settings.epochs,
            learning_rate=settings.learning_rate,
            per_device_train_batch_size=settings.batch_size,
            seed=seed % 2**32,
            use_cpu=hardware.device.type == "cpu",
            dataloader_pin_memory=hardware.device.type == "cuda",  # elsewhere it warns
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=rows,
            data_collator=lambda features: pad_batch(features, rows.pad_token_id),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return int(trainer.state.global_step)


def _time(
    subject: Subject, way: _Tune, rows: EncodedRows, settings: LayerTuning
) -> tuple[int, float]:
    """Return the steps and the seconds of a tuning, after a warm-up."""
    few = rows.select(range(min(len(rows), _WARM_UP_STEPS * settings.batch_size)))
    way(copy.deepcopy(subject.model), few, settings.model_copy(update={"epochs": 1}))
    model = copy.deepcopy(subject.model)
    return timed(lambda: way(model, rows, settings), subject.hardware.device)


def measure_run(subject: Subject, preset: str, progress: Progress) -> SearchRecord:
    """Prune the subject's model for its task, and return where the time went.

    The model counts as fine-tuned, so the run begins with a tuning only if `first.when = always`.
    """
    # Under crossfit the fold models start from the pretrained weights; for times any weights will
    # do.
    origin = subject.model if subject.config.protocol == "crossfit" else None
    pruned, total = timed(
        lambda: api.prune(
            subject.model,
            subject.tokenizer,
            task=subject.task,
            origin=origin,
            config=subject.config,
            progress=progress,
        ),
        subject.hardware.device,
    )
    cost = pruned.result["cost"]
    seconds = dict.fromkeys((part.work for part in TIME_PARTS.values()), 0.0)
    for name, part in TIME_PARTS.items():
        seconds[part.work] += cost["seconds"].get(name, 0.0)
    rest = total - sum(seconds.values())
    return SearchRecord(
        preset=preset,
        protocol=pruned.result["protocol"],
        rewards_computed=cost["rewards_computed"],
        tuning_steps=cost["tuning_steps"] + cost.get("scout_steps", 0),
        seconds={**seconds, "rest": rest, "total": total},
    )
