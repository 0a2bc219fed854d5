"""Where a run computes: device, precision and CPU threads.

The number of threads changes the last bits of results on a CPU. So a run resolves it once, records
it, and checks it on resume.
"""

from __future__ import annotations

import copy
import gc
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from auber.config import Config
from auber.errors import AuberError, ConfigError
from auber.system.distributed import num_processes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hardware:
    """A resolved device, precision and number of threads."""

    device: torch.device
    precision: str  # float32 or bfloat16: of scoring and of tuning's matrix products
    threads: int

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of scoring."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @property
    def name(self) -> str:
        """The device's name for people."""
        return device_name(self.device)

    def reset_peak(self) -> None:
        """Restart the measurement of `peak_bytes`."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_bytes(self) -> int | None:
        """Return the most GPU memory that this process held since `reset_peak`; None elsewhere."""
        return torch.cuda.max_memory_reserved(self.device) if self.device.type == "cuda" else None

    def free_unused(self) -> None:
        """Return GPU memory that torch has reserved but does not use; others may need it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def device_name(device: torch.device) -> str:
    """Return a device's name for people."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def cast_copy(model: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Return a copy on a device, with parameters in another precision.

    Buffers keep theirs: the angles of rotary positions need all their bits.
    """
    copied = copy.deepcopy(model).to(device)
    for parameter in copied.parameters():
        parameter.data = parameter.data.to(dtype)
    return copied


def halve_rows(
    where: str,
    rows: int,
    width: int,
    device: torch.device,
    reason: str,
    error: type[AuberError],
    note: str = "",
) -> int:
    """Return how many rows to run at a time where `rows` ran out of memory, and free some.

    Raise an `error` for a single row, and in a group of processes: if only one of them halved its
    batches, it would exchange gradients more often, or keep other weights.
    """
    name = device_name(device)
    if rows == 1:
        raise error(
            f"{where}: one row of {width} tokens does not fit into the memory of {name} "
            f"({reason}); free some of it, or lower max_length"
        )
    if num_processes() > 1:
        raise error(
            f"{where}: {rows} rows of {width} tokens do not fit into the memory of {name} "
            f"({reason}), and batches are not halved in a group of processes; free some "
            "memory, lower max_length or, for a tuning, start more processes"
        )
    fewer = (rows + 1) // 2
    logger.warning(
        "%s: out of memory on %s with %d rows of %d tokens at a time; continuing with %d at a "
        "time%s",
        where, name, rows, width, fewer, note,
    )  # fmt: skip
    free_memory(device)
    return fewer


def free_memory(device: torch.device) -> None:
    """Collect garbage, and return GPU memory that torch has reserved but does not use."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def resolve_hardware(config: Config) -> Hardware:
    """Resolve device, precision and threads, and set the threads of this process."""
    device = _resolve_device(config.device)
    precision = config.precision
    if precision == "auto":
        on_gpu = device.type == "cuda" and torch.cuda.is_bf16_supported()
        precision = "bfloat16" if on_gpu else "float32"
    if config.threads:
        torch.set_num_threads(config.threads)
    return Hardware(device, precision, torch.get_num_threads())


def _resolve_device(name: str) -> torch.device:
    is_here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next((each for each, here in is_here.items() if here), "cpu")
    elif not is_here.get(name, True):
        seen = "no GPU" if name == "cuda" else "none"
        raise ConfigError(
            f"device must be one that is here, found '{name}' but torch sees {seen}; "
            "use device=auto or device=cpu"
        )
    if name == "cuda":
        return torch.device(name, int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device(name)
