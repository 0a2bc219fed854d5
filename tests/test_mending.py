"""The heads that stay stand in for those that go."""

from __future__ import annotations

import copy

import pytest
import torch

from auber.encoders import encoder_of
from auber.evaluation import predict
from auber.mending import Mending, learn_mending, remove_mended
from auber.surgery import remove_heads
from auber.tasks.encoding import pad_batch, part_batch
from tests.models import HEADS, LAYERS, MODEL_TYPES, tiny_model
from tests.scoring.test_scorer import random_rows


def heard(model, rows, layer):
    """What a layer's output projection reads and writes, for every token of some rows."""
    said = []
    hook = (
        encoder_of(model)
        .parts(layer)
        .output.register_forward_hook(lambda _, read, wrote: said.append((read[0], wrote)))
    )
    found = []
    with torch.inference_mode():
        for row in range(len(rows)):
            inputs, _ = part_batch(pad_batch([rows[row]], rows.pad_token_id))
            model.eval()(**inputs)
            read, wrote = said.pop()
            found.append((read[0], wrote[0]))
    hook.remove()
    return torch.cat([read for read, _ in found]).double(), torch.cat([wrote for _, wrote in found]).double()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_it_is_the_regression_of_what_goes_on_what_stays(model_type):
    """By hand: least squares over the tokens, with an intercept where the projection has a bias."""
    model = tiny_model(model_type, num_labels=3)
    rows = random_rows(60, token_types=model_type in ("bert", "electra"))
    read, _ = heard(model, rows, 1)
    output, width = encoder_of(model).parts(1).output, encoder_of(model).head_dim
    if output.bias is not None:
        read = read - read.mean(0)
    gone = torch.arange(HEADS * width) // width == 2
    own = read[:, ~gone].T @ read[:, ~gone] / len(read)
    own += 1e-3 * own.diagonal().mean() * torch.eye(len(own))
    expected = torch.linalg.solve(own, read[:, ~gone].T @ read[:, gone] / len(read)).T
    matrix, offset = learn_mending(model, rows)[1].stand_in([2])
    torch.testing.assert_close(matrix[gone][:, ~gone], expected, atol=1e-4, rtol=1e-3)
    assert torch.equal(matrix[~gone], torch.eye(HEADS * width).double()[~gone]), "who stays stands for itself"
    assert not offset[~gone].any()
    assert (matrix[:, gone][gone] == 0).all(), "what goes tells nothing"
    assert bool(offset.any()) == (output.bias is not None)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_what_a_mended_layer_writes_is_nearer_to_what_it_wrote(model_type):
    model = tiny_model(model_type, num_labels=3)
    has_types = model_type in ("bert", "electra")
    mending = learn_mending(model, random_rows(200, token_types=has_types))
    rows = random_rows(40, seed=1, token_types=has_types)
    _, whole = heard(model, rows, 0)  # its input is the embeddings, which nothing changes
    mended, plain = copy.deepcopy(model), copy.deepcopy(model)
    remove_mended(mended, {0: [1, 3]}, mending)
    remove_heads(plain, {0: [1, 3]})
    errors = [float((heard(each, rows, 0)[1] - whole).square().mean()) for each in (mended, plain)]
    assert errors[0] < 0.95 * errors[1]
    assert encoder_of(mended).removed == encoder_of(plain).removed
    shapes = [{name: tensor.shape for name, tensor in each.state_dict().items()} for each in (mended, plain)]
    assert shapes[0] == shapes[1], "as small as without mending"


def test_a_head_that_another_repeats_is_not_missed():
    model = tiny_model("bert", num_labels=3)
    parts = encoder_of(model).parts(1)
    width = encoder_of(model).head_dim
    with torch.no_grad():
        for linear in parts.projections:
            linear.weight[2 * width : 3 * width] = linear.weight[:width]
            linear.bias[2 * width : 3 * width] = linear.bias[:width]
    rows = random_rows(60)
    mended, plain = copy.deepcopy(model), copy.deepcopy(model)
    remove_mended(mended, {1: [2]}, learn_mending(model, rows))
    remove_heads(plain, {1: [2]})
    whole = predict(model, rows)
    assert float((predict(mended, rows) - whole).abs().max()) < 0.02 * float((predict(plain, rows) - whole).abs().max())


def test_the_model_is_left_as_it_was():
    model = tiny_model("bert", num_labels=3).train()
    before = copy.deepcopy(model.state_dict())
    learn_mending(model, random_rows(8))
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not encoder_of(model).parts(0).output._forward_pre_hooks


def test_a_pass_that_fails_leaves_no_hook():
    model, rows = tiny_model("bert", num_labels=3), random_rows(4)
    rows.input_ids[0][0] = 10**6
    with pytest.raises(IndexError):
        learn_mending(model, rows)
    assert not encoder_of(model).parts(0).output._forward_pre_hooks


def test_only_layers_with_heads_to_spare_are_learned():
    model = tiny_model("bert", num_labels=3)
    remove_heads(model, {0: [0, 1, 3], 1: [2]})
    mending = learn_mending(model, random_rows(8))
    assert {layer: each.present for layer, each in mending.items()} == {1: (0, 1, 3), 2: (0, 1, 2, 3)}
    assert learn_mending(model, random_rows(8), [2]).keys() == {2}
    assert LAYERS == 3


def test_the_key_tells_weights_and_rows_apart():
    one, other = (tiny_model("bert", num_labels=3, seed=seed) for seed in range(2))
    rows, others = random_rows(8), random_rows(8, seed=1)
    keys = [learn_mending(*each)[0].key for each in ((one, rows), (one, others), (other, rows))]
    assert len(set(keys)) == 3
    assert learn_mending(copy.deepcopy(one), random_rows(8))[0].key == keys[0]


def test_all_heads_gone_leave_their_mean():
    mean, covariance = torch.arange(8.0).double(), torch.eye(8).double()
    matrix, offset = Mending((0, 1, 2, 3), mean, covariance, "").stand_in([0, 1, 2, 3])
    assert not matrix.any()
    assert torch.equal(offset, mean)


def test_heads_that_say_nothing_foretell_nothing():
    model, rows = tiny_model("bert", num_labels=3), random_rows(8)
    value = encoder_of(model).parts(1).value
    with torch.no_grad():
        value.weight[: 3 * encoder_of(model).head_dim] = 0
        value.bias[: 3 * encoder_of(model).head_dim] = 0
    mended, plain = copy.deepcopy(model), copy.deepcopy(model)
    matrix, _ = learn_mending(model, rows)[1].stand_in([3])
    assert torch.equal(matrix, torch.diag((torch.arange(len(matrix)) < 0.75 * len(matrix)).double()))
    remove_mended(mended, {1: [0, 1]}, learn_mending(model, rows))
    remove_heads(plain, {1: [0, 1]})
    torch.testing.assert_close(predict(mended, rows), predict(plain, rows))


def test_none_gone_leaves_all_as_it_is():
    matrix, offset = Mending((0, 2), torch.ones(4).double(), torch.eye(4).double(), "").stand_in([])
    assert torch.equal(matrix, torch.eye(4).double())
    assert not offset.any()


def test_heads_that_went_in_between_are_noticed():
    model = tiny_model("bert", num_labels=3)
    mending = learn_mending(model, random_rows(8))
    remove_heads(model, {1: [0]})
    with pytest.raises(AssertionError, match="layer 1: learned before heads went"):
        remove_mended(model, {1: [2]}, mending)
