"""A config.json that asks for any memory is refused in one line before it is given any."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import auber
from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.models.plan import PruningPlan
from tests.security.models import change_json
from tests.small import small_start

SIZES = ("hidden_size", "vocab_size", "max_position_embeddings", "type_vocab_size", "num_labels")
LARGEST = 2**20
MOST_NUMBERS = 1_000_000  # of a tensor that may be made: the models have twenty thousand


@pytest.fixture(params=["whole", "pruned"])
def folder(request, tmp_path):
    model, tokenizer = small_start()
    if request.param == "pruned":
        auber.remove(model, PruningPlan({0: [1]}, {0: [2], 1: [0, 5]}))
    checkpoint.save(model, tokenizer, tmp_path / "model")
    return tmp_path / "model"


class LargeTensors(TorchDispatchMode):
    """Notes large tensors that are made anywhere but on the meta device."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.device.type != "meta":
            self.found += [made.shape] if made.numel() > MOST_NUMBERS else []
        return made


def refuse(folder, message):
    classifier = partial(checkpoint.load_classifier, num_labels=2)
    for load in (auber.load, classifier):
        with LargeTensors() as large, pytest.raises(CheckpointError, match=message) as found:
            load(folder)
        assert not large.found
        assert "\n" not in str(found.value)
        assert "allocate" not in str(found.value)


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("value", [LARGEST + 1, 10**9, 10**18, 10**400])
def test_sizes_beyond_all_models(folder, key, value):
    change_json(folder / "config.json", **{key: value})
    refuse(folder, rf"config.json: {key} must be at most {LARGEST}, found \d+(\.\.\.)?; save or d")


@pytest.mark.parametrize("key", SIZES[:-1])
def test_sizes_beyond_the_weights(folder, key):
    change_json(folder / "config.json", **{key: LARGEST})
    refuse(
        folder,
        r"model: its config.json describes \d+ numbers, its weights hold \d+; save or download the"
        r"|model: the weights do not fit the recorded units \(size mismatch for bert.* save the ",
    )


@pytest.mark.parametrize("key", SIZES[:-1])
@pytest.mark.parametrize("value", [-1, 1.5, "x", None, [1], {}])
def test_sizes_that_are_none(folder, key, value):
    change_json(folder / "config.json", **{key: value})
    refuse(
        folder,
        "model: cannot be loaded |config.json: is no valid bert configuration |its tokenizer has",
    )


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_nesting(folder, depth):
    text = json.dumps({**json.loads((folder / "config.json").read_text()), "deep": None})
    text = text.replace('"deep": null', f'"deep": {"[" * depth}{"]" * depth}')
    (folder / "config.json").write_text(text)
    if depth > 800:
        refuse(folder, "config.json: (is no valid bert configuration|cannot be read)")
    else:
        assert math.isfinite(auber.load(folder).num_parameters())
