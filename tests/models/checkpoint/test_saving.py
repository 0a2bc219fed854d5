"""Model folders are written whole or not at all, and never over something else."""

from __future__ import annotations

import os

import pytest

from auber.errors import CheckpointError, ModelError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from tests.models.checkpoint.made import PLAN
from tests.tiny_models import tiny_model, tiny_tokenizer


def test_saving_replaces_a_model_folder_as_a_whole(folder):
    (folder / "left.txt").write_text("over")
    checkpoint.save(tiny_model(seed=1), None, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    mask = os.umask(0)
    os.umask(mask)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_model(folder, monkeypatch, error):
    before = checkpoint.weights_digest(checkpoint.load(folder))
    tokenizer = tiny_tokenizer()

    def fail(*_):
        raise error

    monkeypatch.setattr(tokenizer, "save_pretrained", fail)
    expected = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(
        expected, match="cannot be written .disk full.$" if expected is CheckpointError else None
    ):
        checkpoint.save(tiny_model(seed=1), tokenizer, folder)
    assert checkpoint.weights_digest(checkpoint.load(folder)) == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_folder_that_cannot_take_the_place_is_put_back(folder, monkeypatch):
    from pathlib import Path

    rename = Path.rename

    def fail_for_the_new(self, target):
        if self.name == "new":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(CheckpointError, match=r"cannot be written \(no\)$"):
        checkpoint.save(tiny_model(seed=1), None, folder)
    assert encoder_of(checkpoint.load(folder)).removed == PruningPlan(PLAN)


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(
        CheckpointError,
        match=r"exists and is not a model folder; choose another folder$",
    ):
        checkpoint.save(tiny_model(), None, tmp_path)
    with pytest.raises(CheckpointError, match=r"exists and is not a folder; choose another name$"):
        checkpoint.save(tiny_model(), None, tmp_path / "thesis.tex")
    with pytest.raises(CheckpointError, match=r"cannot be written"):
        checkpoint.save(tiny_model(), None, tmp_path / "thesis.tex" / "model")


def test_a_model_with_another_head_is_not_saved(tmp_path):
    from transformers import BertForMaskedLM

    from tests.tiny_models import tiny_config

    with pytest.raises(
        ModelError,
        match=r"^A bare encoder or one of \.\.\.ForSeq.*Answering can be saved, found BertForMask",
    ):
        checkpoint.save(BertForMaskedLM(tiny_config("bert")), None, tmp_path)
