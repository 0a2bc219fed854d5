from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from auber.errors import CheckpointError
from auber.export.source import Source
from auber.export.verification import largest_difference, write_verified
from auber.system.progress import Progress
from tests.tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def source():
    return Source("mine", tiny_model("bert", pad_token_id=0), tiny_tokenizer())


def export(source, place, shift=0.0):
    """Export to a file, and compute the model's logits with it, or shifted ones."""

    def write(source, folder):
        (folder / "weights").write_text("1234")

    def load(source, folder):
        assert (folder / "weights").read_text() == "1234"
        return lambda batch: SimpleNamespace(logits=source.model(**batch).logits + shift)

    return write_verified("nothing", source, place, write, load, Progress())


def test_a_correct_export_is_kept(source, tmp_path):
    (tmp_path / "new" / "here").mkdir(parents=True)  # an empty folder may exist
    exported = export(source, tmp_path / "new" / "here", shift=0.0009)
    assert exported.files == {"weights": 4}
    assert exported.check.largest_difference == pytest.approx(0.0009, rel=1e-3)
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "here", "weights"]


@pytest.mark.parametrize(("shift", "found"), [(0.0011, "0.0011"), (float("nan"), "nan")])
def test_other_logits_are_not_kept(source, tmp_path, shift, found):
    message = (
        "here: the logits must be the model's own to 0.001, found a difference of "
        f"{found}; nothing was kept"
    )
    with pytest.raises(CheckpointError, match=message):
        export(source, tmp_path / "here", shift)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(source, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        message = f"{place.name}: must be a new or an empty folder; choose another --out$"
        with pytest.raises(CheckpointError, match=message):
            export(source, place)
    with pytest.raises(CheckpointError, match="there: cannot be written .*; choose another --out$"):
        export(source, tmp_path / "file" / "there")


@pytest.mark.parametrize("shift", [0.25, float("nan")])
def test_the_largest_difference_of_all_batches(source, shift):
    def almost(batch):
        logits = source.model(**batch).logits.clone()
        if len(logits) == 5:  # in one batch only
            logits[3, 1] += shift
        return SimpleNamespace(logits=logits)

    assert largest_difference(source, almost) == pytest.approx(shift, nan_ok=True)


@pytest.mark.parametrize("side", ["start_logits", "end_logits"])
def test_tokens_are_compared_and_padding_is_not(side):
    model = tiny_model("bert", kind="spans", pad_token_id=0)
    source = Source("mine", model, tiny_tokenizer())

    def shift(batch, at_tokens, at_padding):
        output = model(**batch)
        is_token = batch["attention_mask"].bool()
        getattr(output, side).add_(torch.where(is_token, at_tokens, at_padding))
        return output

    assert largest_difference(source, lambda batch: shift(batch, 0.0, float("nan"))) == 0
    found = largest_difference(source, lambda batch: shift(batch, 0.25, 0.0))
    assert found == pytest.approx(0.25, rel=1e-4)


def test_a_model_in_bfloat16_is_compared_in_float32():
    model = tiny_model("bert", pad_token_id=0).to(torch.bfloat16)
    exact = tiny_model("bert", pad_token_id=0).to(torch.bfloat16).float()
    source = Source("mine", model, tiny_tokenizer())
    assert largest_difference(source, lambda batch: exact(**batch)) == 0
    assert model.dtype == torch.bfloat16
