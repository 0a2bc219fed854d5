"""Random generators derived from (seed, purpose, layer).

A stage that starts again after a kill draws the same numbers, because nothing random is shared between stages:
each asks for its own generator by name.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, purpose: str, layer: int | None = None) -> int:
    """A 63-bit seed that depends on all three arguments and on nothing else."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{layer}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, layer: int | None = None) -> np.random.Generator:
    """A NumPy generator for one purpose."""
    return np.random.default_rng(derive(seed, purpose, layer))
