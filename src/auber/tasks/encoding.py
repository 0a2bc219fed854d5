"""Rows as token ids, and batches of them padded to their longest row.

`EncodedRows` is what the Trainer takes as a dataset and the scorer sorts by length: nothing in it is padded. Padding
happens in `pad_batch`, on the right, so that a batch costs what its longest row costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from auber.errors import ModelError
from auber.tasks.base import Rows


class EncodedRows(Dataset[dict[str, Any]]):
    """Token ids of each row with its label; `token_types` is None for tokenizers that know no segments."""

    def __init__(
        self,
        input_ids: Sequence[Sequence[int]],
        token_types: Sequence[Sequence[int]] | None,
        labels: Tensor,
        pad_token_id: int = 0,
    ) -> None:
        self.input_ids = input_ids
        self.token_types = token_types
        self.labels = labels  # (rows,), int64 classes or float32 targets
        self.pad_token_id = pad_token_id

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.input_ids[index]
        features: dict[str, Any] = {"input_ids": ids}
        if self.token_types is not None:
            features["token_type_ids"] = self.token_types[index]
        features["attention_mask"] = [1] * len(ids)
        features["labels"] = self.labels[index].item()
        return features

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict rather than classes."""
        return self.labels.is_floating_point()

    @cached_property
    def lengths(self) -> list[int]:
        """The number of tokens of each row."""
        return [len(ids) for ids in self.input_ids]

    @cached_property
    def content_hash(self) -> str:
        """A sha256 of all ids and labels in their order."""
        digest = hashlib.sha256(np.asarray(self.lengths, "<i8").tobytes())
        for columns in (self.input_ids, self.token_types or ()):
            for values in columns:
                digest.update(np.asarray(values, "<i8").tobytes())
            digest.update(b"|")
        digest.update(self.labels.numpy().astype("<f4" if self.is_regression else "<i8").tobytes())
        return digest.hexdigest()

    def select(self, indices: Sequence[int]) -> EncodedRows:
        """The rows at these indices, in their order."""
        token_types = None if self.token_types is None else [self.token_types[index] for index in indices]
        labels = self.labels[torch.as_tensor(indices, dtype=torch.int64)]
        return EncodedRows([self.input_ids[index] for index in indices], token_types, labels, self.pad_token_id)


def encode_rows(tokenizer: Any, rows: Rows, max_length: int, is_regression: bool) -> EncodedRows:
    """The rows as this tokenizer writes them, cut to `max_length` tokens at the end of the longer text."""
    if tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer {type(tokenizer).__name__} has no padding token, so rows cannot be batched; "
            "set tokenizer.pad_token"
        )
    encoded = tokenizer(
        list(rows.first),
        None if rows.second is None else list(rows.second),
        truncation="longest_first",
        max_length=max_length,
        padding=False,
    )
    labels = torch.tensor(rows.labels, dtype=torch.float32 if is_regression else torch.int64)
    return EncodedRows(encoded["input_ids"], encoded.get("token_type_ids"), labels, tokenizer.pad_token_id)


def pad_batch(features: Sequence[dict[str, Any]], pad_token_id: int, pad_to_multiple_of: int = 1) -> dict[str, Tensor]:
    """One batch, each key (batch, longest row) and labels (batch,); a data collator once `pad_token_id` is bound."""
    longest = max(len(row["input_ids"]) for row in features)
    width = -(-longest // pad_to_multiple_of) * pad_to_multiple_of
    padding = {"input_ids": pad_token_id, "token_type_ids": 0, "attention_mask": 0}
    batch: dict[str, Tensor] = {}
    for key in padding.keys() & features[0].keys():
        batch[key] = torch.full((len(features), width), padding[key], dtype=torch.int64)
        for place, row in enumerate(features):
            batch[key][place, : len(row[key])] = torch.as_tensor(row[key])
    labels = [row["labels"] for row in features]
    batch["labels"] = torch.tensor(labels, dtype=torch.float32 if isinstance(labels[0], float) else torch.int64)
    return batch
