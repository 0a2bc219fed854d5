"""Confidence: remove the heads whose attention is spread most evenly.

A head's confidence is the mean, over the query tokens of all rows, of its largest attention weight.
Voita et al. (2019) leave out the end-of-sentence symbol; the AUBER paper leaves out nothing, and
neither does this file. The weights are computed here from each layer's input, because fast
attention never forms them. Padding is neither query nor key.
"""

from __future__ import annotations

import math

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import (
    frozen_copy,
    head_scores_to_json,
    name_units,
    padded_batches,
    present_units,
)
from auber.search.rankings.selection import UnitScores, select_units

# Per pass: the attention weights of one layer of a base-size encoder then take about 50 MB.
_TOKENS_PER_BATCH = 8192


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Remove the heads with the lowest confidence."""
    scores = inputs.once("confidence", lambda: head_confidence(inputs))
    plan = select_units(inputs, scores)
    return RankingChoice(plan, {"confidence": head_scores_to_json(scores)})


def head_confidence(inputs: RankingInputs) -> UnitScores:
    """Return the confidence of every present head."""
    import torch

    from auber.models.encoders import encoder_of

    encoder = encoder_of(frozen_copy(inputs))
    heads = present_units(inputs)
    sums = {site: torch.zeros(len(present), dtype=torch.float64) for site, present in heads.items()}
    inputs.progress.begin("confidence of the heads", len(inputs.rows))
    done = 0
    with torch.inference_mode():
        for batch, _ in padded_batches(inputs, _TOKENS_PER_BATCH):
            tokens = batch["attention_mask"].bool()  # (rows, length)
            attentions = encoder.attentions(tokens.shape[1])
            # the input of each layer, and the output of the last
            states = encoder.base(**batch, output_hidden_states=True).hidden_states
            for site, present in heads.items():
                layer, shape = site[1], (len(present), encoder.head_dim)
                parts = encoder.parts(layer)
                hidden = parts.attention_input(states[layer])
                query, key = (
                    projection(hidden).unflatten(-1, shape).transpose(1, 2)
                    for projection in (parts.query, parts.key)
                )
                scores = attentions[layer].scores(query, key)
                # (rows, present_heads, query tokens, key tokens)
                weights = scores.masked_fill(~tokens[:, None, None], -math.inf).softmax(-1)
                # (rows, present_heads, length)
                largest = weights.amax(-1).masked_fill(~tokens[:, None], 0.0)
                sums[site] += largest.sum((0, 2)).cpu()
            done += len(tokens)
            inputs.progress.step(done)
    inputs.progress.end()
    num_tokens = sum(inputs.rows.lengths)
    return name_units(inputs, {site: found / num_tokens for site, found in sums.items()})


METHODS = (
    Method(
        "confidence",
        "removes the heads with the least confident attention",
        choose_plan=choose_plan,
    ),
)
