"""The Hugging Face Trainer, set up for a tuning and freed of everything that makes a GPU wait.

It leaves out what the Trainer does each step with the loss on the host (the check for NaN and infinity) and with the
gradients (clipping, where the recorded step has clipped), reads rows by length, and on one GPU replays its steps.

A step that runs out of memory is taken again with less at a time: first without recordings, then in parts of half as many
rows, until they fit; what is learned stays that of the whole batch (`parts`).
"""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from auber.data.encoding import EncodedRows, part_batch
from auber.system.distributed import num_processes
from auber.training.batches import RECORDED_WIDTH, LengthGroups, RowCollator
from auber.training.captured_steps import ComputeLoss, KeptSteps, RecordedSteps
from auber.training.cuda_graphs import Recorder, RecordingError, recorder_for
from auber.training.devices import Hardware
from auber.training.finite import TuningError
from auber.training.outputs import OUTPUTS
from auber.training.parts import cut_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TrainerControl

logger = logging.getLogger(__name__)


class TuningSettings(Protocol):
    """What every tuning needs to know; each tuning section of the configuration has it."""

    @property
    def epochs(self) -> int:
        """Passes over the rows."""

    @property
    def learning_rate(self) -> float:
        """The peak rate."""

    @property
    def batch_size(self) -> int:
        """Rows a step."""


@dataclass(frozen=True)
class Trained:
    """What a Trainer has done."""

    steps: int
    micro_batch: int | None  # the rows of a part, where the batches did not fit into memory


