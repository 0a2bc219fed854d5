"""How many answers of a quantised model differ from those of the model itself.

An answer is the class of a text, the tag of a word, or the best span of a context. For a model that
predicts a number it is which of two rows has the larger one, because a ranking is what most such
models are used for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from auber.data.encoding import EncodedRows, encode_questions, encode_rows, encode_words
from auber.data.files import read_records
from auber.data.rows import Answer, QuestionRows, Rows, WordRows, check_text, check_words
from auber.data.targets import AnyTargets, Labels, Spans, Tags
from auber.data.user_rows import split_names
from auber.errors import CheckpointError, TaskError
from auber.export import WARN_ABOVE
from auber.export.source import Source, in_float32
from auber.metrics.spans import best_spans
from auber.models.random_rows import random_rows
from auber.training.evaluation import predict

_RANDOM_ROWS, _LONGEST = 128, 128
_TOKENS_PER_BATCH = 2048  # 16 rows of 128 tokens


@dataclass(frozen=True)
class AnswerCheck:
    """How many answers differ."""

    rows: int
    are_random: bool
    answers: str  # what is compared
    compared: int
    different: int

    @property
    def words(self) -> str:
        """The finding as lines of text."""
        share = self.different / self.compared
        kind = "random rows" if self.are_random else "rows"
        lines = [
            f"checked on {self.rows} {kind}: {self.different:,} of {self.compared:,} "
            f"{self.answers} ({100 * share:.1f} %) differ from the float32 model"
        ]
        if share > WARN_ABOVE:
            lines.append(
                f"warning: more than {100 * WARN_ABOVE:g} % of the answers differ; compare scores "
                "before you use it, or export --to onnx"
            )
        if self.are_random:
            lines.append("random rows are unlike yours: check on your own with --rows FILE")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON types."""
        return {**asdict(self), "warn_above": WARN_ABOVE}


class _Computed(nn.Module):
    """What computes an exported folder, in the form of a model."""

    device = torch.device("cpu")

    def __init__(self, compute: Callable[[dict[str, Tensor]], Any], inputs: tuple[str, ...]):
        super().__init__()
        self.compute, self.inputs = compute, inputs

    def forward(self, **batch: Tensor) -> Any:
        return self.compute({name: batch[name] for name in self.inputs})


def compare_answers(source: Source, compute: Callable[[dict[str, Tensor]], Any]) -> AnswerCheck:
    """Compare the answers to the rows of the source, or else to random ones."""
    rows = source.rows or _draw_rows(source)
    computed: Any = _Computed(compute, source.inputs)
    own, other = (
        predict(model, rows, _TOKENS_PER_BATCH) for model in (in_float32(source.model), computed)
    )
    if not other.isfinite().all():
        raise CheckpointError(
            "some logits of the quantised graph are NaN or infinite; nothing was kept, export "
            "--to onnx"
        )
    name, different = _differences(rows, own, other)
    return AnswerCheck(
        len(rows), source.rows is None, name, different.numel(), int(different.sum())
    )


def _differences(rows: EncodedRows, own: Tensor, other: Tensor) -> tuple[str, Tensor]:
    """Return what is compared, and whether each answer differs."""
    truth: Any = rows.truth(torch.device("cpu"))
    if rows.kind == "spans":
        return "spans", (best_spans(own, truth) != best_spans(other, truth)).any(1)
    if rows.kind == "tokens":
        return "tags", own[truth.places].argmax(-1) != other[truth.places].argmax(-1)
    if own.shape[-1] > 1:
        return "classes", own.argmax(-1) != other.argmax(-1)
    first, second = torch.combinations(torch.arange(len(own))).T
    one, two = ((each[first] - each[second]).sign().flatten() for each in (own, other))
    return "orders of two rows", one != two


def read_rows(source: Source, path: Path, text: str | None) -> EncodedRows:
    """Return the rows of a file, of which only the text columns are read."""
    kind, where = source.task_type, str(path)
    columns = split_names(text) or kind.text
    tokenizer, longest = source.tokenizer, source.row_length
    values: list[list[Any]] = [
        [_checked(fields[column], f"{place}, column '{column}'", kind.name) for column in columns]
        for place, fields in read_records(path, columns)
    ]
    if len(values) < 2:
        raise TaskError(f"{where}: at least two rows are needed, found {len(values)}; add some")
    if len(columns) not in {"sequence": (1, 2), "tokens": (1,), "spans": (2,)}[kind.name]:
        raise TaskError(
            f"--text: rows of kind {kind.name} have the text columns {', '.join(kind.text)}, found "
            f"{len(columns)} of them; correct it"
        )
    texts = [tuple(column) for column in zip(*values, strict=True)]
    # The labels stand for nothing: only answers are compared.
    if kind.name == "tokens":
        tags = tuple((0,) * len(words) for words in texts[0])
        return encode_words(tokenizer, WordRows(texts[0], tags), longest, ("O",))
    if kind.name == "spans":
        answers = tuple((Answer(context[:1], 0),) for context in texts[1])
        return encode_questions(
            tokenizer, QuestionRows(texts[0], texts[1], answers), longest, where
        )
    return encode_rows(tokenizer, Rows.from_columns(texts, [0] * len(values)), longest, False)


def _checked(value: Any, where: str, kind: str) -> Any:
    """Return a text, or the words of one; raise `TaskError` for anything else."""
    if kind == "tokens":
        words = tuple(map(str, value)) if isinstance(value, (list, tuple)) else ()
        check_words(words, words, where)
        return words
    if not isinstance(value, str):
        raise TaskError(f"{where}: must be text, found {type(value).__name__}; put it in quotes")
    check_text(value, where)
    return value


def _draw_rows(source: Source) -> EncodedRows:
    longest = min(_LONGEST, source.row_length)
    batch = random_rows(
        source.encoder, source.inputs, rows=_RANDOM_ROWS, length=longest, padded=True
    )
    lengths = batch["attention_mask"].sum(1).tolist()
    ids, types = (
        [row[:length] for row, length in zip(batch[name].tolist(), lengths, strict=True)]
        if name in batch
        else None
        for name in ("input_ids", "token_type_ids")
    )
    targets: dict[str, AnyTargets] = {
        "sequence": Labels(torch.zeros(len(lengths), dtype=torch.int64)),
        "tokens": Tags([[0] * length for length in lengths], None),
        "spans": Spans([()] * len(lengths), [(0, length - 1) for length in lengths]),
    }
    return EncodedRows(
        ids or [], types, targets[source.task_type.name], source.tokenizer.pad_token_id or 0
    )
