from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auber.errors import ConfigError, ModelError
from auber.search.state import head_norms, head_state, projection_state


def test_norms_by_hand():
    weight = torch.tensor([[1.0, -2.0], [2.0, 0.0], [3.0, 4.0], [0.0, 0.0]])  # 2 heads of 2 rows
    assert head_norms(weight, 2, "l1").tolist() == [5.0, 7.0]
    assert head_norms(weight, 2, "l2").tolist() == [3.0, 5.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: head_norms(torch.zeros(4, 2), 2, "l3"),
            ConfigError,
            r"^Unknown norm 'l3'\. Known: l1, l2$",
        ),
        (
            lambda: head_norms(torch.zeros(4, 2), 3),
            ModelError,
            "^state: a projection of 3 heads must be a matrix of 3 x head_dim rows, found shape",
        ),
        (
            lambda: head_state(torch.tensor([1.0, math.nan])),
            ModelError,
            r"^state: there must be one finite norm per head, found \[1\.0, nan\]; check the",
        ),
    ],
    ids=["norm", "shape", "not finite"],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_state_by_hand():
    # mean 2; population deviation sqrt(2/3); standardised -sqrt(1.5), 0, sqrt(1.5)
    low, middle, high = math.exp(-math.sqrt(1.5)), 1.0, math.exp(math.sqrt(1.5))
    total = low + middle + high
    expected = torch.tensor([low / total, middle / total, high / total])
    torch.testing.assert_close(head_state(torch.tensor([1.0, 2.0, 3.0])), expected)


@given(st.floats(0, 1e6), st.integers(1, 16))
def test_equal_norms_give_the_uniform_state(norm, num_heads):
    state = head_state(torch.full((num_heads,), norm))
    assert state.tolist() == pytest.approx([1 / num_heads] * num_heads)


@pytest.mark.parametrize("norm", ["l1", "l2"])  # the sums of l1 are exact in float64
def test_heads_equal_up_to_the_order_of_their_entries_give_the_uniform_state(norm):
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(640, generator=generator)
    weight = torch.stack(
        [head[torch.randperm(640, generator=generator)] for _ in range(12)]
    ).reshape(12 * 8, 80)
    assert torch.equal(head_state(head_norms(weight, 12, norm)), torch.full((12,), 1 / 12))


@given(st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=12), st.integers(0, 99))
def test_permuting_heads_permutes_the_state(norms, seed):
    order = torch.randperm(len(norms), generator=torch.Generator().manual_seed(seed))
    tensor = torch.tensor(norms)
    state = head_state(tensor)
    torch.testing.assert_close(head_state(tensor[order]), state[order])
    assert bool((state > 0).all())
    assert float(state.sum()) == pytest.approx(1, abs=1e-5)


def head_outputs(hidden, query, key, value, bias, num_heads):
    """Attend with every head: (tokens, hidden) -> (num_heads, tokens, head_dim)."""

    def heads(weight):  # (num_heads * head_dim, hidden) -> (num_heads, tokens, head_dim)
        return (hidden @ weight.T).reshape(len(hidden), num_heads, -1).transpose(0, 1)

    values = heads(value) + bias.reshape(num_heads, 1, -1)
    return torch.nn.functional.scaled_dot_product_attention(heads(query), heads(key), values)


@given(
    st.integers(1, 9),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 5),
    st.sampled_from([0.01, 1.0, 30.0]),
    st.integers(0, 99),
)
def test_lemma_1_bounds_the_output_of_a_head(tokens, num_heads, head_dim, size, seed):
    generator = torch.Generator().manual_seed(seed)
    hidden_size = 6
    rows = num_heads * head_dim
    query, key, value = (
        torch.randn(rows, hidden_size, generator=generator) * size for _ in range(3)
    )
    hidden = torch.randn(tokens, hidden_size, generator=generator)
    outputs = head_outputs(hidden, query, key, value, torch.zeros(rows), num_heads)
    bound = tokens * hidden.abs().sum() * head_norms(value, num_heads, "l1")
    assert bool((outputs.abs().sum(dim=(1, 2)) <= bound * (1 + 1e-5)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_layer_begins_in_the_state_of_its_projections_norms(norm, dtype):
    weight = torch.nn.Parameter(
        torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    )
    state = projection_state(weight, 4, norm)
    assert torch.equal(state, head_state(head_norms(weight.detach().float(), 4, norm)))
    assert not state.requires_grad
