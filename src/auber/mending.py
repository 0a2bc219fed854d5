"""The heads that stay stand in for those that go, as far as they can.

Heads of a layer say much of the same. What a removed head computes for a token is foretold, by linear regression over the tokens of
some rows, from what the kept ones compute there; as the output projection is linear too, the forecast goes into its weights and
bias, and the mended layer is as small and as fast as one without the head. All that is needed is the mean and the covariance of
what the layer's heads compute: one pass over the rows for all layers, then a closed form for every mask. Labels play no part in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from auber.batching import length_batches
from auber.checkpoint import weights_digest
from auber.encoders import encoder_of
from auber.plan import PruningPlan
from auber.surgery import remove_heads
from auber.tasks.encoding import EncodedRows, pad_batch, part_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What is added to the variance of every kept feature, as a share of their mean: forecasts that hang on tiny differences are noise.
_RIDGE = 1e-3
_LEAST = 1e-30  # the same where the kept heads say nothing at all, and foretell nothing
# So many rows tell the covariance of some hundred features as well as all rows of a large task would.
_MOST_ROWS = 4000
_TOKENS_PER_BATCH = {"cuda": 32_768, "cpu": 4_096}


@dataclass(frozen=True, eq=False)
class Mending:
    """How the heads of one layer stand in for each other; heads are numbered as in the unpruned model."""

    present: tuple[int, ...]
    mean: Tensor  # (features,) in float64; features are present_heads * head_dim, as all below
    covariance: Tensor  # (features, features)
    key: str  # equal keys, equal forecasts

    def cpu(self) -> Mending:
        """The same on the CPU."""
        return replace(self, mean=self.mean.cpu(), covariance=self.covariance.cpu())

    def stand_in(self, removed: Sequence[int]) -> tuple[Tensor, Tensor]:
        """What is known of all heads without some of them: a matrix (features, features) and an offset (features,).

        Times the one and plus the other, what all heads computed becomes what those that stay say of it: themselves, and a
        forecast of those removed.
        """
        missing = {*removed}
        kept = self._features([head not in missing for head in self.present])
        gone = self._features([head in missing for head in self.present])
        matrix, offset = torch.zeros_like(self.covariance), torch.zeros_like(self.mean)
        matrix[kept, kept] = 1
        offset[gone] = self.mean[gone]
        if len(kept) and len(gone):
            own = self.covariance[kept[:, None], kept]
            own.diagonal().add_(_RIDGE * own.diagonal().mean() + _LEAST)
            # of a positive definite matrix; checks nothing, so that nobody waits for a GPU
            root, _ = torch.linalg.cholesky_ex(own)
            forecast = torch.cholesky_solve(self.covariance[kept[:, None], gone], root).T  # (gone, kept)
            matrix[gone[:, None], kept] = forecast
            offset[gone] -= forecast @ self.mean[kept]
        return matrix, offset

    def _features(self, chosen: Sequence[bool]) -> Tensor:
        """The features of some of the present heads, told without asking the device."""
        width = len(self.mean) // len(self.present)
        heads = torch.tensor([position for position, is_one in enumerate(chosen) if is_one], dtype=torch.long)
        features = (heads[:, None] * width + torch.arange(width)).flatten()
        return features.to(self.mean.device, non_blocking=True)


def learn_mending(model: PreTrainedModel, rows: EncodedRows, layers: Iterable[int] | None = None) -> dict[int, Mending]:
    """The mending of each of some layers, by default of all, from the tokens of some rows (of many, the first 4000).

    Only layers with heads to spare, two at least, have one. The model is left as it was.
    """
    encoder = encoder_of(model)
    wanted = range(encoder.num_layers) if layers is None else layers
    sums = {layer: _Sums(encoder.parts(layer).output) for layer in wanted if len(encoder.present(layer)) > 1}
    rows = rows.select(range(min(len(rows), _MOST_ROWS)))
    was_training, device = model.training, model.device
    tokens_per_batch = _TOKENS_PER_BATCH.get(device.type, _TOKENS_PER_BATCH["cpu"])
    hooks = [each.output.register_forward_pre_hook(each.listen) for each in sums.values()]
    model.eval()
    try:
        with torch.inference_mode():
            for batch in length_batches(rows.lengths, tokens_per_batch):
                inputs, _ = part_batch(pad_batch([rows[row] for row in batch], rows.pad_token_id))
                inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
                model(**inputs)
                for each in sums.values():
                    each.add(inputs["attention_mask"].bool())
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
    identity = f"{weights_digest(model)}/{rows.content_hash}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:24]
    return {layer: Mending(encoder.present(layer), *each.moments(), key) for layer, each in sums.items()}


def remove_mended(model: PreTrainedModel, plan: Mapping[int, Sequence[int]], mending: Mapping[int, Mending]) -> None:
    """Slice a plan's heads out of the model, in place, those that stay standing in for them.

    The mending must be of the model's layers as they are; heads of a layer that has lost some since cannot be mended by it.
    """
    encoder = encoder_of(model)
    for layer, removed in plan.items():
        if not removed:
            continue
        assert mending[layer].present == encoder.present(layer), f"layer {layer}: learned before heads went"
        output = encoder.parts(layer).output
        matrix, offset = (part.to(output.weight.device) for part in mending[layer].stand_in(removed))
        with torch.no_grad():
            weight = output.weight.double()  # (hidden, features)
            output.weight.copy_(weight @ matrix)
            if output.bias is not None:
                output.bias.copy_(output.bias.double() + weight @ offset)
        remove_heads(model, PruningPlan({layer: removed}))


class _Sums:
    """What is added up, over tokens, of what the heads of a layer compute."""

    def __init__(self, output: Any) -> None:
        self.output = output  # the projection that reads it
        features, device = output.in_features, output.weight.device
        self._tokens = 0
        self._total = torch.zeros(features, dtype=torch.float64, device=device)
        self._products = torch.zeros(features, features, dtype=torch.float64, device=device)
        self._heard: Tensor | None = None

    def listen(self, _output: Any, arguments: tuple[Tensor, ...]) -> None:
        """A hook before the projection."""
        self._heard = arguments[0]  # (rows, length, features)

    def add(self, tokens: Tensor) -> None:
        """Add what was heard last for the tokens (rows, length) that are no padding."""
        assert self._heard is not None
        said = self._heard[tokens].double()  # (tokens, features)
        self._heard = None
        self._tokens += len(said)
        self._total += said.sum(0)
        self._products += said.T @ said

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance.

        A projection without a bias has nowhere to put an offset: what it reads is then foretold through the origin.
        """
        mean = self._total / self._tokens
        if self.output.bias is None:
            mean = torch.zeros_like(mean)
        return mean, self._products / self._tokens - torch.outer(mean, mean)
