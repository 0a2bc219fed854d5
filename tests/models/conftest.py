"""A model folder for the tests of reading, and of refusing what is damaged in it."""

from __future__ import annotations

import json

import pytest

from auber.models import checkpoint
from auber.models.surgery import remove
from tests.tiny_models import tiny_model, tiny_tokenizer

PLAN = {0: [1], 2: [0, 2, 3]}


@pytest.fixture
def folder(tmp_path):
    """A pruned tiny BERT with its tokenizer."""
    model = tiny_model(num_labels=2, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    remove(model, PLAN)
    checkpoint.save(model, tiny_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder, **changes):
    """Change entries of a config.json, or remove those that are None."""
    path = folder / "config.json"
    data = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))
