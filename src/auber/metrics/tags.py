"""Tagged words: which tokens stand for words, and the entities that tags spell.

Tags follow IOB2: `B-X` begins an entity of type X, `I-X` continues it, `O` is outside. An `I-X`
after `O`, after another type or at the start of a row begins an entity too, as in conlleval and in
seqeval's default mode, so files in the older IOB1 are read correctly. A predicted entity is right
if a true one has the same first word, last word and type.

Everything is computed without waiting for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

OUTSIDE = "O"
NO_TAG = -100  # of a token that is no word's first; transformers' losses ignore it


@dataclass(frozen=True)
class Scheme:
    """The meaning of each tag of a task."""

    types: tuple[int, ...]  # the type of entity, from 1; 0 outside
    begins: tuple[bool, ...]


@dataclass(frozen=True)
class TagTruth:
    """The true tags of packed rows."""

    places: Tensor  # (words,): the tokens that stand for words
    tags: Tensor  # (words,)
    firsts: Tensor  # (words,): whether a word is its row's first
    types: Tensor | None  # (tags,): the scheme, None if the tags do not follow IOB2
    begins: Tensor | None  # (tags,)

    def to(self, device: torch.device | str) -> TagTruth:
        """Return a copy on the device."""
        parts: list[Any] = [
            None if part is None else part.to(device) for part in vars(self).values()
        ]
        return TagTruth(*parts)


def read_scheme(names: Sequence[str]) -> Scheme | None:
    """Return the meaning of these tags; None if one is neither `O` nor `B-X` nor `I-X`."""
    numbers: dict[str, int] = {}
    types, begins = [], []
    for name in names:
        prefix, _, entity = name.partition("-")
        if name == OUTSIDE:
            types.append(0)
        elif prefix in ("B", "I") and entity:
            types.append(numbers.setdefault(entity, len(numbers) + 1))
        else:
            return None
        begins.append(prefix == "B")
    return Scheme(tuple(types), tuple(begins))


def sort_tags(names: set[str]) -> tuple[str, ...]:
    """Return tags in the order of their numbers: by name, or if they follow IOB2, `O` first and
    both tags of every type.
    """
    if read_scheme(tuple(names)) is None:
        return tuple(sorted(names))
    types = sorted({name[2:] for name in names if name != OUTSIDE})
    return (OUTSIDE, *(f"{prefix}-{entity}" for entity in types for prefix in ("B", "I")))


def entity_counts(logits: Tensor, truth: TagTruth) -> Tensor:
    """Return the numbers of right, of predicted and of true entities, int64 (3,).

    The logits are (tokens, tags).
    """
    predicted = logits.index_select(0, truth.places).argmax(-1)  # (words,)
    types, starts, ends = _entities(predicted, truth)
    true_types, true_starts, true_ends = _entities(truth.tags, truth)
    right = starts & true_starts & (types == true_types) & (ends == true_ends)
    return torch.stack((right.sum(), starts.sum(), true_starts.sum()))


def _entities(tags: Tensor, truth: TagTruth) -> tuple[Tensor, Tensor, Tensor]:
    """Return (words,) each: the type, whether an entity starts here, and the end of the run."""
    assert truth.types is not None, "tags without a scheme are refused before"
    assert truth.begins is not None
    types, begins = truth.types[tags], truth.begins[tags]
    changes = torch.ones_like(truth.firsts)
    changes[1:] = types[1:] != types[:-1]
    starts = (types != 0) & (begins | truth.firsts | changes)
    goes_on = (types != 0) & ~starts
    # A run ends before the next word that does not continue it: a minimum from the right.
    number = torch.arange(len(tags), device=tags.device)
    stops = number.masked_fill(goes_on, len(tags))
    behind = torch.full_like(stops, len(tags))
    behind[:-1] = stops.flip(0).cummin(0).values.flip(0)[1:]
    return types, starts, behind
