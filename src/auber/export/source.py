"""What is exported: the model of a run's folder or of a model folder, with its tokenizer."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from auber.data.task_types import TASK_TYPES, TaskType, task_type_of_class
from auber.errors import ModelError, RunError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.run import files as run_files
from auber.training.outputs import OUTPUTS, Outputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Source:
    """A model with a classifier of one of the kinds, on the CPU in eval mode."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    result: dict[str, Any] | None = None  # of the run it comes from, if it comes from one

    @property
    def encoder(self) -> Encoder:
        """The adapter around the model."""
        return encoder_of(self.model)

    @property
    def kind(self) -> TaskType:
        """The kind of task the model answers."""
        return self.encoder.kind

    @property
    def row_length(self) -> int:
        """The tokens that rows are cut to: as the run did, and never more than the model has places for."""
        longest = self.encoder.num_positions
        return longest if self.result is None else min(longest, self.result["config"]["max_length"])

    @property
    def outputs(self) -> Outputs:
        """How what the model gives is read."""
        return OUTPUTS[self.kind.name]

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the tokenizer gives and the model reads."""
        reads_types = (
            self.encoder.has_token_types and "token_type_ids" in self.tokenizer.model_input_names
        )
        return ("input_ids", "attention_mask", *(["token_type_ids"] if reads_types else []))


def open_source(run: str | Path) -> Source:
    """The model of a finished run, or of a model folder."""
    folder, result = Path(run), None
    if run_files.is_run(folder):
        result = run_files.read_result(folder)  # a run that is not finished says so itself
        folder = folder / "model"
        if not folder.is_dir():
            raise RunError(
                f"{run}: a model is needed, the run's own was deleted; make the run again with keep_weights"
            )
    model = checkpoint.load(folder)
    if task_type_of_class(type(model).__name__) is None:
        endings = " or ".join(f"...{kind.ending}" for kind in TASK_TYPES.values())
        raise ModelError(
            f"{folder}: a model {endings} is needed, found {type(model).__name__}; fine-tune it for a task first"
        )
    return Source(Path(run).resolve().name, model, checkpoint.load_tokenizer(folder), result)


def in_float32(model: PreTrainedModel) -> PreTrainedModel:
    """The model itself, or a copy of one that is kept in fewer bits: what is compared is not rounded to them."""
    return model if model.dtype == torch.float32 else copy.deepcopy(model).float()
