"""Tokenise rows, and pad batches of them to their longest row.

`EncodedRows` is a dataset for the Trainer and for the scorer, without padding. `pad_batch` pads on
the right.

Words are joined by spaces and tokenised as running text; the tag of a word stands at its first
token. A question stays whole, and its context is cut at the end: a row is one window, without a
second one for the rest. An answer that is not in the window as a whole is dropped. A row without an
answer teaches nothing but counts as missed in a score.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from auber.data.rows import Answer, AnyRows, QuestionRows, Rows, TextRows, WordRows
from auber.data.targets import AnyTargets, Labels, Span, Spans, Tags, Vectors
from auber.data.task import TaskData
from auber.data.task_types import get_task_type
from auber.errors import ModelError, TaskError
from auber.metrics.tags import NO_TAG, read_scheme
from auber.metrics.task_metrics import Truth

logger = logging.getLogger(__name__)

# What a model reads; everything else in a batch is for its loss.
INPUTS = ("input_ids", "token_type_ids", "attention_mask")
TAUGHT = "taught"  # the column of a teacher's stored outputs

# The characters of each token, from the first to behind the last; (0, 0) for special tokens.
Offsets = Sequence[tuple[int, int]]


class EncodedRows(Dataset[dict[str, Any]]):
    """Token ids and targets of rows; `token_types` is None if the tokenizer has no segments."""

    def __init__(
        self,
        input_ids: Sequence[Sequence[int]],
        token_types: Sequence[Sequence[int]] | None,
        targets: Tensor | AnyTargets,
        pad_token_id: int = 0,
        num_cut: int = 0,
        taught: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.input_ids, self.token_types, self.pad_token_id = input_ids, token_types, pad_token_id
        self.targets = Labels(targets) if isinstance(targets, Tensor) else targets
        # Rows with a longer text. The other task types log their own warning.
        self.num_cut = num_cut
        # A teacher's outputs for each row: (labels,), or (tokens, labels) if it has some for each.
        self.taught = taught

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.input_ids[index]
        features: dict[str, Any] = {"input_ids": ids}
        if self.token_types is not None:
            features["token_type_ids"] = self.token_types[index]
        features["attention_mask"] = [1] * len(ids)
        features |= self.targets.features(index)
        if self.taught is not None:
            features[TAUGHT] = self.taught[index]
        return features

    @property
    def kind(self) -> str:
        """The name of the task type."""
        return self.targets.kind

    @property
    def labels(self) -> Tensor:
        """The label of each row, (rows,): int64 classes or float32 targets."""
        if not isinstance(self.targets, Labels):
            raise TaskError(
                f"rows of kind {self.kind} have no label for a whole row; "
                "give rows of kind sequence"
            )
        return self.targets.labels

    @cached_property
    def lengths(self) -> list[int]:
        """The number of tokens of each row."""
        return [len(ids) for ids in self.input_ids]

    @cached_property
    def content_hash(self) -> str:
        """The SHA-256 of all ids and targets in their order."""
        digest = hashlib.sha256(np.asarray(self.lengths, "<i8").tobytes())
        for columns in (self.input_ids, self.token_types or ()):
            for values in columns:
                digest.update(np.asarray(values, "<i8").tobytes())
            digest.update(b"|")
        for part in self.targets.digest():
            digest.update(part)
        return digest.hexdigest()

    def select(self, indices: Sequence[int]) -> EncodedRows:
        """Return the rows at these indices, in their order."""
        ids, types = self.input_ids, self.token_types
        return EncodedRows(
            [ids[index] for index in indices],
            None if types is None else [types[index] for index in indices],
            self.targets.select(indices),
            self.pad_token_id,
            taught=None if self.taught is None else [self.taught[index] for index in indices],
        )

    def with_taught(self, outputs: Tensor) -> EncodedRows:
        """Return the rows with a teacher's outputs, packed as `auber.training.outputs` does it."""
        values = outputs.float().numpy()
        taught: Sequence[np.ndarray] = list(values)
        if get_task_type(self.kind).reads_all:
            taught = np.split(values, np.cumsum(self.lengths)[:-1])
        return EncodedRows(
            self.input_ids, self.token_types, self.targets, self.pad_token_id, taught=taught
        )

    def with_noise(self, copies: int, share: float, fixed: Sequence[int], seed: int) -> EncodedRows:
        """Return the rows, and copies of them whose noise changes each time a copy is read.

        A `share` of a copy's tokens is drawn from those of all rows; the `fixed` tokens, such as
        separators, stay. Stored outputs of a teacher are left out.
        """
        return _NoisyRows(self, copies, share, fixed, seed)

    def truth(self, device: torch.device, order: Sequence[int] | None = None) -> Truth:
        """Return what a metric compares logits with, for the rows in this or their own order."""
        order = range(len(self)) if order is None else order
        return self.targets.truth(order, self.lengths, device)