class StepTrainer(Trainer):  # type: ignore[misc]
    """A Trainer of length-grouped batches of one kind that replays its steps where it is given a recorder.

    `stage` and `device_name` say in messages what does not fit where.
    """

    def __init__(
        self,
        *,
        kind: str,
        sampler: Sampler[int],
        recorder: Recorder | None,
        kept: KeptSteps,
        stage: str,
        device_name: str,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._loss_of, self._sampler, self._recorder, self._kept = (
            _loss_of(kind),
            sampler,
            recorder,
            kept,
        )
        self._stage, self._device_name = stage, device_name
        self.last_loss: Tensor | None = None  # of the last step, on the device
        self.micro_batch: int | None = (
            None  # rows that are run at a time, where a batch does not fit into memory
        )
        self._steps: RecordedSteps | None = None
        # The loss is the mean over the batch. Told that the model takes the number of items, the Trainer would count
        # them each step, and in a process group multiply a mean that is already right by the number of processes.
        self.model_accepts_loss_kwargs = False

    def training_step(
        self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any = None
    ) -> Tensor:
        """Loss and gradients of a batch; the loss stays on the device."""
        self.last_loss = self._take_step(model, inputs, num_items_in_batch)
        return self.last_loss

    def _take_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any) -> Tensor:
        rows, width = inputs["input_ids"].shape
        while True:
            try:
                return self._try_step(model, inputs, num_items_in_batch)
            except torch.OutOfMemoryError as error:
                reason = str(error).partition("\n")[0]
            # Outside of the clause, where the error no longer holds what the step had computed.
            self._make_room(model, rows, width, reason)

    def _try_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any) -> Tensor:
        if self._recorder is not None:
            if self._steps is None:
                dtype = torch.bfloat16 if self.args.bf16 else None
                self._steps = self._kept.steps(
                    model, self._loss_of, self.args.max_grad_norm, self._recorder, dtype
                )
            if not model.training:  # setting it anew in every module takes half a millisecond
                model.train()
            try:
                loss: Tensor = self._steps(self._prepare_inputs(inputs))
            except RecordingError as error:
                logger.warning(
                    "The training steps of %s cannot be recorded as a CUDA graph and run several times slower: %s",
                    type(self.model).__name__,
                    str(
                        error
                    ),  # a handler that keeps the record must not keep the error, which holds the broken graph
                )
                self._stop_recording()
                model.zero_grad()
            else:
                return loss
            # Outside of the clause, where the error is gone: what is left of the graph it broke would tie the gradients of the
            # steps to come to the recording's stream.
            gc.collect()
        if self.micro_batch is not None and self.micro_batch < len(inputs["input_ids"]):
            return self._step_in_parts(model, self.micro_batch, inputs)
        plain: Tensor = super().training_step(model, inputs, num_items_in_batch)
        return plain

    def _step_in_parts(self, model: Any, micro_batch: int, inputs: dict[str, Tensor]) -> Tensor:
        """Loss and gradients of a batch of which no more than so many rows are run at a time."""
        model.train()
        losses = []
        for part, share in cut_batch(self._prepare_inputs(inputs), micro_batch):
            loss = self.compute_loss(model, part) * share
            self.accelerator.backward(loss)
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def _make_room(self, model: Any, rows: int, width: int, reason: str) -> None:
        """After a step of so many rows has run out of memory, let the next try take less; `TuningError` if it cannot."""
        model.zero_grad()
        if self._recorder is not None:
            logger.warning(
                "%s: out of memory on %s with the steps recorded; goes on with ordinary steps, which are several times slower",
                self._stage, self._device_name,
            )  # fmt: skip
            self._stop_recording()
        else:
            tried = min(rows, self.micro_batch or rows)
            self._require_halves(tried, width, reason)
            self.micro_batch = (tried + 1) // 2
            logger.warning(
                "%s: out of memory on %s with %d rows at a time; goes on with %d at a time, and each step still learns from all "
                "the rows of its batch",
                self._stage, self._device_name, tried, self.micro_batch,
            )  # fmt: skip
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _stop_recording(self) -> None:
        self._recorder = self._steps = None
        self._kept.drop()

    def _require_halves(self, rows: int, width: int, reason: str) -> None:
        if num_processes() > 1:
            # One process that takes its batch in parts would exchange gradients more often than the others wait for.
            raise TuningError(
                f"{self._stage}: {rows} rows of {width} tokens do not fit into the memory of {self._device_name} ({reason}), and "
                "batches are not halved in a group of processes; start more processes, free some memory, or lower max_length"
            )
        if rows == 1:
            raise TuningError(
                f"{self._stage}: one row of {width} tokens does not fit into the memory of {self._device_name} ({reason}); free "
                "some of it, or lower max_length"
            )

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """The loss of a batch as its kind has it."""
        return self._loss_of(model, inputs)

    def _clip_grad_norm(self, model: Any) -> Any:
        # A Trainer that names this otherwise clips what is clipped: that changes nothing and takes time.
        return super()._clip_grad_norm(model) if self._steps is None else self._steps.norm

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self._sampler

    def floating_point_ops(self, inputs: dict[str, Tensor]) -> int:
        """None are counted: nobody asks, and the Trainer would walk over all parameters each step."""
        return 0


@cache
def _loss_of(kind: str) -> ComputeLoss:
    """The loss of a batch as its kind has it. It is no method of a Trainer, whom steps that are kept would keep alive."""

    def compute_loss(model: Callable[..., Any], inputs: dict[str, Tensor]) -> Tensor:
        return OUTPUTS[kind].batch_loss(model, *part_batch(inputs))

    return compute_loss


