"""Repair a pruned model: refit the matrices that end each sublayer to the unpruned model.

What attention and feed-forward add to the residual stream ends in a linear layer. Layer by layer,
bottom to top, each of them is refitted by ridge regression, so that the sum after the sublayer is
as near as possible to that of the unpruned model on some rows. Its inputs are those of the pruned
model with all layers below repaired, so the refit makes up for their errors too. The penalty pulls
to the present weights. It needs neither labels nor gradients, and one pass of each model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from auber.data.encoding import EncodedRows, pad_batch, part_batch
from auber.models.encoders import Encoder, encoder_of
from auber.scoring.layers import pack_layers
from auber.scoring.packing import PackedBatch, cut_rows
from auber.system import seeds
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MOST_TOKENS = {"cuda": 2**16, "cpu": 2**13}
_TOKENS_PER_BATCH = 2**13
_PENALTY = 0.01  # relative to the mean square of the inputs


@dataclass
class _Chunk:
    """Some rows, and the input of the next layer in both models: (tokens, hidden)."""

    batch: PackedBatch
    pruned: Tensor
    unpruned: Tensor


@torch.no_grad()
def repair(
    pruned: PreTrainedModel,
    unpruned: PreTrainedModel,
    rows: EncodedRows,
    *,
    seed: int,
    progress: Progress,
) -> None:
    """Refit a pruned model in place, on a draw of rows; both models are on the same device."""
    encoder, original = encoder_of(pruned), encoder_of(unpruned)
    chunks = _draw_chunks(encoder, original, rows, seed)
    longest = max(chunk.batch.lengths[0] for chunk in chunks)
    layers = zip(
        pack_layers(encoder, longest, None), pack_layers(original, longest, None), strict=True
    )
    progress.begin("repairing the pruned model", encoder.num_layers)
    for number, (layer, wanted) in enumerate(layers):
        parts, goal = encoder.parts(number), original.parts(number)
        contexts = [
            (layer.context(chunk.pruned, chunk.batch), wanted.context(chunk.unpruned, chunk.batch))
            for chunk in chunks
        ]
        refit = _Refit(parts.output)
        for chunk, (context, taught) in zip(chunks, contexts, strict=True):
            refit.add(context, goal.output(taught) + chunk.unpruned - chunk.pruned)
        refit.apply()
        refit = _Refit(parts.contract)
        for chunk, (context, taught) in zip(chunks, contexts, strict=True):
            activations, attended = layer.expand(context, chunk.pruned)
            activations_taught, attended_taught = wanted.expand(taught, chunk.unpruned)
            refit.add(activations, goal.contract(activations_taught) + attended_taught - attended)
        refit.apply()
        for chunk, (context, taught) in zip(chunks, contexts, strict=True):
            chunk.pruned = layer.finish(context, chunk.pruned, chunk.batch)
            chunk.unpruned = wanted.finish(taught, chunk.unpruned, chunk.batch)
        progress.step(number + 1)
    progress.end()


class _Refit:
    """Ridge regression of a linear layer, with a penalty on the change of its weights."""

    def __init__(self, linear: nn.Linear) -> None:
        self._linear = linear
        width = linear.in_features + (linear.bias is not None)
        self._squares = linear.weight.new_zeros(width, width, dtype=torch.float64)
        self._products = linear.weight.new_zeros(width, linear.out_features, dtype=torch.float64)

    def add(self, inputs: Tensor, wanted: Tensor) -> None:
        """Add tokens: what the layer reads (tokens, width), and what it should return."""
        errors = wanted - self._linear(inputs)  # (tokens, hidden)
        if self._linear.bias is not None:
            inputs = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], 1)
        self._squares += inputs.T @ inputs
        self._products += inputs.T @ errors

    def apply(self) -> None:
        """Change the layer in place."""
        if not self._linear.in_features:
            return
        self._squares.diagonal().add_(_PENALTY * self._squares.diagonal().mean())
        change = torch.linalg.solve(self._squares, self._products).to(self._linear.weight.dtype)
        self._linear.weight += change[: self._linear.in_features].T
        if self._linear.bias is not None:
            self._linear.bias.add_(change[-1])


def _draw_chunks(encoder: Encoder, original: Encoder, rows: EncodedRows, seed: int) -> list[_Chunk]:
    """Return rows drawn at random, as many as there may be tokens, at the first layer."""
    device = encoder.model.device
    order = seeds.generator(seed, "rows of the repair").permutation(len(rows)).tolist()
    chosen: list[int] = []
    room = _MOST_TOKENS.get(device.type, _MOST_TOKENS["cpu"])
    for row in order:
        room -= rows.lengths[row]
        if room < 0 and chosen:
            break
        chosen.append(row)
    drawn = rows.select(sorted(chosen))
    chunks = []
    for members in cut_rows(drawn.lengths, _TOKENS_PER_BATCH):
        padded = pad_batch([drawn[row] for row in members], drawn.pad_token_id)
        inputs, _ = part_batch({name: tensor.to(device) for name, tensor in padded.items()})
        pruned, unpruned = (
            each.embed(inputs["input_ids"], inputs.get("token_type_ids"))[
                inputs["attention_mask"].bool()
            ]
            for each in (encoder, original)
        )
        batch = PackedBatch(tuple(drawn.lengths[row] for row in members), device)
        chunks.append(_Chunk(batch, pruned, unpruned))
    return chunks
