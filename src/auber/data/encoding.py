"""Rows as token ids, and batches of them padded to their longest row.

`EncodedRows` is what the Trainer takes as a dataset and the scorer sorts by length: nothing in it is padded. Padding
happens in `pad_batch`, on the right, so that a batch costs what its longest row costs.

Words are joined by spaces and tokenized as the running text they are; a word's tag stands at its first token. Of a question
and its context the question stays whole and the context is cut at its end: a row is one window, there is no second one for
what lies behind it. An answer that does not lie in the window whole is none: a row left without one teaches nothing and, as
it is asked all the same, counts as missed where it is scored.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from auber.data.answers import AnyAnswers, Labels, Span, Spans, Tags
from auber.data.rows import Answer, AnyRows, QuestionRows, Rows, WordRows
from auber.data.task import TaskData
from auber.errors import ModelError, TaskError
from auber.metrics.tags import NO_TAG, read_scheme
from auber.metrics.task_metrics import Truth

logger = logging.getLogger(__name__)

INPUTS = (
    "input_ids",
    "token_type_ids",
    "attention_mask",
)  # what a model reads; all else of a batch is for its loss

Offsets = Sequence[
    tuple[int, int]
]  # the characters of each token, first and behind the last; (0, 0) for special ones


class EncodedRows(Dataset[dict[str, Any]]):
    """Token ids of each row with its answer; `token_types` is None for tokenizers that know no segments."""

    def __init__(
        self,
        input_ids: Sequence[Sequence[int]],
        token_types: Sequence[Sequence[int]] | None,
        answers: Tensor | AnyAnswers,
        pad_token_id: int = 0,
        num_cut: int = 0,
    ) -> None:
        # Texts that were longer; what that costs other kinds of rows is said where they are encoded.
        self.num_cut = num_cut
        self.input_ids = input_ids
        self.token_types = token_types
        self.answers = Labels(answers) if isinstance(answers, Tensor) else answers
        self.pad_token_id = pad_token_id

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.input_ids[index]
        features: dict[str, Any] = {"input_ids": ids}
        if self.token_types is not None:
            features["token_type_ids"] = self.token_types[index]
        features["attention_mask"] = [1] * len(ids)
        return features | self.answers.features(index)

    @property
    def kind(self) -> str:
        """What the rows are: one of `kinds.KINDS`."""
        return self.answers.kind

    @property
    def labels(self) -> Tensor:
        """The label of each row, (rows,): int64 classes or float32 targets; rows of other kinds have none."""
        if not isinstance(self.answers, Labels):
            raise TaskError(
                f"rows of kind {self.kind} have no label for a whole row; give rows of kind sequence"
            )
        return self.answers.labels

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict rather than classes."""
        return isinstance(self.answers, Labels) and self.answers.labels.is_floating_point()

    @cached_property
    def lengths(self) -> list[int]:
        """The number of tokens of each row."""
        return [len(ids) for ids in self.input_ids]

    @cached_property
    def content_hash(self) -> str:
        """A sha256 of all ids and answers in their order."""
        digest = hashlib.sha256(np.asarray(self.lengths, "<i8").tobytes())
        for columns in (self.input_ids, self.token_types or ()):
            for values in columns:
                digest.update(np.asarray(values, "<i8").tobytes())
            digest.update(b"|")
        for part in self.answers.digest():
            digest.update(part)
        return digest.hexdigest()

    def select(self, indices: Sequence[int]) -> EncodedRows:
        """The rows at these indices, in their order."""
        token_types = (
            None if self.token_types is None else [self.token_types[index] for index in indices]
        )
        input_ids = [self.input_ids[index] for index in indices]
        return EncodedRows(input_ids, token_types, self.answers.select(indices), self.pad_token_id)

    def truth(self, device: torch.device, order: Sequence[int] | None = None) -> Truth:
        """What a metric compares the logits of all rows with, in this order or their own."""
        return self.answers.truth(
            range(len(self)) if order is None else order, self.lengths, device
        )


def encode_split(tokenizer: Any, task: TaskData, split: str, max_length: int) -> EncodedRows:
    """The rows of a task's train or dev as this tokenizer writes them, cut to `max_length` tokens."""
    return _ENCODERS[task.kind](tokenizer, task, split, max_length)


