"""How much of a model's time goes with a head here: what a search is paid by that is told to care for time.

The model is timed beside itself without half of its heads, as `auber speed` times them in torch, and time is taken to fall
evenly with the heads that go, whatever the layer. Where the pairs show no saving, as on a GPU that waits for its host, a head
saves nothing: a search must not be paid by noise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from auber.errors import ModelError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.random_rows import random_rows
from auber.models.surgery import remove_heads
from auber.training.clock import Call, make_timer, side_by_side
from auber.training.ratio import Limits, Ratio, ratio_of, verdict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.training.devices import Hardware

Models = tuple["PreTrainedModel", "PreTrainedModel"]  # unpruned, pruned
Calls = Callable[[int, int], list[Call]]  # from rows and length to a call for each model

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
        saved = (
            f"{self.percent:.2f} % of the model's time"
            if self.percent
            else "no time that can be measured, so none is paid for"
        )
        rows = f"{self.rows} row{'s' if self.rows > 1 else ''} of {self.length} tokens on {device}"
        return (
            f"a removed head saves {saved}; {rows}, {self.heads} heads less: {verdict(self.ratio)}"
        )

    def to_json(self) -> dict[str, Any]:
        """For a run's record."""
        return {"percent_a_head": self.percent, **asdict(self)}


def measure_saving(
    model: PreTrainedModel,
    hardware: Hardware,
    rows: int,
    length: int,
    on_round: Callable[[int], None],
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
            seconds = side_by_side(
                calls(rows, length), make_timer(hardware.device), LIMITS, on_round
            )
    except torch.OutOfMemoryError as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"timing: {rows} rows of {length} tokens do not fit into the memory of {hardware.name} ({reason}); lower "
            "reward.latency_rows"
        ) from error
    return Saving(halves.num_removed, rows, length, ratio_of(*seconds))


@contextmanager
def open_torch(models: Models, hardware: Hardware) -> Iterator[Calls]:
    """Calls of both models in plain torch."""
    on_cpu = hardware.device.type == "cpu"  # where the models are already, in float32
    placed = [
        model if on_cpu else copy.deepcopy(model).to(device=hardware.device, dtype=hardware.dtype)
        for model in models
    ]

    def calls(rows: int, length: int) -> list[Call]:
        drawn = random_rows(
            encoder_of(models[0]), tokenizer_inputs(models[0]), rows=rows, length=length
        )
        batch = {name: tensor.to(hardware.device) for name, tensor in drawn.items()}
        return [_torch_call(model, batch) for model in placed]

    yield calls


def _torch_call(model: PreTrainedModel, batch: dict[str, Tensor]) -> Call:
    @torch.inference_mode()
    def call() -> object:
        return model(**batch)

    return call


def tokenizer_inputs(model: PreTrainedModel) -> tuple[str, ...]:
    """What a tokenizer of the family gives."""
    has_types = (
        encoder_of(model).has_token_types and getattr(model.config, "type_vocab_size", 0) > 1
    )
    return ("input_ids", "attention_mask", *(["token_type_ids"] if has_types else []))
