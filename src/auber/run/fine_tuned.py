"""The fine-tuned model that a run starts from.

`load_fine_tuned` reads any of the four forms: a folder, a hub name, a finished run or a live model.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from auber.config import Config
from auber.data.encoding import encode_split
from auber.data.task import TaskData
from auber.data.task_types import get_task_type
from auber.errors import ConfigError, RunError, TaskError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.run import files
from auber.run.result_record import ResultRecord

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

NO_TOKENIZER = "a live model needs its tokenizer: pass tokenizer=AutoTokenizer.from_pretrained(...)"


@dataclass(frozen=True)
class FineTuned:
    """The model that a run starts from; not yet fine-tuned if its classifier is untrained."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    has_classifier: bool  # a trained one; otherwise it was drawn at random
    source: str | None = None  # folder or hub name; None for a live model
    result: ResultRecord | None = None  # of the run that the source is
    classes: tuple[str, ...] | None = None  # the names that a trained classifier came with

    @property
    def place(self) -> str:
        """The source, or the name of a live model."""
        return self.source or self.name

    @property
    def finetuning(self) -> ResultRecord | None:
        """The result of the `auber finetune` run that the model is from, None for others."""
        is_finetuning = self.result is not None and self.result.kind == "finetune"
        return self.result if is_finetuning else None


def load_fine_tuned(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    task: TaskData,
    config: Config,
    *,
    seed: int | None = None,
) -> FineTuned:
    """Return the named model, checked to fit the task.

    A missing classifier is drawn from `seed`, by default the seed of the settings.
    """
    if not isinstance(model, (str, Path)):
        return _copy_live(model, tokenizer, task)
    source = name = str(model)
    result = _read_result(source, task, config)
    loaded = checkpoint.load_classifier(
        source if result is None else Path(source) / "model",
        num_labels=task.num_labels,
        label_names=task.label_names,
        is_regression=task.is_regression,
        kind=task.kind,
        seed=config.seed if seed is None else seed,
    )
    encoder_of(loaded.model)  # raises for an unsupported architecture
    if Path(model).exists():
        source = str(Path(model).resolve())
        name = Path(source).name if result is None else result.model
    return FineTuned(
        loaded.model,
        tokenizer or loaded.tokenizer,
        name,
        loaded.is_trained,
        source,
        result,
        loaded.classes,
    )


def _read_result(source: str, task: TaskData, config: Config) -> ResultRecord | None:
    """Return the result of the run that a source is, None for others; raise if it does not fit."""
    run, is_run = files.find_run(source), files.is_run(source)
    if run is None:
        return None
    result = files.read_result_record(run)
    if result.data == task.content_hash:
        _check_held_out(source, result, config)
    elif is_run:
        raise RunError(
            f"{source}: was made with other rows (task {result.task}) than this run has (task "
            f"{task.name}); start from a run made with the same, or from the pretrained model"
        )
    if not is_run:
        return None
    files.check_digest(run / "model", result.model_sha256)
    return result


def _copy_live(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, task: TaskData
) -> FineTuned:
    """Copy a live model as its folder would be read: in float32 and with the task's labels."""
    if not hasattr(model, "config"):
        raise ConfigError(
            "model: must be a folder, a hub name, a finished run or a live transformers model, "
            f"found {type(model).__name__}"
        )
    if tokenizer is None:
        raise ConfigError(NO_TOKENIZER)
    name = type(model).__name__
    check_fit(model, tokenizer, task, f"the live {name}")
    copied = copy.deepcopy(model).float()
    classes = checkpoint.classes_of(model.config)
    if task.kind == "embeddings":
        checkpoint.require_modules(copied, f"the live {name}")
    checkpoint.name_outputs(
        copied, task.label_names, is_regression=task.is_regression, kind=task.kind
    )
    return FineTuned(copied, tokenizer, name, has_classifier=True, classes=classes)


def check_fit(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: TaskData, name: str
) -> None:
    """Raise unless a classifier has the task's type and labels, and knows all tokens."""
    found, wanted = encoder_of(model).task_type, get_task_type(task.kind)
    if found != wanted:
        raise TaskError(
            f"task {task.name}: is of kind {wanted.name} and needs a model ...{wanted.ending}, "
            f"found {type(model).__name__}; give a model of that kind ({wanted.auto_class})"
        )
    if wanted.label:
        names = None if task.label_names is None else list(task.label_names)
        checkpoint.check_labels(name, model.config, task.num_labels, names)
    checkpoint.check_vocabulary(name, model.config, tokenizer)


def check_lengths(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: TaskData,
    max_length: int,
    splits: Sequence[str] = ("train", "dev"),
) -> None:
    """Raise `ConfigError` if a row has more tokens than the model has positions."""
    most = encoder_of(model).most_tokens
    if most is None or max_length <= most:
        return
    for split in splits:
        longest = max(encode_split(tokenizer, task, split, max_length).lengths)
        if longest > most:
            raise ConfigError(
                f"task {task.name}: a {split} row has {longest} tokens and {type(model).__name__} "
                f"positions for {most}; set max_length={most}"
            )


def warn_of_classes(name: str, classes: tuple[str, ...] | None, task: TaskData) -> None:
    """Warn if a classifier names its outputs differently than the task names its classes."""
    if classes is not None and task.label_names is not None and classes != task.label_names:
        logger.warning(
            "%s: its classes are %s, the task's %s; they are matched in this order",
            name,
            ", ".join(classes),
            ", ".join(task.label_names),
        )


def _check_held_out(source: str, result: ResultRecord, config: Config) -> None:
    """Raise `RunError` if a run's model was tuned on rows that this run holds out."""
    if "heldout" not in (result.protocol, config.protocol):
        return
    for key, found, wanted in (
        ("protocol", result.protocol, config.protocol),
        ("seed", result.seed, config.seed),
        ("kind", result.kind, "finetune"),
    ):
        if found != wanted:
            raise RunError(
                f"{source}: was made with {key} {found!r}, this run has {wanted!r}; "
                "start from a run made with the same, or from the pretrained model"
            )
