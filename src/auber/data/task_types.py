"""The types of task: what a row is, and which transformers class has the head for it.

The name of a type is what `--kind` takes. What else differs between types has one entry or class
each in `rows` (checks), `user_rows` (reading), `encoding` (tokenisation), `targets` and
`auber.training.outputs` (losses). This module imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from auber.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class TaskType:
    """One type of task."""

    name: str
    doc: str  # what a row is
    ending: str  # of the names of its transformers classes
    mapping: str  # transformers' table from configs to these classes
    reads_all: bool  # its head reads every token of a row, not one vector per row
    metric: str  # the default
    text: tuple[str, ...]  # default columns of your own rows
    label: str  # "" if the labels are the answers of a model, and never a column

    @property
    def auto_class(self) -> str:
        """The Auto class of transformers that loads its models."""
        return f"AutoModel{self.ending.removeprefix('Model')}"

    def model_class(self, config: PreTrainedConfig) -> type[PreTrainedModel]:
        """Return the class of a model with this config."""
        import transformers

        classes: Any = getattr(transformers, self.mapping)
        found: type[PreTrainedModel] = classes[type(config)]
        return found


def get_task_type(name: str) -> TaskType:
    """Return the task type of that name."""
    if name not in TASK_TYPES:
        raise ConfigError(unknown_name("kind", name, TASK_TYPES))
    return TASK_TYPES[name]


def task_type_of_class(class_name: str | None) -> TaskType | None:
    """Return the task type of a transformers class; None if it has no head of these types."""
    for task_type in TASK_TYPES.values():
        if class_name is not None and class_name.endswith(task_type.ending):
            return task_type
    return None


def task_type_of_config(config: PreTrainedConfig) -> TaskType | None:
    """Return the task type of the class that a config names; None if it names none of these."""
    return task_type_of_class(str(config.architectures[0]) if config.architectures else None)


TASK_TYPES = {
    task_type.name: task_type
    for task_type in (
        TaskType(
            name="sequence",
            doc="one or two texts with a class, or with a number to predict",
            ending="ForSequenceClassification",
            mapping="MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
            reads_all=False,
            metric="accuracy",
            text=("text",),
            label="label",
        ),
        TaskType(
            name="tokens",
            doc="a list of words with a tag each",
            ending="ForTokenClassification",
            mapping="MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
            reads_all=True,
            metric="entity_f1",
            text=("tokens",),
            label="tags",
        ),
        TaskType(
            name="spans",
            doc="a question and a context that holds the answer",
            ending="ForQuestionAnswering",
            mapping="MODEL_FOR_QUESTION_ANSWERING_MAPPING",
            reads_all=True,
            metric="span_f1",
            text=("question", "context"),
            label="answers",
        ),
        TaskType(
            name="embeddings",
            doc="a text, without a label; a model turns it into a vector",
            ending="Model",  # an encoder without a head
            mapping="MODEL_MAPPING",
            reads_all=False,
            metric="pair_spearman",
            text=("text",),
            label="",
        ),
    )
}
