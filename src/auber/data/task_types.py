"""The kinds of task: what a row is, and which transformers class has the head that answers it.

One table, read wherever the kinds differ: which class a model of the kind is, which tokens its head reads, which columns
the rows of a file have, and which metric they are scored by unless another is named. How labels are encoded is in
`tasks/answers.py`, what becomes of a model's outputs in `outputs.py`; both have one entry a kind. Loads nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from auber.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Kind:
    """One kind of task."""

    name: str
    doc: str  # what a row is
    ending: str  # of the names of its transformers classes
    mapping: str  # transformers' table from configs to these classes
    reads_all: bool  # its head reads every token of a row, not one vector for all of them
    metric: str  # unless another is named
    text: tuple[str, ...]  # columns of your own rows, unless others are named
    label: str

    @property
    def auto_class(self) -> str:
        """The Auto class of transformers that loads its models."""
        return f"AutoModel{self.ending}"

    def model_class(self, config: PreTrainedConfig) -> type[PreTrainedModel]:
        """The class of a model with this config."""
        import transformers

        classes: Any = getattr(transformers, self.mapping)
        found: type[PreTrainedModel] = classes[type(config)]
        return found


def get_kind(name: str) -> Kind:
    """The kind of that name."""
    if name not in KINDS:
        raise ConfigError(unknown_name("kind", name, KINDS))
    return KINDS[name]


def kind_of_class(class_name: str | None) -> Kind | None:
    """The kind that models of a class answer, None where they answer none of them."""
    for kind in KINDS.values():
        if class_name is not None and class_name.endswith(kind.ending):
            return kind
    return None


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="sequence",
            doc="one or two texts with a class, or with a number to predict",
            ending="ForSequenceClassification",
            mapping="MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
            reads_all=False,
            metric="accuracy",
            text=("text",),
            label="label",
        ),
        Kind(
            name="tokens",
            doc="a list of words with a tag each",
            ending="ForTokenClassification",
            mapping="MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
            reads_all=True,
            metric="entity_f1",
            text=("tokens",),
            label="tags",
        ),
        Kind(
            name="spans",
            doc="a question and a context that holds the answer",
            ending="ForQuestionAnswering",
            mapping="MODEL_FOR_QUESTION_ANSWERING_MAPPING",
            reads_all=True,
            metric="span_f1",
            text=("question", "context"),
            label="answers",
        ),
    )
}
