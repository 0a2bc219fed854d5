"""Random generators derived from (seed, purpose, layer).

Stages share no random state: each derives its own generator. A stage that is repeated after an
interruption therefore draws the same numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, purpose: str, layer: int | None = None) -> int:
    """Return a 63-bit seed that depends on the three arguments only."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{layer}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, layer: int | None = None) -> np.random.Generator:
    """Return a NumPy generator for one purpose."""
    return np.random.default_rng(derive(seed, purpose, layer))
