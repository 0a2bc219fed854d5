"""How much of a model's time goes with a head here: what a search is paid by that is told to care for time.

The model is timed beside itself without half of its heads, as `auber speed` times them in torch, and time is taken to fall evenly
with the heads that go, whatever the layer. Where the pairs show no saving, as on a GPU that waits for its host, a head saves nothing: a search must
not be paid by noise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from auber.encoders import encoder_of
from auber.errors import ModelError
from auber.plan import PruningPlan
from auber.speed.clock import make_timer, side_by_side
from auber.speed.ratio import Ratio, ratio_of
from auber.speed.request import Limits
from auber.speed.ways import open_torch
from auber.surgery import remove_heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.devices import Hardware

LIMITS = Limits(repeats=100, seconds=20.0)


@dataclass(frozen=True)
class Saving:
    """What pairs of calls showed."""

    heads: int  # taken out to see it
    rows: int  # of a call
    length: int
    ratio: Ratio

    @property
    def percent(self) -> float:
        """Of the whole model's time that one head less saves; 0 where the interval does not exclude that."""
        return 100 * (1 - 1 / self.ratio.median) / self.heads if self.ratio.low > 1 else 0.0

    def words(self, device: str) -> str:
        """The finding for a person."""
        ratio = self.ratio
        with_what = (
            f"{self.rows} row{'s' if self.rows > 1 else ''} of {self.length} tokens on {device}, {self.heads} heads less: "
            f"{ratio.median:.2f} times as fast, 95 % interval {ratio.low:.2f} to {ratio.high:.2f}"
        )
        if not self.percent:
            return f"a removed head saves no time that can be measured, so none is paid for ({with_what})"
        return f"a removed head saves {self.percent:.2f} % of the model's time ({with_what})"

    def to_json(self) -> dict[str, Any]:
        """For a run's record."""
        ratio = {"median": self.ratio.median, "low": self.ratio.low, "high": self.ratio.high}
        return {
            "percent_a_head": self.percent,
            "heads": self.heads,
            "rows": self.rows,
            "length": self.length,
            "ratio": ratio,
        }


def measure_saving(
    model: PreTrainedModel, hardware: Hardware, rows: int, length: int, on_round: Callable[[int], None]
) -> Saving | None:
    """What a head saves; None where every layer has a single one. The model is not changed."""
    encoder = encoder_of(model)
    present = {layer: encoder.present(layer) for layer in range(encoder.num_layers)}
    halves = PruningPlan({layer: heads[: len(heads) // 2] for layer, heads in present.items()})
    if not halves:
        return None
    whole = copy.deepcopy(model).eval()
    half = copy.deepcopy(whole)
    remove_heads(half, halves)
    try:
        with open_torch((whole, half), hardware) as calls:
            seconds = side_by_side(calls(rows, length), make_timer(hardware.device), LIMITS, on_round)
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"timing: {rows} rows of {length} tokens do not fit into the memory of {hardware.name} "
            f"({str(error).partition(chr(10))[0]}); lower reward.latency_rows"
        ) from error
    return Saving(halves.num_removed, rows, length, ratio_of(*seconds))
