"""How much is there of what the studies ask for, so that nothing partial is taken for the whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

Key = tuple[str, str, str, str, int, int]  # model, protocol, task, method, seed, draw


@dataclass(frozen=True)
class Coverage:
    """The blocks (pairs of a task and a seed) that are asked for, and what is missing of them."""

    blocks: int
    complete: int
    missing: tuple[str, ...]  # a line for each block that lacks something

    @property
    def label(self) -> str | None:
        """What must stand at a table that lacks something; None where nothing is missing."""
        return (
            f"incomplete: {self.complete} of {self.blocks} blocks so far" if self.missing else None
        )


def cover(wanted: Iterable[Key], found: Collection[Key]) -> Coverage | None:
    """The coverage of wanted runs by those found; None where nothing is wanted."""
    blocks: dict[tuple[str, int], list[Key]] = defaultdict(list)
    for key in sorted(wanted):
        _, _, task, _, seed, _ = key
        blocks[task, seed].append(key)
    if not blocks:
        return None
    missing = []
    for (task, seed), keys in blocks.items():
        lacking = [key for key in keys if key not in found]
        if lacking:
            words = (
                "everything" if len(lacking) == len(keys) else ", ".join(_methods(lacking, keys))
            )
            missing.append(f"{task}, seed {seed}: {words}")
    return Coverage(len(blocks), len(blocks) - len(missing), tuple(missing))


def _methods(lacking: list[Key], keys: list[Key]) -> Iterable[str]:
    """The methods that are missing; where only some draws of one are, these are named."""
    draws: dict[str, list[int]] = defaultdict(list)
    for _, _, _, method, _, draw in lacking:
        draws[method].append(draw)
    for method, missing in draws.items():
        asked = sum(key[3] == method for key in keys)
        yield method if len(missing) == asked else f"{method} (draw {', '.join(map(str, missing))})"
