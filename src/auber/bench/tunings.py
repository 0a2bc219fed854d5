"""Fine-tuning steps a second: this package's `tune` against the Trainer as it comes.

The plain side is transformers' Trainer with its defaults (float32, its optimiser, its logging, rows in random order,
batches padded to their longest row). Only what would reach beyond the measurement is off: trackers, checkpoints and
printing. Both tune a copy of the same model on the same rows, after a short warm-up, and the time is that of the whole
call, set-up included, as every tuning of a search pays for it.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from auber.bench.clock import timed
from auber.bench.record import TuningRecord, TuningWayRecord
from auber.bench.subjects import Subject
from auber.config import LayerTuning
from auber.data.encoding import EncodedRows, pad_batch
from auber.system.progress import Progress
from auber.training.devices import Hardware
from auber.training.tuning import tune

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WARM_UP_STEPS = 3

_Tune = Callable[["PreTrainedModel", EncodedRows, LayerTuning], int]  # returns the steps made


def compare_tunings(subject: Subject, steps: int, progress: Progress) -> TuningRecord:
    """Time about so many steps each way: whole passes over the rows, or one pass over some of them."""
    settings = subject.config.layer
    rows, epochs = _bounded(subject.rows, steps, settings.batch_size)
    settings = replace(settings, epochs=epochs)
    seed, hardware = subject.config.seed, subject.hardware

    def tune_here(model: PreTrainedModel, some: EncodedRows, chosen: LayerTuning) -> int:
        return tune(
            model, some, chosen, seed=seed, hardware=hardware, stage="tuning", progress=progress
        ).steps

    def tune_plainly(model: PreTrainedModel, some: EncodedRows, chosen: LayerTuning) -> int:
        return train_plainly(model, some, chosen, seed, hardware)

    progress.plan(2)
    progress.begin("plain Trainer", 0)
    plain = _time(subject, tune_plainly, rows, settings)
    progress.end()
    ours = _time(subject, tune_here, rows, settings)
    return TuningRecord(
        settings.batch_size, len(rows), plain, ours, ours.steps_per_second / plain.steps_per_second
    )


def train_plainly(
    model: PreTrainedModel, rows: EncodedRows, settings: LayerTuning, seed: int, hardware: Hardware
) -> int:
    """Tune a model in place with the Trainer's defaults; the steps made."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    with tempfile.TemporaryDirectory(prefix="auber-") as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            num_train_epochs=settings.epochs,
            learning_rate=settings.learning_rate,
            per_device_train_batch_size=settings.batch_size,
            seed=seed % 2**32,
            use_cpu=hardware.device.type == "cpu",
            dataloader_pin_memory=hardware.device.type
            == "cuda",  # the default, which warns where there is no GPU
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


def _bounded(rows: EncodedRows, steps: int, batch_size: int) -> tuple[EncodedRows, int]:
    """Rows and passes over them that make about so many steps."""
    if steps * batch_size < len(rows):
        return rows.select(range(steps * batch_size)), 1
    return rows, max(1, round(steps / math.ceil(len(rows) / batch_size)))


def _time(
    subject: Subject, way: _Tune, rows: EncodedRows, settings: LayerTuning
) -> TuningWayRecord:
    few = rows.select(range(min(len(rows), _WARM_UP_STEPS * settings.batch_size)))
    way(copy.deepcopy(subject.model), few, replace(settings, epochs=1))
    model = copy.deepcopy(subject.model)
    steps, seconds = timed(lambda: way(model, rows, settings), subject.hardware.device)
    return TuningWayRecord(steps, seconds, steps / seconds)
