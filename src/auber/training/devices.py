"""Where a run computes: device, precision and CPU threads.

Numbers of threads change the last bits of a CPU result, so a run resolves them once, records them and checks them when it
goes on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from auber.config import Config
from auber.errors import ConfigError


@dataclass(frozen=True)
class Hardware:
    """What `auto` came to."""

    device: torch.device
    precision: str  # float32 or bfloat16: of scoring and of tuning's matrix products
    threads: int

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type scoring computes in."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @property
    def name(self) -> str:
        """The device as a person knows it."""
        return (
            torch.cuda.get_device_name(self.device)
            if self.device.type == "cuda"
            else self.device.type
        )

    def reset_peak(self) -> None:
        """Let `peak_bytes` count from now on."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_bytes(self) -> int | None:
        """The most memory this process held on its GPU since `reset_peak`; None elsewhere."""
        return torch.cuda.max_memory_reserved(self.device) if self.device.type == "cuda" else None

    def free_unused(self) -> None:
        """Hand back what torch has set aside of a GPU's memory: others may share it, and recordings' memory serves nothing else."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def resolve_hardware(config: Config) -> Hardware:
    """Decide device, precision and threads, and pin the threads in this process."""
    device = _resolve_device(config.device)
    precision = config.precision
    if precision == "auto":
        precision = (
            "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
        )
    if config.threads:
        torch.set_num_threads(config.threads)
    return Hardware(device, precision, torch.get_num_threads())


def _resolve_device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device must be one that is here, found 'cuda' but torch sees no GPU; use device=auto or device=cpu"
        )
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(
            "device must be one that is here, found 'mps' but torch sees none; use device=auto or device=cpu"
        )
    return (
        torch.device(name, int(os.environ.get("LOCAL_RANK", 0)))
        if name == "cuda"
        else torch.device(name)
    )
