"""The Hugging Face Trainer, set up for a tuning and without everything that makes a GPU wait.

It does not read the loss on the host in each step (to check for NaN), does not clip gradients that
the captured step has clipped, groups rows by length, and on one GPU replays captured steps.

A step that runs out of memory is repeated with less at a time: first without CUDA graphs, then in
parts of half as many rows, until they fit. It still learns from the whole batch.
"""

from __future__ import annotations

import gc
import logging
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from auber.data.encoding import EncodedRows
from auber.errors import first_line
from auber.system.distributed import num_processes
from auber.training.batches import CAPTURE_WIDTH, LengthGroups, RowCollator, cut_batch
from auber.training.captured_steps import CapturedSteps, ComputeLoss, StepCache
from auber.training.cuda_graphs import Capture, CaptureError, capture_for
from auber.training.devices import Hardware, device_name, free_memory, halve_rows
from auber.training.distillation import Teacher
from auber.training.monitor import Monitor, TuningError, TuningSettings
from auber.training.outputs import outputs_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TrainerControl

logger = logging.getLogger(__name__)


class StepTrainer(Trainer):  # type: ignore[misc]
    """A Trainer with length-grouped batches of one task type that replays captured steps.

    Messages contain `stage` and the name of the device.
    """

    def __init__(
        self,
        *,
        compute_loss: ComputeLoss,
        sampler: Sampler[int],
        capture: Capture | None,
        step_cache: StepCache,
        stage: str,
        hardware: Hardware,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        # The loss must not refer to the Trainer: cached steps would keep it alive.
        self._loss_of, self._sampler = compute_loss, sampler
        self._capture, self._step_cache = capture, step_cache
        self._stage, self._hardware = stage, hardware
        self.last_loss: Tensor | None = None  # of the last step, on the device
        self.micro_batch: int | None = None  # rows run at a time if a batch does not fit
        self._steps: CapturedSteps | None = None
        # The loss is the mean over the batch. If the model accepted the number of items, the
        # Trainer would count them in each step and, with several processes, multiply a mean that
        # is already right by the number of processes.
        self.model_accepts_loss_kwargs = False

    def training_step(
        self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any = None
    ) -> Tensor:
        """Compute the gradients of a batch and return its loss, on the device."""
        rows, width = inputs["input_ids"].shape
        while True:
            try:
                self.last_loss = self._try_step(model, inputs, num_items_in_batch)
                return self.last_loss
            except torch.OutOfMemoryError as error:
                reason = first_line(error)
            # After the except clause, when the error no longer holds the step's tensors.
            self._make_room(model, rows, width, reason)

    def _try_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any) -> Tensor:
        if self._capture is not None:
            if self._steps is None:
                dtype = torch.bfloat16 if self._is_half else None
                self._steps = self._step_cache.steps(
                    model, self._loss_of, self.args.max_grad_norm, self._capture, dtype
                )
            if not model.training:  # setting it again in every module takes half a millisecond
                model.train()
            try:
                loss: Tensor = self._steps(self._prepare_inputs(inputs))
            except CaptureError as error:
                logger.warning(
                    "The training steps of %s cannot be captured as a CUDA graph and run several "
                    "times slower: %s",
                    type(self.model).__name__,
                    # as text: a handler that stores the log record must not keep the broken graph
                    str(error),
                )
                self._stop_capturing()
                model.zero_grad()
            else:
                return loss
            # After the except clause, when the error is gone: the rest of the broken graph would
            # tie later gradients to the stream of the capture.
            gc.collect()
        if self.micro_batch is not None and self.micro_batch < len(inputs["input_ids"]):
            return self._step_in_parts(model, self.micro_batch, inputs)
        plain: Tensor = super().training_step(model, inputs, num_items_in_batch)
        return plain

    def _step_in_parts(self, model: Any, micro_batch: int, inputs: dict[str, Tensor]) -> Tensor:
        """Compute the gradients of a batch with at most `micro_batch` rows at a time."""
        model.train()
        losses = []
        for part, share in cut_batch(self._prepare_inputs(inputs), micro_batch):
            loss = self.compute_loss(model, part) * share
            self.accelerator.backward(loss)
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _make_room(self, model: Any, rows: int, width: int, reason: str) -> None:
        """Make the next try need less memory; raise `TuningError` if that is not possible."""
        model.zero_grad()
        if self._capture is None:
            self.micro_batch = halve_rows(
                self._stage,
                min(rows, self.micro_batch or rows),
                width,
                self._hardware.device,
                reason,
                TuningError,
                ", and each step still learns from all the rows of its batch",
            )
            return
        logger.warning(
            "%s: out of memory on %s with captured steps; continuing with ordinary steps, which "
            "are several times slower",
            self._stage, device_name(self._hardware.device),
        )  # fmt: skip
        self._stop_capturing()
        free_memory(self._hardware.device)

    def _stop_capturing(self) -> None:
        self._capture = self._steps = None
        self._step_cache.drop()

    @property
    def _is_half(self) -> bool:
        return self._hardware.precision == "bfloat16"

    def mixed_precision(self) -> torch.autocast:
        """Return the context of ordinary steps and of evaluations during the tuning."""
        return torch.autocast(self._hardware.device.type, torch.bfloat16, enabled=self._is_half)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """Return the loss of a batch of this task type."""
        with self.mixed_precision():
            return self._loss_of(model, inputs)

    def _clip_grad_norm(self, model: Any) -> Any:
        # A captured step has clipped already; to clip again would change nothing but take time.
        return super()._clip_grad_norm(model) if self._steps is None else self._steps.norm

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self._sampler

    def floating_point_ops(self, inputs: dict[str, Tensor]) -> int:
        """Return 0: the Trainer would go through all parameters in each step to count them."""
        return 0


