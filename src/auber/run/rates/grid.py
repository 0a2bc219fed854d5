"""What `auber rates` is asked to try: learning rates, seeds, and the share of train to hold out.

Nothing here needs torch, so that the command line's help is made from it at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from auber.errors import ConfigError

HELD_OUT = 0.2


@dataclass(frozen=True)
class Grid:
    """Every rate is tried with every seed; a seed draws the held-out rows, the new classifier and the batches."""

    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    held_out: float = HELD_OUT  # share of train

    def __post_init__(self) -> None:
        if (
            not self.rates
            or len(set(self.rates)) < len(self.rates)
            or not all(map(_is_rate, self.rates))
        ):
            raise ConfigError(
                f"--rates must be different numbers above 0, such as 1e-5,2e-5,5e-5, found {_listed(self.rates)}"
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(
                f"--seeds must be different whole numbers from 0, such as 0,1,2, found {_listed(self.seeds)}"
            )
        if not 0 < self.held_out < 1:
            raise ConfigError(
                f"--held-out must be a share above 0 and below 1, found {self.held_out:g}"
            )


def parse_rates(text: str) -> tuple[float, ...]:
    """The numbers of `1e-5,2e-5`, ascending."""
    try:
        return tuple(sorted(float(word) for word in text.split(",")))
    except ValueError as error:
        raise ConfigError(
            f"--rates must be numbers with commas between, such as 1e-5,2e-5, found '{text}'"
        ) from error


def parse_seeds(text: str) -> tuple[int, ...]:
    """The numbers of `0,1,2`, in their order."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ConfigError(
            f"--seeds must be whole numbers with commas between, such as 0,1,2, found '{text}'"
        )
    return tuple(int(word) for word in words)


def _is_rate(rate: float) -> bool:
    return math.isfinite(rate) and rate > 0


def _listed(numbers: tuple[float, ...]) -> str:
    return ",".join(f"{number:g}" for number in numbers) or "none"