def encode_rows(tokenizer: Any, rows: AnyRows, max_length: int, is_regression: bool) -> EncodedRows:
    """Labelled texts as this tokenizer writes them, cut to `max_length` tokens at the end of the longer text."""
    if not isinstance(rows, Rows):
        raise TaskError(
            f"rows of kind sequence are needed here, found rows of kind {rows.kind}; give texts with labels"
        )
    _require_padding(tokenizer)
    encoded = tokenizer(
        list(rows.first),
        None if rows.second is None else list(rows.second),
        truncation="longest_first",
        max_length=max_length,
        padding=False,
    )
    labels = torch.tensor(rows.labels, dtype=torch.float32 if is_regression else torch.int64)
    num_cut = sum(
        bool(row.overflowing) for row in encoded.encodings or ()
    )  # a tokenizer in Python does not say
    return EncodedRows(
        encoded["input_ids"], encoded.get("token_type_ids"), labels, tokenizer.pad_token_id, num_cut
    )


def encode_words(
    tokenizer: Any, rows: WordRows, max_length: int, label_names: Sequence[str]
) -> EncodedRows:
    """Tagged words as this tokenizer writes their text, cut to `max_length` tokens.

    Words that the cut leaves out, and those a tokenizer makes nothing of, are neither learned nor scored; a warning counts
    them.
    """
    _require_padding(tokenizer)
    _require_offsets(tokenizer)
    encoded = tokenizer(
        [" ".join(words) for words in rows.words],
        truncation=True,
        max_length=max_length,
        padding=False,
        return_offsets_mapping=True,
    )
    tags = [
        _tags_of(*row) for row in zip(encoded["offset_mapping"], rows.words, rows.tags, strict=True)
    ]
    total = sum(map(len, rows.words))
    left_out = total - sum(tag != NO_TAG for row in tags for tag in row)
    if left_out:
        logger.warning(
            "%d of %d words have no token within max_length %d and are neither learned nor scored; raise max_length",
            left_out, total, max_length,
        )  # fmt: skip
    answers = Tags(tags, read_scheme(label_names))
    return EncodedRows(
        encoded["input_ids"], encoded.get("token_type_ids"), answers, tokenizer.pad_token_id
    )


def encode_questions(
    tokenizer: Any, rows: QuestionRows, max_length: int, where: str
) -> EncodedRows:
    """Questions and contexts as this tokenizer writes them, the context cut so that a row has `max_length` tokens at most.

    `where` names the rows in messages. Rows whose answers the cut leaves out are counted in a warning.
    """
    _require_padding(tokenizer)
    _require_offsets(tokenizer)
    _require_room(tokenizer, rows, max_length, where)
    encoded = tokenizer(
        list(rows.questions),
        list(rows.contexts),
        truncation="only_second",
        max_length=max_length,
        padding=False,
        return_offsets_mapping=True,
    )
    contexts: list[Span] = []
    spans: list[list[Span]] = []
    for row, (offsets, answers) in enumerate(
        zip(encoded["offset_mapping"], rows.answers, strict=True)
    ):
        tokens = [place for place, text in enumerate(encoded.sequence_ids(row)) if text == 1]
        context = (tokens[0], tokens[-1]) if tokens else (0, -1)
        contexts.append(context)
        found = [
            span for answer in answers if (span := _span_of(answer, offsets, context)) is not None
        ]
        spans.append(list(dict.fromkeys(found)))
    left_out = sum(not found for found in spans)
    if left_out:
        logger.warning(
            "%s: %d of %d rows have no answer within max_length %d: they teach nothing and count as missed; raise max_length",
            where, left_out, len(rows), max_length,
        )  # fmt: skip
    return EncodedRows(
        encoded["input_ids"],
        encoded.get("token_type_ids"),
        Spans(spans, contexts),
        tokenizer.pad_token_id,
    )