def run_trainer(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: TuningSettings,
    monitor: Monitor,
    seed: int,
    hardware: Hardware,
    step_cache: StepCache,
    teacher: Teacher | None,
) -> tuple[int, int | None]:
    """Train a model in place; return the steps, and the rows run at a time if a batch did not fit.

    The random generators of the process, which the Trainer seeds, are restored afterwards.
    """
    capture, outputs = _step_capture(hardware), outputs_of(rows.kind, model)
    with (
        _preserve_generators(hardware),
        tempfile.TemporaryDirectory(prefix="auber-") as scratch,
    ):
        arguments = _training_arguments(settings, seed, hardware, scratch)
        trainer = StepTrainer(
            model=model,
            args=arguments,
            train_dataset=range(len(rows)),  # row indices; the collator knows the rows
            data_collator=RowCollator(rows, CAPTURE_WIDTH if capture else 1),
            compute_loss=(outputs.loss if teacher is None else teacher.loss_of(outputs)),
            # Processes share a batch, so their consecutive batches are grouped as one.
            sampler=LengthGroups(rows.lengths, settings.batch_size, arguments.data_seed),
            capture=capture,
            step_cache=step_cache,
            stage=monitor.stage,
            hardware=hardware,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_Listener(trainer, monitor))
        try:
            trainer.train()
        finally:
            # accelerate would not prepare a marked model again, as several processes need.
            model.__dict__.pop("_is_accelerate_prepared", None)
    return trainer.state.global_step, trainer.micro_batch


@contextmanager
def _preserve_generators(hardware: Hardware) -> Iterator[None]:
    """Restore the random generators of Python, numpy and torch, which the caller may draw from.

    All GPUs are included, because all are seeded. CUDA is not initialised if it is not used.
    """
    cuda = hardware.device.type == "cuda" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else []):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _step_capture(hardware: Hardware) -> Capture | None:
    """Return the capture for steps on one GPU; processes that exchange gradients have none."""
    return capture_for(hardware.device) if num_processes() == 1 else None


def _training_arguments(
    settings: TuningSettings, seed: int, hardware: Hardware, scratch: str
) -> TrainingArguments:
    cuda = hardware.device.type == "cuda"
    if settings.batch_size % num_processes():
        raise TuningError(
            f"a batch of {settings.batch_size} rows cannot be shared evenly by {num_processes()} "
            "processes; give first.batch_size, layer.batch_size and last.batch_size that can, or "
            "start another number of processes"
        )
    arguments = TrainingArguments(
        output_dir=scratch,
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        # Processes share a batch, so a step learns from the same rows for any number of them.
        per_device_train_batch_size=settings.batch_size // num_processes(),
        lr_scheduler_type="linear",
        warmup_steps=settings.warmup,  # below 1: a share of the steps
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if cuda else "adamw_torch",
        use_cpu=hardware.device.type == "cpu",
        seed=seed % 2**32,
        data_seed=seed % 2**32,
        dataloader_pin_memory=cuda,
        accelerator_config={"non_blocking": cuda},
        remove_unused_columns=False,
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,  # it would read the loss on the host in each step
        report_to="none",
        disable_tqdm=True,
    )
    if arguments.n_gpu > 1:
        # Several GPUs in one process would mean DataParallel and a larger batch; use torchrun.
        arguments._n_gpu = 1
    # Precision is set here (`mixed_precision`), not by accelerate: its wrapper of the model would
    # also apply to captured steps. Unset, this would follow ACCELERATE_MIXED_PRECISION.
    arguments.mixed_precision = "no"
    return arguments


class _Listener(TrainerCallback):  # type: ignore[misc]
    """Tells the monitor of each step, and stops the Trainer at its request."""

    def __init__(self, trainer: StepTrainer, monitor: Monitor) -> None:
        self._trainer, self._monitor = trainer, monitor

    def on_train_begin(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        with self._trainer.mixed_precision():
            self._monitor.begin(state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        loss = self._trainer.last_loss
        assert loss is not None, "a finished step has a loss"
        with self._trainer.mixed_precision():
            control.should_training_stop |= self._monitor.step(state.global_step, loss)
