"""The multiplications a reward cannot do without, and how fast this device multiplies.

A reward's floor is the work that depends on the mask: in the searched layer the output projection and the feed-forward
block; above it whole layers, attention over the rows' true lengths; of the last layer keys and values for all tokens
but the rest for the first token alone, the only one most classifiers read; and the classifier. Counted are the matrix
products, two operations a multiplication; norms, activations, softmax, DeBERTa's products with relative positions and what
a classifier that reads a mean needs besides are left out, so nothing real reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from auber.bench.clock import each_seconds
from auber.models.encoders.base import Encoder
from auber.training.devices import Hardware

_MATRIX_SIZES = {"cuda": 8192, "mps": 4096, "cpu": 2048}
_MATRIX_REPEATS = 100
_MATRIX_PRODUCTS = 16
_MATRIX_SECONDS = 2.0


@dataclass(frozen=True)
class Work:
    """What there is to multiply: rows of these lengths through a model of these sizes."""

    hidden_size: int
    intermediate_size: int
    widths: tuple[int, ...]  # of each layer: its present heads times head_dim
    classifier: int  # weights of all that stands between the last layer and the logits
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, encoder: Encoder, lengths: Sequence[int]) -> Work:
        """The work a model has with rows of these lengths."""
        parts = [encoder.parts(layer) for layer in range(encoder.num_layers)]
        inside = {
            id(getattr(module, "fused", module))
            for layer in parts
            for module in (*vars(layer).values(), *layer.projections)
        }
        head = sum(
            module.weight.numel()
            for name, module in encoder.model.named_modules()
            if isinstance(module, nn.Linear)
            and id(module) not in inside
            and "embedding" not in name
        )
        # Of a gated feed-forward, the width of one without a gate that has as many weights.
        feed_forward = parts[0].expand.weight.numel() + parts[0].contract.weight.numel()
        return cls(
            encoder.hidden_size,
            feed_forward // (2 * encoder.hidden_size),
            tuple(layer.output.in_features for layer in parts),
            head,
            tuple(lengths),
        )

    @property
    def tokens(self) -> int:
        """All tokens of the rows."""
        return sum(self.lengths)

    @property
    def num_layers(self) -> int:
        """The layers of the model."""
        return len(self.widths)

    def reward_flops(self, layer: int) -> int:
        """The floating-point operations a reward of this layer cannot do without."""
        last, rows = self.num_layers - 1, len(self.lengths)
        if layer == last:
            return 2 * (self._finish(last, rows) + rows * self.classifier)
        total = self._finish(layer, self.tokens)
        total += sum(self._layer(above) for above in range(layer + 1, last))
        keys_and_values = 2 * self.hidden_size * self.widths[last] * self.tokens
        queries = self.hidden_size * self.widths[last] * rows
        mixing = 2 * self.widths[last] * self.tokens  # one query a row meets all tokens of the row
        total += keys_and_values + queries + mixing + self._finish(last, rows)
        return 2 * (total + rows * self.classifier)

    def _layer(self, layer: int) -> int:
        """Multiplications of one whole layer."""
        projections = 3 * self.hidden_size * self.widths[layer] * self.tokens
        attention = (
            2 * self.widths[layer] * sum(length * length for length in self.lengths)
        )  # scores and mixing
        return projections + attention + self._finish(layer, self.tokens)

    def _finish(self, layer: int, tokens: int) -> int:
        """Multiplications of the output projection and the feed-forward block."""
        return tokens * self.hidden_size * (self.widths[layer] + 2 * self.intermediate_size)


@dataclass(frozen=True)
class MatrixRate:
    """How fast the device multiplies two square matrices of random numbers."""

    size: int
    flops_per_second: float


def measure_matrix_rate(hardware: Hardware, size: int | None = None) -> MatrixRate:
    """The rate in the scorer's precision at its best: the median of the fastest quarter of a row of products.

    A GPU that has multiplied for a while slows down to stay within its power; a floor must not profit from that.
    """
    size = size or _MATRIX_SIZES.get(hardware.device.type, _MATRIX_SIZES["cpu"])
    generator = torch.Generator(hardware.device).manual_seed(0)
    # Random numbers and not ones: a GPU clocks higher on data whose bits hardly change.
    left, right = (
        torch.randn(size, size, generator=generator, device=hardware.device, dtype=hardware.dtype)
        for _ in range(2)
    )
    product = torch.empty_like(left)

    def some_products() -> None:
        # Several at a time: the wait of the host for the device is no part of a product.
        for _ in range(_MATRIX_PRODUCTS):
            torch.mm(left, right, out=product)

    seconds = each_seconds([some_products] * _MATRIX_REPEATS, hardware.device, _MATRIX_SECONDS)
    return MatrixRate(
        size, _MATRIX_PRODUCTS * 2 * size**3 / median(sorted(seconds)[: max(1, len(seconds) // 4)])
    )
