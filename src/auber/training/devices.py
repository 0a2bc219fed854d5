"""Where a run computes: device, precision and CPU threads.

The number of threads changes the last bits of results on a CPU. So a run resolves it once, records
it, and checks it on resume.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from auber.config import Config
from auber.errors import ConfigError


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
