from __future__ import annotations

import pytest
import torch

from auber.errors import PlanError
from auber.export.zeros import put_back
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.surgery import remove_heads
from tests.export.models import UNEVEN
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model


def logits(model, batch):
    with torch.inference_mode():
        return model(**batch).logits


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_every_family_computes_the_same_at_full_size(kind):
    whole, pruned = tiny_model(kind), tiny_model(kind)
    remove_heads(pruned, UNEVEN)
    restored = put_back(pruned, UNEVEN)
    batch = random_batch(pruned)
    assert torch.allclose(logits(restored, batch), logits(pruned, batch), atol=1e-5)
    assert not hasattr(restored.config, REMOVED_HEADS)
    shapes = {name: tensor.shape for name, tensor in whole.state_dict().items()}
    assert {name: tensor.shape for name, tensor in restored.state_dict().items()} == shapes
    assert encoder_of(pruned).removed.num_removed == 6  # the pruned model is left as it was


def test_nothing_is_left_of_a_removed_head():
    model = tiny_model("bert")
    remove_heads(model, {1: [1]})
    parts = encoder_of(put_back(model, {1: [1]})).parts(1)
    head = slice(8, 16)  # the second of head_dim 8
    for linear in (parts.query, parts.key, parts.value):
        assert not linear.weight[head].any()
        assert not linear.bias[head].any()
        assert linear.weight[:8].all()
    assert not parts.output.weight[:, head].any()
    assert parts.output.bias.all()


def test_tuning_gives_a_removed_head_nothing_to_learn_from():
    model = tiny_model("bert")
    remove_heads(model, {1: [1]})
    restored = put_back(model, {1: [1]})
    restored(**random_batch(restored), labels=torch.tensor([0, 1, 0, 1])).loss.backward()
    parts = encoder_of(restored).parts(1)
    head = slice(8, 16)
    for linear in (parts.query, parts.key, parts.value):
        assert not linear.weight.grad[head].any()
        assert not linear.bias.grad[head].any()
    assert not parts.output.weight.grad[:, head].any()
    assert parts.value.weight.grad[:8].any()


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_some_heads_of_some_layers(kind):
    model = tiny_model(kind)
    remove_heads(model, {0: [0, 1, 2, 3], 1: [0, 2], 2: [3]}, allow_empty_layers=True)
    restored = put_back(model, {0: [2], 1: [0]})
    assert encoder_of(restored).removed == {0: (0, 1, 3), 1: (2,), 2: (3,)}
    batch = random_batch(model)
    assert torch.allclose(logits(restored, batch), logits(model, batch), atol=1e-5)


def test_projections_of_positions_are_put_back_too():
    model = tiny_model("deberta-v2", share_att_key=False)
    remove_heads(model, {1: [1]})
    restored = put_back(model, {1: [1]})
    for linear in encoder_of(restored).parts(1).positional:
        assert not linear.weight[8:16].any()
        assert linear.weight[:8].all()
    batch = random_batch(model)
    assert torch.allclose(logits(restored, batch), logits(model, batch), atol=1e-5)


def test_the_dtype_stays():
    model = tiny_model("bert").to(torch.bfloat16)
    remove_heads(model, {0: [0]})
    assert put_back(model, {0: [0]}).dtype == torch.bfloat16


def test_a_present_head_is_refused():
    model = tiny_model("bert")
    remove_heads(model, {0: [0]})
    with pytest.raises(
        PlanError, match="^layer 0: only a removed head can be put back, head 2 is not removed$"
    ):
        put_back(model, {0: [0, 2]})