def run_trainer(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: TuningSettings,
    *,
    seed: int,
    hardware: Hardware,
    kept: KeptSteps,
    scratch: str,
    stage: str,
    on_begin: Callable[[int], None],
    on_step: Callable[[int, Tensor], bool],
) -> Trained:
    """Train a model in place.

    `on_begin` hears how many steps there will be, `on_step` the number of each step done and its loss, on the device: to read
    it makes a GPU wait. It returns whether to stop. Messages name the `stage`. Steps that are `kept` are replayed from the first
    batch on. The Trainer seeds the process's own generators; they go on afterwards as if there had been no training.
    """
    arguments = _training_arguments(settings, seed, hardware, scratch)
    recorder = _recorder(hardware)

    def hand_on(step: int) -> bool:
        assert trainer.last_loss is not None, "a step has a loss when it is done"
        return on_step(step, trainer.last_loss)

    with _generators_kept(hardware), _wrapping_taken_back(model):
        trainer = StepTrainer(
            model=model,
            args=arguments,
            # The Trainer deals in row numbers; the collator knows the rows.
            train_dataset=range(len(rows)),
            data_collator=RowCollator(rows, RECORDED_WIDTH if recorder else 1),
            # In a process group consecutive batches make up a step: they are grouped as one.
            kind=rows.kind,
            sampler=LengthGroups(
                rows.lengths, arguments.train_batch_size * num_processes(), arguments.data_seed
            ),
            recorder=recorder,
            kept=kept,
            stage=stage,
            device_name=hardware.name,
            callbacks=[_Listener(on_begin, hand_on)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return Trained(trainer.state.global_step, trainer.micro_batch)


@contextmanager
def _generators_kept(hardware: Hardware) -> Iterator[None]:
    """Leave the generators of Python, NumPy and torch as they were: who calls may draw from them.

    Those of all GPUs, as all are seeded; where CUDA has not been started, and is not wanted, it stays so.
    """
    cuda = hardware.device.type == "cuda" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else []):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


@contextmanager
def _wrapping_taken_back(model: PreTrainedModel) -> Iterator[None]:
    """Leave the model's `forward` as it was.

    accelerate puts autocast around it and marks the model, so that the next Trainer would not do so again; its own
    `unwrap_model` keeps the mark, and takes off the decorators of transformers with its own.
    """
    names = ("forward", "_original_forward", "_is_accelerate_prepared")
    before = {name: model.__dict__[name] for name in names if name in model.__dict__}
    try:
        yield
    finally:
        for name in names:
            model.__dict__.pop(name, None)
        model.__dict__.update(before)


def _recorder(hardware: Hardware) -> Recorder | None:
    """What records the steps: CUDA graphs on one GPU. Processes that exchange gradients take ordinary steps."""
    return recorder_for(hardware.device) if num_processes() == 1 else None


def _share_of_batch(batch_size: int) -> int:
    """The rows of a batch that each process of a group takes."""
    if batch_size % num_processes():
        raise TuningError(
            f"a batch of {batch_size} rows cannot be shared evenly by {num_processes()} processes; give first.batch_size, layer.batch_size "
            "and last.batch_size that can, or start another number of processes"
        )
    return batch_size // num_processes()


def _training_arguments(
    settings: TuningSettings, seed: int, hardware: Hardware, scratch: str
) -> TrainingArguments:
    cuda = hardware.device.type == "cuda"
    arguments = TrainingArguments(
        output_dir=scratch,
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        # A process group shares the batch, so that a step sees as many rows whatever its size.
        per_device_train_batch_size=_share_of_batch(settings.batch_size),
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if cuda else "adamw_torch",
        bf16=hardware.precision == "bfloat16",
        use_cpu=hardware.device.type == "cpu",
        seed=seed % 2**32,
        data_seed=seed % 2**32,
        dataloader_pin_memory=cuda,
        accelerator_config={"non_blocking": cuda},
        remove_unused_columns=False,
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,  # it reads the loss on the host, so the GPU runs dry each step
        report_to="none",
        disable_tqdm=True,
    )
    if arguments.n_gpu > 1:
        # Several GPUs in one process would mean DataParallel and a larger batch; torchrun is the way to use them.
        arguments._n_gpu = 1
    # Where bf16 is False the Trainer would follow ACCELERATE_MIXED_PRECISION of the environment, whatever `precision` says.
    arguments.mixed_precision = "bf16" if arguments.bf16 else "no"
    return arguments


class _Listener(TrainerCallback):  # type: ignore[misc]
    """Hands the Trainer's steps on, and stops it when asked to."""

    def __init__(self, on_begin: Callable[[int], None], on_step: Callable[[int], bool]) -> None:
        self._on_begin, self._on_step = on_begin, on_step

    def on_train_begin(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        self._on_begin(state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        control.should_training_stop |= self._on_step(state.global_step)