def pad_batch(
    features: Sequence[dict[str, Any]], pad_token_id: int, pad_to_multiple_of: int = 1
) -> dict[str, Tensor]:
    """One batch: what is given for each token is (batch, longest row), what is given for a row (batch,).

    A data collator once `pad_token_id` is bound.
    """
    lengths = np.array([len(row["input_ids"]) for row in features])
    width = -(-int(lengths.max()) // pad_to_multiple_of) * pad_to_multiple_of
    filled = np.arange(width) < lengths[:, None]  # (batch, width)
    batch: dict[str, Tensor] = {}
    for key, values in flat_columns(features).items():
        if isinstance(values, Tensor):
            batch[key] = values
            continue
        column = np.full((len(features), width), padding_of(key, pad_token_id), dtype=np.int64)
        column[filled] = values
        batch[key] = torch.from_numpy(column)
    return batch


def flat_columns(features: Sequence[dict[str, Any]]) -> dict[str, Tensor | NDArray[np.int32]]:
    """What rows have, by name: a tensor (rows,) where it is given for a row, for each token an array (tokens,), row after row."""
    lengths = [len(row["input_ids"]) for row in features]
    columns: dict[str, Tensor | NDArray[np.int32]] = {}
    for key, value in features[0].items():
        if isinstance(value, (int, float)):
            dtype = torch.float32 if isinstance(value, float) else torch.int64
            columns[key] = torch.tensor([row[key] for row in features], dtype=dtype)
            continue
        if [len(row[key]) for row in features] != lengths:
            raise TaskError(
                f"rows to pad: column '{key}' must have one value for each token of input_ids; leave it out, or give one"
            )
        # All rows at once: row by row takes several times as long, and every tuning begins with it.
        columns[key] = np.fromiter(
            chain.from_iterable(row[key] for row in features), np.int32, sum(lengths)
        )
    return columns


def padding_of(key: str, pad_token_id: int) -> int:
    """What stands in a column behind the tokens of a row."""
    return {"input_ids": pad_token_id, "labels": NO_TAG}.get(key, 0)


def part_batch(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A batch as what the model reads and what its loss takes."""
    inputs = {name: tensor for name, tensor in batch.items() if name in INPUTS}
    return inputs, {name: tensor for name, tensor in batch.items() if name not in INPUTS}


def _tags_of(offsets: Offsets, words: Sequence[str], tags: Sequence[int]) -> list[int]:
    """The tag of each token of the words' text: a word's tag at its first token, NO_TAG elsewhere."""
    word_of: list[int] = []  # the word of each character, -1 for the space behind it
    for number, word in enumerate(words):
        word_of += [number] * len(word) + [-1]
    placed, seen = [], -1
    for start, end in offsets:
        # Some tokenizers begin a token at the space before its word: its last character tells which one.
        word_number = word_of[end - 1] if end > start else -1
        placed.append(tags[word_number] if word_number > seen else NO_TAG)
        seen = max(seen, word_number)
    return placed


def _span_of(answer: Answer, offsets: Offsets, context: Span) -> Span | None:
    """The tokens of the context that share characters with an answer, None where the context does not hold all of it."""
    start, end = answer.start, answer.start + len(answer.text.rstrip())
    touched = [
        place
        for place in range(context[0], context[1] + 1)
        if offsets[place][0] < end
        and offsets[place][1] > start
        and offsets[place][1] > offsets[place][0]
    ]
    if not touched or max(offsets[place][1] for place in range(context[0], context[1] + 1)) < end:
        return None
    return touched[0], touched[-1]


def _encode_sequence(tokenizer: Any, task: TaskData, split: str, max_length: int) -> EncodedRows:
    rows = getattr(task, split)
    return encode_rows(tokenizer, rows, max_length, task.is_regression)


def _encode_tokens(tokenizer: Any, task: TaskData, split: str, max_length: int) -> EncodedRows:
    assert task.label_names is not None
    return encode_words(tokenizer, getattr(task, split), max_length, task.label_names)


def _encode_spans(tokenizer: Any, task: TaskData, split: str, max_length: int) -> EncodedRows:
    return encode_questions(tokenizer, getattr(task, split), max_length, f"{task.name}: {split}")


def _require_padding(tokenizer: Any) -> None:
    if tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} has no padding token, so rows cannot be batched; "
            "set tokenizer.pad_token"
        )


def _require_offsets(tokenizer: Any) -> None:
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} does not say which characters a token stands for, which tags and "
            "answers need; use a fast one"
        )


def _require_room(tokenizer: Any, rows: QuestionRows, max_length: int, where: str) -> None:
    """A question that fills the window leaves nothing to find the answer in."""
    special = tokenizer.num_special_tokens_to_add(pair=True)
    questions = tokenizer(
        list(rows.questions), add_special_tokens=False, padding=False, truncation=False
    )["input_ids"]
    for row, question in enumerate(questions):
        if len(question) + special >= max_length:
            raise TaskError(
                f"{where} row {row}: the question's {len(question)} tokens and {special} special ones leave no room for the "
                f"context within max_length {max_length}; raise max_length or shorten the question"
            )


_ENCODERS: dict[str, Callable[[Any, TaskData, str, int], EncodedRows]] = {
    "sequence": _encode_sequence,
    "tokens": _encode_tokens,
    "spans": _encode_spans,
}
