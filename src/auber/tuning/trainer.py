"""The Hugging Face Trainer, set up for a tuning and freed of everything that makes a GPU wait.

It leaves out what the Trainer does each step with the loss on the host (the check for NaN and infinity) and with the
gradients (clipping, where the recorded step has clipped), reads rows by length, and on one GPU replays its steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from auber.devices import Hardware, num_processes
from auber.outputs import OUTPUTS
from auber.recording import CudaRecorder, Recorder, RecordingError
from auber.tasks.encoding import EncodedRows, part_batch
from auber.tuning.batches import LengthGroups, RowCollator
from auber.tuning.graphs import RecordedSteps

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TrainerControl

logger = logging.getLogger(__name__)

# Widths of batches are rounded up to this where steps are recorded: four recordings for rows of up to 128 tokens.
RECORDED_WIDTH = 32


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


class StepTrainer(Trainer):  # type: ignore[misc]
    """A Trainer of length-grouped batches of one kind that replays its steps where it is given a recorder."""

    def __init__(self, *, kind: str, sampler: Sampler[int], recorder: Recorder | None, **options: Any) -> None:
        super().__init__(**options)
        self._outputs, self._sampler, self._recorder = OUTPUTS[kind], sampler, recorder
        self.last_loss: Tensor | None = None  # of the last step, on the device
        self._steps: RecordedSteps | None = None
        # The loss is the mean over the batch. Told that the model takes the number of items, the Trainer would count
        # them each step, and in a process group multiply a mean that is already right by the number of processes.
        self.model_accepts_loss_kwargs = False

    def training_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any = None) -> Tensor:
        """Loss and gradients of a batch; the loss stays on the device."""
        self.last_loss = self._take_step(model, inputs, num_items_in_batch)
        return self.last_loss

    def _take_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any) -> Tensor:
        if self._recorder is not None:
            if self._steps is None:
                dtype = torch.bfloat16 if self.args.bf16 else None
                self._steps = RecordedSteps(
                    model, self.compute_loss, self.args.max_grad_norm, self._recorder, autocast_dtype=dtype
                )
            if not model.training:  # setting it anew in every module takes half a millisecond
                model.train()
            try:
                return self._steps(self._prepare_inputs(inputs))
            except RecordingError as error:
                logger.warning(
                    "The training steps of %s cannot be recorded as a CUDA graph and run several times slower: %s",
                    type(self.model).__name__,
                    error,
                )
                self._recorder = self._steps = None
                model.zero_grad()
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        return loss

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """The loss of a batch as its kind has it."""
        return self._outputs.batch_loss(model, *part_batch(inputs))

    def _clip_grad_norm(self, model: Any) -> Any:
        # A Trainer that names this otherwise clips what is clipped: that changes nothing and takes time.
        return super()._clip_grad_norm(model) if self._steps is None else self._steps.norm

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self._sampler

    def floating_point_ops(self, inputs: dict[str, Tensor]) -> int:
        """None are counted: nobody asks, and the Trainer would walk over all parameters each step."""
        return 0


def run_trainer(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: TuningSettings,
    *,
    seed: int,
    hardware: Hardware,
    scratch: str,
    on_begin: Callable[[int], None],
    on_step: Callable[[int, Callable[[], float]], bool],
) -> int:
    """Train a model in place and return the number of steps.

    `on_begin` hears how many steps there will be, `on_step` the number of each step done and how to read its loss, which makes
    a GPU wait; it returns whether to stop.
    """
    arguments = _training_arguments(settings, seed, hardware, scratch)
    recorder = _recorder(hardware)

    def read_loss() -> float:
        assert trainer.last_loss is not None, "a step is done before its loss is read"
        return float(trainer.last_loss)

    trainer = StepTrainer(
        model=model,
        args=arguments,
        # The Trainer deals in row numbers; the collator knows the rows.
        train_dataset=range(len(rows)),
        data_collator=RowCollator(rows, RECORDED_WIDTH if recorder else 1),
        # In a process group consecutive batches make up a step: they are grouped as one.
        kind=rows.kind,
        sampler=LengthGroups(rows.lengths, arguments.train_batch_size * num_processes(), arguments.data_seed),
        recorder=recorder,
        callbacks=[_Listener(on_begin, lambda step: on_step(step, read_loss))],
    )
    trainer.remove_callback(PrinterCallback)
    with _wrapping_taken_back(model):
        trainer.train()
    steps: int = trainer.state.global_step
    return steps


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
    return CudaRecorder(hardware.device) if hardware.device.type == "cuda" and num_processes() == 1 else None


def _training_arguments(settings: TuningSettings, seed: int, hardware: Hardware, scratch: str) -> TrainingArguments:
    cuda = hardware.device.type == "cuda"
    arguments = TrainingArguments(
        output_dir=scratch,
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        # A process group shares the batch, so that a step sees as many rows whatever its size.
        per_device_train_batch_size=max(1, settings.batch_size // num_processes()),
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if cuda else "adamw_torch",
        bf16=cuda and hardware.precision == "bfloat16",
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
    return arguments


class _Listener(TrainerCallback):  # type: ignore[misc]
    """Hands the Trainer's steps on, and stops it when asked to."""

    def __init__(self, on_begin: Callable[[int], None], on_step: Callable[[int], bool]) -> None:
        self._on_begin, self._on_step = on_begin, on_step

    def on_train_begin(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        self._on_begin(state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        control.should_training_stop |= self._on_step(state.global_step)
