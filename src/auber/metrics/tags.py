"""Tagged words: which tokens stand for words, and the entities that tags of words spell.

Tags follow IOB2: `B-X` begins an entity of type X, `I-X` goes on with it, `O` is outside. An `I-X` that goes on with
nothing (behind `O`, behind another type, at the start of a row) begins an entity itself, as conlleval and seqeval's default
mode read it, so files in the older IOB1 are read right as well. An entity of the model counts where a true one has the same
first word, last word and type.

All is computed on the device without waiting for it: which tokens are words is known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

OUTSIDE = "O"
NO_TAG = -100  # of a token that is no word's first: what transformers' losses leave out


@dataclass(frozen=True)
class Scheme:
    """What the tags of a task mean, by their number."""

    types: tuple[int, ...]  # the type of entity from 1, 0 outside
    begins: tuple[bool, ...]


@dataclass(frozen=True)
class TagTruth:
    """The true tags of packed rows: their tokens one after the other, without padding."""

    places: Tensor  # (words,): the tokens that stand for words
    tags: Tensor  # (words,)
    firsts: Tensor  # (words,): whether a word is its row's first
    types: Tensor | None  # (tags,), begins alike: the scheme, None where the tags follow none
    begins: Tensor | None

    def to(self, device: torch.device | str) -> TagTruth:
        """The same on a device."""
        moved = [None if each is None else each.to(device) for each in (self.types, self.begins)]
        return TagTruth(
            self.places.to(device), self.tags.to(device), self.firsts.to(device), *moved
        )


def read_scheme(names: Sequence[str]) -> Scheme | None:
    """What these tags mean, None where one of them is neither `O` nor `B-X` nor `I-X`."""
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
    """Tags in the order a model numbers them: by name; `O` first and both tags of every type where they follow IOB2."""
    if read_scheme(tuple(names)) is None:
        return tuple(sorted(names))
    types = sorted({name[2:] for name in names if name != OUTSIDE})
    return (OUTSIDE, *(f"{prefix}-{entity}" for entity in types for prefix in ("B", "I")))


def entity_counts(logits: Tensor, truth: TagTruth) -> Tensor:
    """Entities found by the model that are right, all it found, and all there are: int64 (3,), from logits (tokens, tags)."""
    assert truth.types is not None, "tags without a scheme are refused before"
    assert truth.begins is not None
    predicted = logits.index_select(0, truth.places).argmax(-1)  # (words,)
    types, starts, ends = _entities(predicted, truth.firsts, truth.types, truth.begins)
    true_types, true_starts, true_ends = _entities(
        truth.tags, truth.firsts, truth.types, truth.begins
    )
    right = starts & true_starts & (types == true_types) & (ends == true_ends)
    return torch.stack((right.sum(), starts.sum(), true_starts.sum()))


def _entities(
    tags: Tensor, firsts: Tensor, types: Tensor, begins: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each word: its type, whether an entity starts there, and the word behind the run it is part of; each (words,)."""
    types, begins = types[tags], begins[tags]
    changes = torch.ones_like(firsts)
    changes[1:] = types[1:] != types[:-1]
    starts = (types != 0) & (begins | firsts | changes)
    goes_on = (types != 0) & ~starts
    # The end of a word's run: the next word that does not go on, found by a minimum from the right.
    number = torch.arange(len(tags), device=tags.device)
    stops = number.masked_fill(goes_on, len(tags))
    behind = torch.full_like(stops, len(tags))
    behind[:-1] = stops.flip(0).cummin(0).values.flip(0)[1:]
    return types, starts, behind
