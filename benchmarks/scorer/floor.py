"""The floor of a reward's time: the arithmetic that depends on the mask, at the rate of the device.

It is the searched layer from its output projection on, or for masks of neurons from its contracting
matrix on, the layers above it, and the classifier. Of the last layer it takes keys and values of
all tokens, and the rest for the first token alone, which is all that most classifiers read. Only
matrix products are counted, two operations per multiply-add; norms, activations, softmax and
DeBERTa's relative positions are left out, so nothing reaches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import torch
from torch import nn

from auber.models.encoders.base import Encoder
from auber.training.devices import Hardware

_MATRIX_SIZES = {"cuda": 8192, "mps": 4096}
_CPU_MATRIX_SIZE = 2048
_MATRIX_REPEATS = 100
_PRODUCTS_PER_REPEAT = 16  # at a time: the host's wait for the device is no part of a product
_MATRIX_SECONDS = 2.0

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Workload:
    """The sizes of a model and the lengths of its rows."""

    hidden_size: int
    intermediate_size: int
    widths: tuple[int, ...]  # of each layer: its present heads times head_dim
    classifier: int  # weights between the last layer and the logits
    lengths: tuple[int, ...]
    neurons: int  # of each layer; `intermediate_size` without a gate

    @classmethod
    def of(cls, encoder: Encoder, lengths: Sequence[int]) -> Workload:
        """Return the work of a model with rows of these lengths."""
        layers = [encoder.parts(layer) for layer in range(encoder.num_layers)]
        inside = {
            id(getattr(module, "fused", module))
            for parts in layers
            for module in (*vars(parts).values(), *parts.projections)
        }
        head = sum(
            module.weight.numel()
            for name, module in encoder.model.named_modules()
            if isinstance(module, nn.Linear)
            and id(module) not in inside
            and "embedding" not in name
        )
        # A gated feed-forward counts as one without a gate that has as many weights.
        feed_forward = layers[0].expand.weight.numel() + layers[0].contract.weight.numel()
        return cls(
            encoder.hidden_size,
            feed_forward // (2 * encoder.hidden_size),
            tuple(parts.output.in_features for parts in layers),
            head,
            tuple(lengths),
            layers[0].contract.in_features,
        )

    def count_flops(self, layer: int, kind: str = "heads") -> int:
        """Return the floating-point operations of one reward of a layer."""
        last, rows, tokens = len(self.widths) - 1, len(self.lengths), sum(self.lengths)
        read = rows if layer == last else tokens
        total = read * self.hidden_size * self.neurons
        if kind == "heads":
            total = self._finish(layer, read)
        if layer < last:
            total += sum(self._whole(above, tokens) for above in range(layer + 1, last))
            keys_and_values = 2 * self.hidden_size * self.widths[last] * tokens
            queries = self.hidden_size * self.widths[last] * rows
            mixing = 2 * self.widths[last] * tokens  # one query per row meets all tokens of its row
            total += keys_and_values + queries + mixing + self._finish(last, rows)
        return 2 * (total + rows * self.classifier)

    def _whole(self, layer: int, tokens: int) -> int:
        width = self.widths[layer]
        projections = 3 * self.hidden_size * width * tokens
        scores_and_mixing = 2 * width * sum(length * length for length in self.lengths)
        return projections + scores_and_mixing + self._finish(layer, tokens)

    def _finish(self, layer: int, tokens: int) -> int:
        """Return the multiply-adds of output projection and feed-forward block."""
        return tokens * self.hidden_size * (self.widths[layer] + 2 * self.intermediate_size)


def measure_matrix_rate(hardware: Hardware) -> tuple[int, float]:
    """Return a size of square matrices and the operations per second of multiplying two of them.

    It is the median of the fastest quarter of products of random numbers in the scorer's precision.
    A GPU that has multiplied for a while slows down to stay within its power; the floor must not
    profit from that.
    """
    size = _MATRIX_SIZES.get(hardware.device.type, _CPU_MATRIX_SIZE)
    generator = torch.Generator(hardware.device).manual_seed(0)
    # Random numbers instead of ones: a GPU clocks higher on data whose bits hardly change.
    left, right = (
        torch.randn(size, size, generator=generator, device=hardware.device, dtype=hardware.dtype)
        for _ in range(2)
    )
    product = torch.empty_like(left)

    def multiply() -> None:
        for _ in range(_PRODUCTS_PER_REPEAT):
            torch.mm(left, right, out=product)

    seconds = time_each([multiply] * _MATRIX_REPEATS, hardware.device, _MATRIX_SECONDS)
    fastest = sorted(seconds)[: max(1, len(seconds) // 4)]
    return size, _PRODUCTS_PER_REPEAT * 2 * size**3 / median(fastest)


def timed(call: Callable[[], _Result], device: torch.device) -> tuple[_Result, float]:
    """Return the result and the seconds of a call, with the device idle before and after."""
    _synchronize(device)
    started = time.perf_counter()
    result = call()
    _synchronize(device)
    return result, time.perf_counter() - started


def time_each(
    calls: Iterable[Callable[[], object]], device: torch.device, most_seconds: float
) -> list[float]:
    """Return the seconds of each call; none is begun after `most_seconds`, but the first always."""
    seconds: list[float] = []
    for call in calls:
        if seconds and sum(seconds) >= most_seconds:
            break
        seconds.append(timed(call, device)[1])
    return seconds


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
