from __future__ import annotations

from auber.models.encoders import encoder_of
from auber.models.random_rows import random_rows
from tests.tiny_models import tiny_model

INPUTS = ("input_ids", "attention_mask")


def test_rows_are_padded_where_the_mask_is_zero():
    encoder = encoder_of(tiny_model("bert", pad_token_id=7))
    batch = random_rows(encoder, (*INPUTS, "token_type_ids"), rows=200, length=6, padded=True)
    mask = batch["attention_mask"]
    assert ((batch["input_ids"] == 7) == (mask == 0)).all()
    assert set(mask.sum(1).tolist()) == set(range(1, 7))
    assert (mask[:, :-1] >= mask[:, 1:]).all()  # on the right
    assert sorted(batch["input_ids"].unique().tolist()) == list(range(100))
    assert set(batch["token_type_ids"].unique().tolist()) == {0, 1}
    assert random_rows(encoder, INPUTS, rows=2, length=6).keys() == set(INPUTS)
