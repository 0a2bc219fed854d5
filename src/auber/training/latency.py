"""Measure how much of a model's time a head takes, for searches that reward saved time.

The model and a copy without half of its heads are timed side by side, in plain torch as
`auber speed` does. Time is assumed to fall evenly with the number of heads, whatever their layer.
If the measurement shows no saving, as on a GPU that waits for its host, a head saves nothing:
noise must not be rewarded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from auber.errors import ModelError, first_line
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.random_rows import random_rows
from auber.models.surgery import remove
from auber.training.timing import Call, Limits, Ratio, make_timer, ratio_of, side_by_side, verdict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.training.devices import Hardware

Models = Sequence["PreTrainedModel"]  # the first is unpruned
Calls = Callable[[int, int], list[Call]]  # from rows and length to a call of each model

LIMITS = Limits(repeats=100, seconds=20.0)
_BRIEFLY = Limits(repeats=20, seconds=2.0)


@dataclass(frozen=True)
class Saving:
    """The measured effect of removing heads."""

    heads: int  # removed for the measurement
    rows: int  # of a call
    length: int
    ratio: Ratio

    @property
    def percent(self) -> float:
        """The share of the model's time that a head takes; 0 if the saving is not significant."""
        return 100 * (1 - 1 / self.ratio.median) / self.heads if self.ratio.low > 1 else 0.0

    def words(self, device: str) -> str:
        """Return the finding as a sentence."""
        saved = (
            f"{self.percent:.2f} % of the model's time"
            if self.percent
            else "no measurable time, so none is rewarded"
        )
        rows = f"{self.rows} row{'s' if self.rows > 1 else ''} of {self.length} tokens on {device}"
        fewer = f"{self.heads} heads fewer: {verdict(self.ratio)}"
        return f"a removed head saves {saved}; {rows}, {fewer}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON types."""
        return {"percent_a_head": self.percent, **asdict(self)}


def measure_saving(
    model: PreTrainedModel,
    hardware: Hardware,
    rows: int,
    length: int,
    on_round: Callable[[int], None],
) -> Saving | None:
    """Return what a head saves; None if every layer has a single one. The model is not changed."""
    encoder = encoder_of(model)
    present = {layer: encoder.present(layer) for layer in range(encoder.num_layers)}
    plan = PruningPlan({layer: heads[: len(heads) // 2] for layer, heads in present.items()})
    if not plan:
        return None
    whole = copy.deepcopy(model).eval()
    half = copy.deepcopy(whole)
    remove(half, plan)
    timer = make_timer(hardware.device)
    try:
        calls = torch_calls((whole, half), hardware)(rows, length)
        seconds = side_by_side(calls, timer, LIMITS, on_round)
    except torch.OutOfMemoryError as error:
        reason = first_line(error)
        raise ModelError(
            f"timing: {rows} rows of {length} tokens do not fit into the memory of {hardware.name} "
            f"({reason}); lower reward.latency_rows"
        ) from error
    return Saving(plan.num_heads, rows, length, ratio_of(*seconds))


def time_rows(models: Models, hardware: Hardware, length: int) -> list[float]:
    """Return the seconds that each model takes for one row of `length` tokens."""
    calls = torch_calls([model.eval() for model in models], hardware)
    timed = side_by_side(calls(1, length), make_timer(hardware.device), _BRIEFLY)
    return [median(seconds) for seconds in timed]


def torch_calls(models: Models, hardware: Hardware) -> Calls:
    """Return calls of all models in plain torch."""
    on_cpu = hardware.device.type == "cpu"  # where the models already are, in float32
    placed = [
        model if on_cpu else copy.deepcopy(model).to(device=hardware.device, dtype=hardware.dtype)
        for model in models
    ]

    def calls(rows: int, length: int) -> list[Call]:
        inputs = tokenizer_inputs(models[0])
        drawn = random_rows(encoder_of(models[0]), inputs, rows=rows, length=length)
        batch = {name: tensor.to(hardware.device) for name, tensor in drawn.items()}
        return [torch.inference_mode()(partial(model, **batch)) for model in placed]

    return calls


def tokenizer_inputs(model: PreTrainedModel) -> tuple[str, ...]:
    """Return the inputs that a tokenizer of the model's family gives."""
    vocabulary = getattr(model.config, "type_vocab_size", 0)
    has_types = encoder_of(model).has_token_types and vocabulary > 1
    return ("input_ids", "attention_mask", *(["token_type_ids"] if has_types else []))
