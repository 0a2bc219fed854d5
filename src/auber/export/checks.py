"""Checks of an export: its logits, or the answers that follow from them, against the model's own.

Logits may differ by rounding. Those of quantised weights differ by more, and what counts is how
many answers do: the class of a text, the tag of a word, the best span of a context. For a model
that predicts a number, an answer is which of two rows has the larger one, because most such models
are used to rank; for a sentence encoder it is which other row is nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from auber.data.encoding import EncodedRows, encode_split
from auber.data.files import read_records
from auber.data.rows import check_text, check_words
from auber.data.targets import AnyTargets, Labels, Spans, Tags, Vectors
from auber.data.task import TaskData
from auber.data.texts import Texts
from auber.data.user_rows import split_names
from auber.errors import CheckpointError, TaskError
from auber.export import WARN_ABOVE
from auber.export.source import Source, in_float32
from auber.metrics.spans import best_spans
from auber.models.random_rows import random_rows
from auber.training.evaluation import predict

ALLOWED_DIFFERENCE = 1e-3  # between logits; rounding alone stays far below
# Batches to compare logits on: rows, length, whether padded. One token, one row, one padded row,
# uneven batches, and batches longer than those that a graph is traced with.
_BATCHES = (
    (1, 1, False),
    (1, 9, False),
    (1, 16, True),
    (2, 1, False),
    (3, 32, True),
    (5, 128, True),
    (4, 128, False),
)
_RANDOM_ROWS, _LONGEST = 128, 128  # to compare answers on
_TOKENS_PER_BATCH = 2048  # 16 rows of 128 tokens

ModelCall = Callable[..., Any]  # from the inputs of a batch, by name, to an output like the model's


@dataclass(frozen=True)
class LogitCheck:
    """How far logits are from the model's own."""

    rows: int
    largest_difference: float

    @property
    def words(self) -> str:
        """The finding as a line of text."""
        return (
            f"checked on {self.rows} random rows: largest logit difference "
            f"{self.largest_difference:.2g} (allowed: {ALLOWED_DIFFERENCE:g})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON types."""
        return {**asdict(self), "allowed": ALLOWED_DIFFERENCE}


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
        share = self.different / max(self.compared, 1)
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


def check_logits(source: Source, exported: ModelCall) -> LogitCheck:
    """Raise `CheckpointError` unless the logits are the model's own."""
    difference = largest_difference(source, exported)
    if not difference <= ALLOWED_DIFFERENCE:  # true for NaN too
        raise CheckpointError(
            f"{source.name}: the exported logits must be the model's own to "
            f"{ALLOWED_DIFFERENCE:g}, found a difference of {difference:.3g}; nothing was kept, "
            "please report it with the versions of torch and transformers"
        )
    return LogitCheck(sum(rows for rows, _, _ in _BATCHES), difference)


@torch.inference_mode()
def largest_difference(source: Source, exported: ModelCall) -> float:
    """Return the largest difference of a logit from the model's, outside padding, in float32."""
    model, outputs, encoder = in_float32(source.model), source.outputs, source.encoder
    found = []
    for seed, (rows, length, padded) in enumerate(_BATCHES):
        length = min(length, encoder.num_positions)
        batch = random_rows(
            encoder, source.inputs, rows=rows, length=length, padded=padded, seed=seed
        )
        own, other = (
            outputs.pack(outputs.logits(compute(**batch)), batch["attention_mask"])
            for compute in (model, exported)
        )
        found.append((own - other).abs().max())
    return float(torch.stack(found).max())  # unlike Python's max, torch's propagates NaN


def check_answers(source: Source, exported: nn.Module, rows: EncodedRows | None) -> AnswerCheck:
    """Compare the answers to these rows, or to random ones."""
    given, rows = rows, rows or _draw_rows(source)
    models: Any = in_float32(source.model), exported
    own, other = (predict(model, rows, _TOKENS_PER_BATCH) for model in models)
    if not other.isfinite().all():
        raise CheckpointError(
            f"{source.name}: some logits of the quantised graph are NaN or infinite; nothing was "
            "kept, export --to onnx"
        )
    name, different = _differences(rows, own, other)
    return AnswerCheck(len(rows), given is None, name, different.numel(), int(different.sum()))


def _differences(rows: EncodedRows, own: Tensor, other: Tensor) -> tuple[str, Tensor]:
    """Return what is compared, and whether each answer differs."""
    truth: Any = rows.truth(torch.device("cpu"))
    if rows.kind == "spans":
        return "spans", (best_spans(own, truth) != best_spans(other, truth)).any(1)
    if rows.kind == "tokens":
        return "tags", own[truth.places].argmax(-1) != other[truth.places].argmax(-1)
    if rows.kind == "embeddings":
        return "nearest rows", _nearest(own) != _nearest(other)
    if own.shape[-1] > 1:
        return "classes", own.argmax(-1) != other.argmax(-1)
    first, second = torch.combinations(torch.arange(len(own))).T
    one, two = ((each[first] - each[second]).sign().flatten() for each in (own, other))
    return "orders of two rows", one != two


def _nearest(vectors: Tensor) -> Tensor:
    """Return the other row that is nearest to each row: (rows,)."""
    unit = F.normalize(vectors, dim=-1)
    return (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(1)


def read_rows(source: Source, path: Path, text: str | None) -> EncodedRows:
    """Return the rows of a file, of which only the text columns are read."""
    kind = source.task_type
    columns = split_names(text) or kind.text
    values: list[list[Any]] = [
        [_checked(fields[column], f"{place}, column '{column}'", kind.name) for column in columns]
        for place, fields in read_records(path, columns)
    ]
    if len(values) < 2:
        raise TaskError(f"{path}: at least two rows are needed, found {len(values)}; add some")
    counts = {"sequence": (1, 2), "tokens": (1,), "spans": (2,), "embeddings": (1,)}
    if len(columns) not in counts[kind.name]:
        raise TaskError(
            f"--text: rows of kind {kind.name} have the text columns {', '.join(kind.text)}, found "
            f"{len(columns)} of them; correct it"
        )
    texts = [tuple(column) for column in zip(*values, strict=True)]
    # Labels are needed to encode rows, but only the models' answers are compared.
    rows = Texts(str(path), tuple(texts)).make_rows(kind)
    task = TaskData(str(path), rows, rows, ("O",), kind.metric)
    return encode_split(source.tokenizer, task, "dev", source.row_length)


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
    batch = random_rows(
        source.encoder,
        source.inputs,
        rows=_RANDOM_ROWS,
        length=min(_LONGEST, source.row_length),
        padded=True,
    )
    lengths = batch["attention_mask"].sum(1).tolist()
    ids, types = (
        [row[:length].tolist() for row, length in zip(batch[name], lengths, strict=True)]
        if name in batch
        else None
        for name in ("input_ids", "token_type_ids")
    )
    targets: dict[str, AnyTargets] = {
        "sequence": Labels(torch.zeros(len(lengths), dtype=torch.int64)),
        "tokens": Tags([[0] * length for length in lengths], None),
        "spans": Spans([()] * len(lengths), [(0, length - 1) for length in lengths]),
        "embeddings": Vectors(torch.zeros(len(lengths), 1)),
    }
    return EncodedRows(
        ids or [], types, targets[source.task_type.name], source.tokenizer.pad_token_id or 0
    )
