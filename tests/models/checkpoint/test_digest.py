"""The digest of a model's weights: other weights, another digest, wherever they are."""

from __future__ import annotations

import pytest
import torch

from auber.models import checkpoint
from auber.models.surgery import remove_heads
from tests.tiny_models import tiny_model


def test_the_digest_notices_every_changed_bit_and_every_swap():
    model = tiny_model("bert")
    digest = checkpoint.weights_digest(model)
    weight = model.classifier.weight.data
    bits = weight.view(torch.int32)
    for place in (0, 5, 31):
        for bit in (0, 11, 31):
            bits.view(-1)[place] ^= torch.tensor(1, dtype=torch.int32) << bit
            assert checkpoint.weights_digest(model) != digest
            bits.view(-1)[place] ^= torch.tensor(1, dtype=torch.int32) << bit
    assert checkpoint.weights_digest(model) == digest
    weight[0, [3, 4]] = weight[0, [4, 3]]
    assert checkpoint.weights_digest(model) != digest


@pytest.mark.gpu
def test_the_digest_is_the_same_on_a_gpu():
    model = tiny_model("bert")
    assert checkpoint.weights_digest(model) == checkpoint.weights_digest(model.cuda())


def test_the_digest_tells_models_apart():
    model = tiny_model("mpnet")
    digest = checkpoint.weights_digest(model)
    assert digest == checkpoint.weights_digest(tiny_model("mpnet"))
    assert digest != checkpoint.weights_digest(tiny_model("mpnet", seed=1))
    assert digest != checkpoint.weights_digest(tiny_model("mpnet").to(torch.bfloat16))
    # equal tensors that belong to different heads read different columns of MPNet's bias
    first, second = tiny_model("mpnet"), tiny_model("mpnet")
    for twin in (first, second):
        for parameter in twin.parameters():
            torch.nn.init.ones_(parameter)
    remove_heads(first, {0: [0]})
    remove_heads(second, {0: [1]})
    assert checkpoint.weights_digest(first) != checkpoint.weights_digest(second)
