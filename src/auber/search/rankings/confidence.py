"""Confidence: a head whose attention is spread thin goes first.

A head's confidence is the mean, over all tokens of all rows, of the largest attention weight it gives when that token
asks (Voita et al. 2019, who leave out the end-of-sentence symbol; the AUBER paper leaves out nothing, and so do we).
The weights are computed here from each layer's input, because fast attention never forms them; padding neither asks nor
is asked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from auber.search.methods import Method, RankingChoice, RankingWork
from auber.search.rankings.ranking import remove_lowest, scores_to_json

if TYPE_CHECKING:
    from torch import Tensor

    from auber.models.encoders.attention import Attention
    from auber.models.encoders.base import Encoder

# Tokens a pass: attention weights of one layer of a base-size encoder then take some 50 MB.
_TOKENS_PER_BATCH = 8192


def choose_plan(work: RankingWork) -> RankingChoice:
    """Remove the heads that are least sure where to look."""
    scores = head_confidence(work)
    return RankingChoice(
        remove_lowest(scores, work.num_removed), {"confidence": scores_to_json(scores)}
    )


def head_confidence(work: RankingWork) -> dict[int, dict[int, float]]:
    """The confidence of every present head, by layer."""
    import torch

    from auber.models.encoders import encoder_of
    from auber.search.rankings.passes import frozen_copy, padded_batches, present_heads

    encoder = encoder_of(frozen_copy(work))
    heads = present_heads(encoder)
    sums = {
        layer: torch.zeros(len(present), dtype=torch.float64) for layer, present in heads.items()
    }
    work.progress.begin("confidence of the heads", len(work.rows))
    done = 0
    with torch.inference_mode():
        for inputs, _ in padded_batches(work.rows, _TOKENS_PER_BATCH, work.hardware.device):
            tokens = inputs["attention_mask"].bool()  # (rows, length)
            attentions = encoder.attentions(tokens.shape[1])
            states = encoder.base(
                **inputs, output_hidden_states=True
            ).hidden_states  # each layer's input, and the output
            for layer in heads:
                largest = attention_weights(
                    encoder, layer, states[layer], tokens, attentions[layer]
                ).amax(-1)
                largest = largest.masked_fill(
                    ~tokens[:, None], 0.0
                )  # (rows, present_heads, length)
                sums[layer] += largest.sum((0, 2)).cpu()
            done += len(tokens)
            work.progress.step(done)
    work.progress.end()
    num_tokens = sum(work.rows.lengths)
    return {
        layer: dict(zip(present, (sums[layer] / num_tokens).tolist(), strict=True))
        for layer, present in heads.items()
    }


def attention_weights(
    encoder: Encoder, layer: int, hidden: Tensor, tokens: Tensor, attention: Attention
) -> Tensor:
    """What each head of a layer gives to every token: (rows, present_heads, asking, asked).

    `hidden` (rows, length, hidden) is the layer's input, `tokens` (rows, length) is false at padding.
    """
    parts, shape = encoder.parts(layer), (len(encoder.present(layer)), encoder.head_dim)
    states = parts.attention_input(hidden)
    query, key = (
        projection(states).unflatten(-1, shape).transpose(1, 2)
        for projection in (parts.query, parts.key)
    )
    return attention.scores(query, key).masked_fill(~tokens[:, None, None], -math.inf).softmax(-1)


METHODS = (
    Method(
        "confidence",
        "the heads of the lowest mean largest attention weight go",
        choose_plan=choose_plan,
    ),
)
