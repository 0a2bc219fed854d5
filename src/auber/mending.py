"""The heads that stay stand in for those that go, as far as they can.

Heads of a layer say much of the same. What a removed head computes for a token is foretold, by linear regression over the tokens of
some rows, from what the kept ones compute there; as the output projection is linear too, the forecast goes into its weights and
bias, and the mended layer is as small and as fast as one without the head. All that is needed is the mean and the covariance of
what the layer's heads compute: one pass over the rows, then a closed form for every mask. Labels play no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from auber.batching import length_batches
from auber.devices import Hardware
from auber.encoders import encoder_of
from auber.plan import PruningPlan
from auber.surgery import remove_heads
from auber.tasks.encoding import EncodedRows, pad_batch, part_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What is added to the variance of every kept feature, as a share of their mean: forecasts that hang on tiny differences are noise.
_RIDGE = 1e-3
# As many tokens tell a covariance of some hundred features as well as all of a large task's would.
_MOST_ROWS = 4000
_TOKENS_PER_BATCH = 16_384


@dataclass(frozen=True, eq=False)
class Mending:
    """How the heads of one layer stand in for each other; heads are numbered as in the unpruned model."""

    present: tuple[int, ...]
    mean: Tensor  # (features,) in float64; features are present_heads * head_dim, as all below
    covariance: Tensor  # (features, features)

    def stand_in(self, removed: Sequence[int]) -> tuple[Tensor, Tensor]:
        """A matrix (features, features) and an offset (features,): times and plus them, what all heads computed is what those that
        stay know of it. They stand for themselves, those removed by their forecast.
        """
        features = self.mean.numel()
        gone = torch.tensor([head in set(removed) for head in self.present], device=self.mean.device)
        gone = gone.repeat_interleave(features // len(self.present))  # (features,)
        kept = ~gone
        matrix = torch.diag(kept.double())
        offset = torch.zeros_like(self.mean)
        offset[gone] = self.mean[gone]
        if kept.any() and gone.any():
            own = self.covariance[kept][:, kept]
            own += torch.diag(torch.full_like(self.mean[kept], _RIDGE * float(own.diagonal().mean())))
            forecast = torch.linalg.solve(own, self.covariance[kept][:, gone]).T  # (gone, kept)
            matrix[gone.nonzero(), kept.nonzero().T] = forecast
            offset[gone] -= forecast @ self.mean[kept]
        return matrix, offset


def learn_mending(model: PreTrainedModel, layer: int, rows: EncodedRows, hardware: Hardware) -> Mending:
    """The mending of a layer of a model, from the tokens of (at most 4000 of) some rows; the model is left alone."""
    encoder = encoder_of(model)
    output = encoder.parts(layer).output
    total = torch.zeros(output.in_features, dtype=torch.float64, device=hardware.device)
    products = torch.zeros(output.in_features, output.in_features, dtype=torch.float64, device=hardware.device)
    heard: list[Tensor] = []

    def listen(_output: Any, arguments: tuple[Tensor, ...]) -> None:
        heard.append(arguments[0])

    chosen = range(min(len(rows), _MOST_ROWS))
    hook, was_training = output.register_forward_pre_hook(listen), model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in length_batches([rows.lengths[row] for row in chosen], _TOKENS_PER_BATCH):
                inputs, _ = part_batch(pad_batch([rows[row] for row in batch], rows.pad_token_id))
                inputs = {name: tensor.to(hardware.device) for name, tensor in inputs.items()}
                model(**inputs)
                said = heard.pop()[inputs["attention_mask"].bool()].double()  # (tokens, features)
                total += said.sum(0)
                products += said.T @ said
    finally:
        hook.remove()
        model.train(was_training)
    tokens = sum(rows.lengths[row] for row in chosen)
    # A projection without a bias has nowhere to put an offset: what it reads is then foretold through the origin.
    mean = total / tokens if output.bias is not None else torch.zeros_like(total)
    return Mending(encoder.present(layer), mean, products / tokens - torch.outer(mean, mean))


def remove_mended(model: PreTrainedModel, layer: int, removed: Sequence[int], mending: Mending) -> None:
    """Slice heads out of a layer, in place, those that stay standing in for them."""
    encoder = encoder_of(model)
    matrix, offset = mending.stand_in(removed)
    output = encoder.parts(layer).output
    with torch.no_grad():
        weight = output.weight.double()  # (hidden, features)
        output.weight.copy_(weight @ matrix.to(weight.device))
        if output.bias is not None:
            output.bias.copy_(output.bias.double() + weight @ offset.to(weight.device))
    remove_heads(model, PruningPlan({layer: removed}))
