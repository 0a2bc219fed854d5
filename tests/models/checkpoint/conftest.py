"""The folders these tests begin with."""

from __future__ import annotations

import pytest

from auber.models import checkpoint
from auber.models.surgery import remove_heads
from tests.models.checkpoint.made import PLAN
from tests.tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture
def folder(tmp_path):
    """A pruned tiny BERT with its tokenizer."""
    model = tiny_model(num_labels=2, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    remove_heads(model, PLAN)
    checkpoint.save(model, tiny_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def pretrained(tmp_path):
    """A folder with a bare encoder and a tokenizer."""
    checkpoint.save(tiny_model(bare=True), tiny_tokenizer(), tmp_path / "pretrained")
    return tmp_path / "pretrained"
