"""Words that several parts of a report say alike."""

from __future__ import annotations


def count(number: int, word: str) -> str:
    """So many of something: `1 run`, `2 runs`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
