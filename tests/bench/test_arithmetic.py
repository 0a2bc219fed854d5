"""The counts against torch's own counter, which sees every matrix product of a real pass, and against a count by hand."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from auber.bench.arithmetic import Work, measure_matrix_rate
from auber.bench.catalogue import ROWS
from auber.models.encoders import encoder_of
from auber.models.surgery import remove_heads
from tests.small import cpu
from tests.tiny_models import LAYERS, random_batch, tiny_model

ROW_COUNT, LENGTH = 4, 9


def counted(call) -> int:
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        call()
    return counter.get_total_flops()


def test_by_hand():
    work = Work(hidden_size=2, intermediate_size=3, widths=(2, 2, 2), classifier=5, lengths=(2, 1))
    # Output projection and feed-forward: 2 x 2 + 2 x (2 x 3) = 16 multiplications a token.
    # The last layer, 2 first tokens: 16 each and 5 for the classifier.
    top = 2 * 16 + 2 * 5
    assert work.reward_flops(2) == 2 * top
    # Its keys and values, 2 x (2 x 2) for each of 3 tokens; 2 queries of 2 x 2; each meets its row's tokens, 2 + 1 of them,
    # with 2 multiplications for the score and 2 for the mixing.
    last = 3 * 8 + 2 * 4 + 3 * 4 + top
    assert work.reward_flops(1) == 2 * (3 * 16 + last)
    # A whole layer: queries, keys and values 3 x (2 x 2) a token, 2 x 2 + 1 x 1 pairs of 2 + 2, and its 16 a token.
    whole = 3 * 12 + 5 * 4 + 3 * 16
    assert work.reward_flops(0) == 2 * (3 * 16 + whole + last)
    assert work._layer(0) == whole


@pytest.mark.parametrize(
    "model_type", ["bert", "distilbert", "electra", "modernbert", "mpnet", "roberta"]
)
def test_a_plain_pass(model_type):
    model = tiny_model(model_type, attention="eager")
    remove_heads(model, {1: [0, 3]})
    batch = random_batch(model, rows=ROW_COUNT, length=LENGTH, padded=False)
    work = Work.of(encoder_of(model), [LENGTH] * ROW_COUNT)
    expected = 2 * (sum(map(work._layer, range(LAYERS))) + ROW_COUNT * work.classifier)
    if model_type == "electra":  # its embeddings are widened; no reward needs that
        expected += 2 * ROW_COUNT * LENGTH * model.config.embedding_size * model.config.hidden_size
    assert counted(lambda: model(**batch)) == expected


def attend(parts, hidden, asking):
    """What the output projection of a layer reads, for the tokens of `asking` alone."""
    query, key, value = (
        parts.query(asking),
        parts.key(hidden),
        parts.value(hidden),
    )  # (rows, tokens, width)
    return F.scaled_dot_product_attention(query[:, None], key[:, None], value[:, None])[:, 0]


def finish(parts, context, hidden):
    attended = parts.attention_norm(parts.output(context) + hidden)
    return parts.output_norm(parts.contract(parts.activation(parts.expand(attended))) + attended)


@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_reward(layer):
    """What the model's own modules multiply, from the searched layer's contexts to the logits."""
    model = tiny_model("bert")
    remove_heads(model, {1: [2]})
    encoder = encoder_of(model)
    hidden = torch.randn(ROW_COUNT, LENGTH, encoder.hidden_size)
    context = torch.randn(ROW_COUNT, LENGTH, len(encoder.present(layer)) * encoder.head_dim)

    def reward() -> None:
        states, mixed = hidden, context
        for above in range(layer, LAYERS):
            parts, last = encoder.parts(above), above == LAYERS - 1
            asking = states[:, :1] if last else states
            if above > layer:
                mixed = attend(parts, states, asking)
            states = finish(parts, mixed[:, :1] if last else mixed, asking)
        encoder.classify(states[:, 0])

    assert Work.of(encoder, [LENGTH] * ROW_COUNT).reward_flops(layer) == counted(reward)


@pytest.mark.parametrize(("rows", "milliseconds"), [("rte", 10.8), ("cola", 6.3)])
def test_the_floor_of_bert_base_on_a_fast_device(rows, milliseconds):
    """At 786 TFLOP/s, the mean over the layers; worked out apart from this code."""
    shape = ROWS[rows]
    work = Work(768, 3072, (768,) * 12, 768 * 768 + 2 * 768, tuple(shape.lengths(shape.count)))
    floors = [1000 * work.reward_flops(layer) / 786e12 for layer in range(12)]
    assert fmean(floors) == pytest.approx(milliseconds, rel=0.03)
    assert floors == sorted(floors, reverse=True)


def test_the_rate_is_measured():
    rate = measure_matrix_rate(cpu(), size=128)
    assert rate.size == 128
    assert 1e7 < rate.flops_per_second < 1e14
