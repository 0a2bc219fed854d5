"""What `auber speed` can be asked for, validated; nothing here needs torch, so that a mistake is told at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from auber.errors import ConfigError, unknown_name
from auber.training.timing import Limits

DEVICES = ("auto", "cpu", "cuda")
USUAL_LENGTH = 128  # tokens of a row


@dataclass(frozen=True)
class Request:
    """One measurement: of which runs, on what, how often."""

    runs: tuple[str, ...]
    model: str | None = None  # the architecture of runs whose model is gone
    only: tuple[str, ...] = ()  # of a results file, such as method=auber,seed=1
    batches: tuple[int, ...] = (1, 32)
    length: int | None = None  # None: the usual, or as many as the model has positions for
    device: str = "auto"  # auto: CPU, and a GPU where there is one
    onnx: bool | None = None  # None: where it is installed, unless the device is a GPU alone
    threads: int = 0  # 0: as many as torch finds
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ConfigError(unknown_name("device", self.device, DEVICES))
        if self.length is not None and self.length < 1:
            raise ConfigError(f"--length must be at least 1, found {self.length}")
        if self.threads < 0:
            raise ConfigError(
                f"--threads must be 0 (as many as torch finds) or more, found {self.threads}"
            )


def parse_batches(text: str) -> tuple[int, ...]:
    """The numbers of `1,32`, ascending."""
    words = [word.strip() for word in text.split(",")]
    numbers = sorted(int(word) for word in words if word.isascii() and word.isdigit())
    if len(numbers) < len(words) or len(set(numbers)) < len(words) or numbers[0] < 1:
        raise ConfigError(
            f"--batch must be different numbers from 1 with commas between, such as 1,32, found '{text}'"
        )
    return tuple(numbers)
