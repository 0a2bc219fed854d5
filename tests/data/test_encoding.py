from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from auber.data.encoding import EncodedRows, encode_rows, pad_batch
from auber.data.generated import build_tokenizer
from auber.data.task import Rows
from auber.errors import ModelError, TaskError

PAIRS = Rows(
    ("the key is wet .", "the doors near the big key are cold ."),
    ("the key", "a key is lost"),
    (1, 0),
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture(scope="module")
def encoded(tokenizer: Any) -> EncodedRows:
    return encode_rows(tokenizer, PAIRS, 64, is_regression=False)


def test_rows_are_what_the_tokenizer_says_without_padding(
    tokenizer: Any, encoded: EncodedRows
) -> None:
    assert len(encoded) == 2
    for row in range(2):
        expected = dict(tokenizer(PAIRS.first[row], PAIRS.second[row]))  # type: ignore[index]
        assert encoded[row] == {**expected, "labels": PAIRS.labels[row]}
        assert encoded.lengths[row] == len(expected["input_ids"])
    assert encoded.labels.dtype == torch.int64


def test_pairs_are_cut_at_the_longer_text(tokenizer: Any) -> None:
    cut = encode_rows(tokenizer, PAIRS, 9, is_regression=False)
    assert cut.lengths == [9, 9]
    assert tokenizer.decode(cut[0]["input_ids"]) == "[CLS] the key is wet [SEP] the key [SEP]"


def test_single_texts_and_regression_targets(tokenizer: Any) -> None:
    rows = encode_rows(tokenizer, Rows(("the key",), None, (2.5,)), 64, is_regression=True)
    assert rows[0]["labels"] == 2.5
    assert (rows.labels.dtype, rows.is_regression) == (torch.float32, True)
    assert pad_batch([rows[0]], 0)["labels"].dtype == torch.float32


def test_a_tokenizer_without_segments_gives_none(tokenizer: Any) -> None:
    def plain(*texts: Any, **options: Any) -> Any:
        return tokenizer(*texts, return_token_type_ids=False, **options)

    plain.pad_token_id = 0  # type: ignore[attr-defined]
    rows = encode_rows(plain, PAIRS, 64, is_regression=False)
    assert rows.token_types is None
    assert rows[0].keys() == {"input_ids", "attention_mask", "labels"}
    assert rows.select([1]).token_types is None
    assert pad_batch([rows[0], rows[1]], 0).keys() == rows[0].keys()


def test_select_keeps_the_order_asked_for(encoded: EncodedRows) -> None:
    turned = encoded.select((1, 0))
    assert [turned[0], turned[1]] == [encoded[1], encoded[0]]
    assert turned.labels.tolist() == [0, 1]
    assert turned.lengths == encoded.lengths[::-1]
    assert len(encoded.select(())) == 0


def test_the_hash_sees_ids_segments_and_labels(encoded: EncodedRows) -> None:
    same = EncodedRows(encoded.input_ids, encoded.token_types, encoded.labels.clone())
    others = [
        encoded.select([1, 0]),
        encoded.select([0]),
        EncodedRows(encoded.input_ids, None, encoded.labels),
        EncodedRows(encoded.input_ids, encoded.token_types, 1 - encoded.labels),
        EncodedRows(encoded.input_ids, encoded.token_types, encoded.labels.float()),
    ]
    assert same.content_hash == encoded.content_hash
    assert len({rows.content_hash for rows in [encoded, *others]}) == len(others) + 1


def test_a_batch_is_as_wide_as_its_longest_row(tokenizer: Any, encoded: EncodedRows) -> None:
    collate = partial(pad_batch, pad_token_id=tokenizer.pad_token_id)
    (batch,) = DataLoader(encoded, batch_size=2, collate_fn=collate)
    reference = tokenizer(
        list(PAIRS.first), list(PAIRS.second or ()), padding=True, return_tensors="pt"
    )
    assert batch.keys() == {"input_ids", "token_type_ids", "attention_mask", "labels"}
    for key, value in reference.items():
        assert torch.equal(batch[key], value)
    assert torch.equal(batch["labels"], torch.tensor([1, 0]))


def test_padding_uses_the_token_and_the_multiple_given(encoded: EncodedRows) -> None:
    batch = pad_batch([encoded[0], encoded[1]], pad_token_id=4, pad_to_multiple_of=8)
    assert batch["input_ids"].shape == (2, 24)
    assert set(batch["input_ids"][0, encoded.lengths[0] :].tolist()) == {4}
    assert batch["attention_mask"].sum(1).tolist() == encoded.lengths


@pytest.mark.parametrize("column", [[5], [5, 5, 5]])
def test_a_column_that_does_not_go_with_the_tokens_is_refused(column: list[int]) -> None:
    rows = [{"input_ids": [1, 2], "x": column}, {"input_ids": [4, 4], "x": [6, 6]}]
    with pytest.raises(
        TaskError,
        match=r"^rows to pad: column 'x' must have one value for each token of input_ids; leave",
    ):
        pad_batch(rows, pad_token_id=0)


def test_rows_may_be_tensors() -> None:
    rows = [
        {"input_ids": torch.tensor([1, 2, 3]), "labels": 0.5},
        {"input_ids": torch.tensor([4]), "labels": 1.0},
    ]
    batch = pad_batch(rows, pad_token_id=9)
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert batch["labels"].tolist() == [0.5, 1.0]


def test_a_tokenizer_without_padding_token_is_refused() -> None:
    tokenizer = build_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(
        ModelError,
        match=r"the tokenizer BertTokenizer.* has no padding token, .*; set tokenizer.pad_token",
    ):
        encode_rows(tokenizer, PAIRS, 64, is_regression=False)