class _NoisyRows(EncodedRows):
    """Rows and noisy copies of them; the noise depends on the seed and the order of reading."""

    def __init__(
        self, rows: EncodedRows, copies: int, share: float, fixed: Sequence[int], seed: int
    ) -> None:
        repeated = rows.select([*range(len(rows))] * (1 + copies))
        super().__init__(
            repeated.input_ids, repeated.token_types, repeated.targets, repeated.pad_token_id
        )
        tokens = np.fromiter(chain.from_iterable(rows.input_ids), np.int64, sum(rows.lengths))
        self._drawn_from = tokens[~np.isin(tokens, fixed)]
        self._num_rows, self._share, self._fixed = len(rows), share, fixed
        self._generator = np.random.default_rng(seed)
        import os

        if os.environ.get("AUBER_FIXED"):
            self.input_ids = [self[row]["input_ids"] for row in range(len(self))]
            self._share = 0.0

    def __getitem__(self, index: int) -> dict[str, Any]:
        features = super().__getitem__(index)
        if index >= self._num_rows:
            ids, draw = np.array(features["input_ids"]), self._generator
            is_other = ~np.isin(ids, self._fixed) & (draw.random(len(ids)) < self._share)
            ids[is_other] = draw.choice(self._drawn_from, is_other.sum())
            features["input_ids"] = ids.tolist()
        return features


def encode_split(tokenizer: Any, task: TaskData, split: str, max_length: int) -> EncodedRows:
    """Return train or dev of a task as token ids, cut to `max_length` tokens."""
    rows: AnyRows = getattr(task, split)
    if isinstance(rows, WordRows):
        names = task.label_names or ()
        return encode_words(tokenizer, rows, max_length, names, task.place(split))
    if isinstance(rows, QuestionRows):
        return encode_questions(tokenizer, rows, max_length, task.place(split))
    if isinstance(rows, TextRows):
        known = [vector for vector in rows.labels if vector is not None]
        vectors = np.stack(known) if known else np.zeros((len(rows), 0), np.float32)
        targets = Vectors(torch.from_numpy(vectors))
        return _encode_texts(tokenizer, rows.first, None, max_length, targets)
    return encode_rows(tokenizer, rows, max_length, task.is_regression)


def encode_rows(tokenizer: Any, rows: Rows, max_length: int, is_regression: bool) -> EncodedRows:
    """Return labelled texts as token ids; the longer text of a row is cut at its end."""
    labels = torch.tensor(rows.labels, dtype=torch.float32 if is_regression else torch.int64)
    return _encode_texts(tokenizer, rows.first, rows.second, max_length, Labels(labels))


def _encode_texts(
    tokenizer: Any,
    first: Sequence[str],
    second: Sequence[str] | None,
    max_length: int,
    targets: AnyTargets,
) -> EncodedRows:
    _check_tokenizer(tokenizer, needs_offsets=False)
    encoded = tokenizer(
        list(first),
        None if second is None else list(second),
        truncation="longest_first",
        max_length=max_length,
    )
    # Only a fast tokenizer reports what it cut.
    num_cut = sum(bool(row.overflowing) for row in encoded.encodings or ())
    return _encoded_rows(tokenizer, encoded, targets, num_cut)


def encode_words(
    tokenizer: Any, rows: WordRows, max_length: int, label_names: Sequence[str], where: str
) -> EncodedRows:
    """Return tagged words as token ids; `where` names the rows in messages.

    Words that are cut off, or that the tokenizer drops, are neither learned nor scored; a warning
    counts them.
    """
    _check_tokenizer(tokenizer, needs_offsets=True)
    texts = [" ".join(words) for words in rows.words]
    encoded = tokenizer(texts, truncation=True, max_length=max_length, return_offsets_mapping=True)
    tags = [
        _tags_of(*row)
        for row in zip(encoded["offset_mapping"], rows.words, rows.labels, strict=True)
    ]
    total = sum(map(len, rows.words))
    num_cut = total - sum(tag != NO_TAG for row in tags for tag in row)
    if num_cut:
        logger.warning(
            "%s: %d of %d words have no token within max_length %d and are neither "
            "learned nor scored; raise max_length",
            where, num_cut, total, max_length,
        )  # fmt: skip
    return _encoded_rows(tokenizer, encoded, Tags(tags, read_scheme(label_names)))


def encode_questions(
    tokenizer: Any, rows: QuestionRows, max_length: int, where: str
) -> EncodedRows:
    """Return questions with their contexts as token ids; `where` names the rows in messages.

    A warning counts the rows whose answers are cut off.
    """
    _check_tokenizer(tokenizer, needs_offsets=True)
    questions = list(rows.questions)
    _require_room(tokenizer, questions, max_length, where)
    encoded = tokenizer(
        questions,
        list(rows.contexts),
        truncation="only_second",
        max_length=max_length,
        return_offsets_mapping=True,
    )
    contexts: list[Span] = []
    spans: list[list[Span]] = []
    for row, (offsets, answers) in enumerate(
        zip(encoded["offset_mapping"], rows.labels, strict=True)
    ):
        tokens = [place for place, text in enumerate(encoded.sequence_ids(row)) if text == 1]
        context = (tokens[0], tokens[-1]) if tokens else (0, -1)
        found = [_span_of(answer, offsets, context) for answer in answers]
        contexts.append(context)
        spans.append(list(dict.fromkeys(span for span in found if span is not None)))
    num_cut = sum(not found and bool(row) for found, row in zip(spans, rows.labels, strict=True))
    if num_cut:
        logger.warning(
            "%s: %d of %d rows have no answer within max_length %d: they teach nothing and count "
            "as missed; raise max_length",
            where, num_cut, len(rows), max_length,
        )  # fmt: skip
    return _encoded_rows(tokenizer, encoded, Spans(spans, contexts))


