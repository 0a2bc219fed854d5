"""The Hugging Face Trainer, set up for a tuning and freed of everything that makes a GPU wait.

It leaves out what the Trainer does each step with the loss on the host (the check for NaN and infinity) and with the
gradients (clipping, where the recorded step has clipped), reads rows by length, and on one GPU replays its steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from auber.devices import Hardware, num_processes
from auber.tasks.encoding import EncodedRows
from auber.tuning.batches import LengthGroups, RowCollator
from auber.tuning.graphs import CudaRecorder, RecordedSteps, Recorder, RecordingError

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
