"""What `auber bench` can be asked for: model sizes, shapes of rows, and one validated request.

Nothing here needs torch, so that the command line's help is made from these tables at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

from auber.errors import ConfigError, unknown_name

PADDED_LENGTH = 128  # what the plain way pads every row to; no generated row is longer
LEAST_ROWS = 8  # fewer cannot be split into what a search needs

_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class Size:
    """A BERT to make on the spot."""

    name: str
    num_layers: int
    num_heads: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int = 30522


@dataclass(frozen=True)
class RowShape:
    """Rows to generate: log-normal lengths, as texts have them, cut to a range."""

    name: str
    count: int  # rows of the reward set
    is_pair: bool
    metric: str
    median: float
    sigma: float  # standard deviation of the lengths' logarithm
    shortest: int
    longest: int

    def lengths(self, count: int) -> list[int]:
        """Token counts of so many rows, ascending: the quantiles themselves, so that totals depend on no draw."""
        normal = NormalDist()
        drawn = (
            self.median * math.exp(self.sigma * normal.inv_cdf((row + 0.5) / count))
            for row in range(count)
        )
        return [min(max(round(length), self.shortest), self.longest) for length in drawn]


SIZES: dict[str, Size] = {
    size.name: size
    for size in (
        Size("base", num_layers=12, num_heads=12, hidden_size=768, intermediate_size=3072),
        Size("small", num_layers=6, num_heads=12, hidden_size=384, intermediate_size=1536),
        Size(
            "tiny", num_layers=2, num_heads=4, hidden_size=32, intermediate_size=64, vocab_size=200
        ),
    )
}

# Counts and totals are those of the paper's reward sets, two thirds of train: RTE 110 k tokens, CoLA 64 k.
ROWS: dict[str, RowShape] = {
    shape.name: shape
    for shape in (
        RowShape(
            "rte",
            1660,
            True,
            "accuracy",
            median=60.5,
            sigma=0.55,
            shortest=12,
            longest=PADDED_LENGTH,
        ),
        RowShape("cola", 5701, False, "matthews", median=10.5, sigma=0.36, shortest=4, longest=48),
    )
}


@dataclass(frozen=True)
class Limits:
    """How often something is timed."""

    repeats: int = 9
    seconds: float = 60.0  # after which no further repeat is begun


@dataclass(frozen=True)
class Request:
    """One bench: on what, how long, and which parts."""

    size: str = "base"
    model: str | None = None  # a folder, hub name or run in place of a size
    rows: str = "rte"  # the shape of generated rows; the rows of a task replace them
    count: int | None = None  # rows of the generated reward set
    layers: tuple[int, ...] | None = None  # None: all
    limits: Limits = Limits()  # of a way, and of a layer
    steps: int = 100  # tuning steps a way
    rewards: bool = True
    tuning: bool = True
    search: bool = True
    growth: bool = False

    def __post_init__(self) -> None:
        _entry("size", SIZES, self.size)
        _entry("rows", ROWS, self.rows)
        for name, value, least in (
            ("count", self.count, LEAST_ROWS), ("repeats", self.limits.repeats, 1), ("steps", self.steps, 1),
        ):  # fmt: skip
            if value is not None and value < least:
                raise ConfigError(f"--{name} must be at least {least}, found {value}")
        if not self.limits.seconds > 0:
            raise ConfigError(f"--seconds must be above 0, found {self.limits.seconds:g}")
        if self.growth and self.model is not None:
            raise ConfigError(
                "--growth makes models of several sizes itself; give --size in place of --model"
            )
        if not (self.rewards or self.tuning or self.search or self.growth):
            raise ConfigError(
                "nothing is left to measure; leave out one of --no-rewards, --no-tuning, --no-search"
            )

    def check_layers(self, num_layers: int) -> tuple[int, ...]:
        """The layers to measure of a model with so many."""
        layers = range(num_layers) if self.layers is None else self.layers
        for layer in layers:
            if layer not in range(num_layers):
                raise ConfigError(f"--layers must be from 0 to {num_layers - 1}, found {layer}")
        return tuple(layers)


def parse_layers(text: str) -> tuple[int, ...]:
    """The numbers of `0,5,11`, ascending."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words) or len(set(words)) < len(words):
        raise ConfigError(
            f"--layers must be different numbers with commas between, such as 0,5,11, found '{text}'"
        )
    return tuple(sorted(int(word) for word in words))


def _entry(kind: str, table: Mapping[str, _Entry], name: str) -> _Entry:
    if name not in table:
        raise ConfigError(unknown_name(kind, name, table))
    return table[name]