def length_batches(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Return row indices in batches of similar length, the longest first.

    In each batch, rows times longest row is within the budget; a batch has at least one row.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    batches: list[list[int]] = []
    for row in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= tokens_per_batch:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def pad_batch(
    features: Sequence[dict[str, Any]],
    pad_token_id: int,
    pad_to_multiple_of: int = 1,
    widest: int | None = None,
) -> dict[str, Tensor]:
    """Return one batch: columns per token are (batch, width), columns per row (batch,).

    The width is that of the longest row, rounded up to the multiple, but at most `widest`. With
    `pad_token_id` bound, this is a data collator.
    """
    lengths = [len(row["input_ids"]) for row in features]
    width = -(-max(lengths) // pad_to_multiple_of) * pad_to_multiple_of
    width = min(width, widest or width)
    filled = np.arange(width) < np.array(lengths)[:, None]  # (batch, width)
    padding = {"input_ids": pad_token_id, "labels": NO_TAG}
    batch: dict[str, Tensor] = {}
    for key, value in features[0].items():
        values = [row[key] for row in features]
        if isinstance(value, np.ndarray):
            batch[key] = _pad_outputs(values, filled)
            continue
        if isinstance(value, (int, float)):
            dtype = torch.float32 if isinstance(value, float) else torch.int64
            batch[key] = torch.tensor(values, dtype=dtype)
            continue
        column = np.full(filled.shape, padding.get(key, 0), np.int64)
        column[filled] = np.fromiter(chain.from_iterable(values), np.int64, sum(lengths))
        batch[key] = torch.from_numpy(column)
    return batch


def _pad_outputs(values: Sequence[np.ndarray], filled: np.ndarray) -> Tensor:
    """Return outputs of rows as (rows, labels), those of tokens as (rows, width, labels)."""
    if values[0].ndim == 1:
        return torch.from_numpy(np.stack(values))
    column = np.zeros((*filled.shape, values[0].shape[1]), np.float32)
    column[filled] = np.concatenate(values)
    return torch.from_numpy(column)


def part_batch(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return what the model reads of a batch, and what its loss takes."""
    inputs = {name: tensor for name, tensor in batch.items() if name in INPUTS}
    return inputs, {name: tensor for name, tensor in batch.items() if name not in INPUTS}


def _check_tokenizer(tokenizer: Any, *, needs_offsets: bool) -> None:
    name = type(tokenizer).__name__
    if tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer {name} has no padding token, so rows cannot be batched; "
            "set tokenizer.pad_token"
        )
    if needs_offsets and not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer {name} does not report which characters a token stands for, which "
            "tags and answers need; use a fast one"
        )


def _encoded_rows(
    tokenizer: Any, encoded: Any, targets: AnyTargets, num_cut: int = 0
) -> EncodedRows:
    ids, types = encoded["input_ids"], encoded.get("token_type_ids")
    return EncodedRows(ids, types, targets, tokenizer.pad_token_id, num_cut)


def _tags_of(offsets: Offsets, words: Sequence[str], tags: Sequence[int]) -> list[int]:
    """Return the tag of each token: a word's tag at its first token, NO_TAG elsewhere."""
    word_of: list[int] = []  # the word of each character, -1 for the space behind it
    for number, word in enumerate(words):
        word_of += [number] * len(word) + [-1]
    placed, seen = [], -1
    for start, end in offsets:
        # Some tokens begin at the space before their word, so their last character decides.
        word_number = word_of[end - 1] if end > start else -1
        placed.append(tags[word_number] if word_number > seen else NO_TAG)
        seen = max(seen, word_number)
    return placed


def _span_of(answer: Answer, offsets: Offsets, context: Span) -> Span | None:
    """Return the context's tokens that overlap an answer; None if part of it is cut off."""
    start, end = answer.start, answer.start + len(answer.text.rstrip())
    places = range(context[0], context[1] + 1)
    touched = [
        place
        for place in places
        if offsets[place][0] < end and offsets[place][1] > max(start, offsets[place][0])
    ]
    if not touched or max(offsets[place][1] for place in places) < end:
        return None
    return touched[0], touched[-1]


def _require_room(tokenizer: Any, questions: list[str], max_length: int, where: str) -> None:
    """Raise `TaskError` if a question leaves no room for its context."""
    special = tokenizer.num_special_tokens_to_add(pair=True)
    encoded = tokenizer(questions, add_special_tokens=False, padding=False, truncation=False)
    for row, question in enumerate(encoded["input_ids"]):
        if len(question) + special >= max_length:
            raise TaskError(
                f"{where} row {row}: the question's {len(question)} tokens and {special} special "
                f"ones leave no room for the context within max_length {max_length}; "
                "raise max_length or shorten the question"
            )
