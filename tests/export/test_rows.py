from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from auber.export.rows import largest_difference
from auber.export.source import Source
from auber.models.encoders import encoder_of
from auber.models.random_rows import random_rows
from tests.tiny_models import tiny_model, tiny_tokenizer

INPUTS = ("input_ids", "attention_mask")


def test_rows_are_padded_where_the_mask_says():
    encoder = encoder_of(tiny_model("bert", pad_token_id=7))
    batch = random_rows(encoder, (*INPUTS, "token_type_ids"), rows=200, length=6, padded=True)
    mask = batch["attention_mask"]
    assert ((batch["input_ids"] == 7) == (mask == 0)).all()
    assert set(mask.sum(1).tolist()) == set(range(1, 7))
    assert (mask[:, :-1] >= mask[:, 1:]).all()  # on the right
    assert sorted(batch["input_ids"].unique().tolist()) == list(
        range(100)
    )  # any token may stand in a row
    assert set(batch["token_type_ids"].unique().tolist()) == {0, 1}
    assert random_rows(encoder, INPUTS, rows=2, length=6).keys() == set(INPUTS)


@pytest.mark.parametrize(("shift", "found"), [(0.25, 0.25), (float("nan"), float("nan"))])
def test_the_largest_difference_is_found(shift, found):
    model = tiny_model("bert", pad_token_id=0)

    def almost(batch):
        logits = model(**batch).logits.clone()
        if len(logits) == 5:  # in one batch alone
            logits[3, 1] += shift
        return SimpleNamespace(logits=logits)

    source = Source("mine", model, tiny_tokenizer())
    assert largest_difference(source, almost) == pytest.approx(found, nan_ok=True)


@pytest.mark.parametrize("side", ["start_logits", "end_logits"])
def test_tokens_are_compared_one_by_one_and_padding_is_not(side):
    model = tiny_model("bert", kind="spans", pad_token_id=0)
    source = Source("mine", model, tiny_tokenizer())

    def shifted(batch, at_tokens, at_padding):
        output = model(**batch)
        is_token = batch["attention_mask"].bool()
        getattr(output, side).add_(torch.where(is_token, at_tokens, at_padding))
        return output

    assert largest_difference(source, lambda batch: shifted(batch, 0.0, float("nan"))) == 0
    assert largest_difference(source, lambda batch: shifted(batch, 0.25, 0.0)) == pytest.approx(
        0.25, rel=1e-4
    )


def test_a_model_in_few_bits_is_compared_in_float32():
    model = tiny_model("bert", pad_token_id=0).to(torch.bfloat16)
    exact = tiny_model("bert", pad_token_id=0).to(torch.bfloat16).float()
    source = Source("mine", model, tiny_tokenizer())
    assert largest_difference(source, lambda batch: exact(**batch)) == 0
    assert model.dtype == torch.bfloat16
