"""The model to export: of a finished run or a model folder, with its tokenizer."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from auber.data.task_types import TaskType
from auber.errors import RunError
from auber.models import checkpoint
from auber.models.encoders import Encoder, encoder_of
from auber.run import files as run_files
from auber.run.result_record import ResultRecord
from auber.training.outputs import Outputs, outputs_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Source:
    """A classifier on the CPU in eval mode, with its tokenizer."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    result: ResultRecord | None = None  # of the run it comes from

    @property
    def encoder(self) -> Encoder:
        """The adapter around the model."""
        return encoder_of(self.model)

    @property
    def task_type(self) -> TaskType:
        """The task type of the model."""
        return self.encoder.task_type

    @property
    def units(self) -> dict[str, tuple[int, int]]:
        """The number of removed heads, and of heads before pruning; and so for neurons."""
        encoder, layers = self.encoder, self.encoder.num_layers
        return {
            "heads": (encoder.removed.num_heads, layers * encoder.num_heads),
            "neurons": (encoder.removed.num_neurons, layers * encoder.num_neurons),
        }

    @property
    def row_length(self) -> int:
        """The number of tokens to cut rows to, as the run did and as the model allows."""
        longest = self.encoder.num_positions
        return longest if self.result is None else min(longest, self.result.config["max_length"])

    @property
    def outputs(self) -> Outputs:
        """The reader of the model's outputs."""
        return outputs_of(self.task_type.name, self.model)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that the tokenizer returns and the model reads."""
        reads_types = (
            self.encoder.has_token_types and "token_type_ids" in self.tokenizer.model_input_names
        )
        return ("input_ids", "attention_mask", *(["token_type_ids"] if reads_types else []))


def read_source(run: str | Path) -> Source:
    """Return the model of a finished run or a model folder."""
    folder, result = Path(run), None
    if run_files.is_run(folder):
        result = run_files.read_result_record(folder)
        folder = folder / "model"
        if not folder.is_dir():
            raise RunError(
                f"{run}: a model is needed, the run's own was deleted; "
                "make the run again with keep_weights"
            )
    model = checkpoint.load(folder)
    return Source(Path(run).resolve().name, model, checkpoint.load_tokenizer(folder), result)


def in_float32(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model, or a float32 copy of one in lower precision."""
    return model if model.dtype == torch.float32 else copy.deepcopy(model).float()
