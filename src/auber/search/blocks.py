"""Blocks: units of one layer that go together, a head or some neurons, and plans made of them.

A *slot* is the attention or the feed-forward of one layer, with its blocks in the order in which
they should go. `Layout` numbers the blocks of all slots, so that a plan is one flag per block.

Importing this module does not import torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from auber.errors import PlanError
from auber.models.plan import PruningPlan

if TYPE_CHECKING:
    from auber.models.costs import UnitCosts
    from auber.models.encoders.base import Encoder

Flags = NDArray[np.bool_]  # (blocks,): whether each is removed
Block = tuple[int, ...]
Ranked = Mapping[int, Sequence[int]]  # units by layer, those to remove first in front

NUM_BLOCKS = 16  # of a layer's neurons


def cut_evenly(ranked: Sequence[int], count: int = NUM_BLOCKS) -> tuple[Block, ...]:
    """Cut ranked units into at most `count` blocks of about the same size."""
    count = min(count, len(ranked))
    bounds = [round(place * len(ranked) / count) for place in range(count + 1)] if count else [0]
    return tuple(tuple(ranked[low:high]) for low, high in itertools.pairwise(bounds))


def rank_by_norm(
    encoder: Encoder, layer: int, present: Sequence[int], count: int = NUM_BLOCKS
) -> tuple[Block, ...]:
    """Return a layer's neurons in blocks by the norm of their column of the contracting matrix."""
    norms = encoder.parts(layer).contract.weight.detach().float().norm(dim=0)  # (present_neurons,)
    order = norms.argsort(stable=True).tolist()
    return cut_evenly([present[place] for place in order], count)


@dataclass(frozen=True)
class Slot:
    """The attention or the feed-forward of a layer; the first of its blocks should go first."""

    kind: Literal["head", "neuron"]
    layer: int
    blocks: tuple[Block, ...]
    unit_cost: int  # multiply-adds per token of a head or neuron


def make_slots(
    heads: Ranked, neurons: Ranked, costs: UnitCosts, start: PruningPlan, size: int
) -> tuple[Slot, ...]:
    """Return the slots of ranked units, so that the plan `start` removes whole blocks.

    Each head is a block. A layer's neurons are cut from the border of what the plan removes, `size`
    at a time, so widths that are a multiple of a number stay so if `size` is one.
    """
    attention = [
        Slot("head", layer, tuple((head,) for head in ranked), costs.head)
        for layer, ranked in heads.items()
        if ranked
    ]
    feed_forward = []
    for layer, ranked in neurons.items():
        gone = {*start.neurons.get(layer, ())}
        removed = [neuron for neuron in ranked if neuron in gone]
        left = [neuron for neuron in ranked if neuron not in gone]
        ends = [removed[max(0, end - size) : end] for end in range(len(removed), 0, -size)]
        begins = [left[begin : begin + size] for begin in range(0, len(left), size)]
        blocks = tuple(tuple(block) for block in (*reversed(ends), *begins))
        if blocks:
            feed_forward.append(Slot("neuron", layer, blocks, costs.neuron))
    return (*attention, *feed_forward)


class Layout:
    """The blocks of some slots, numbered slot by slot; one block stays in each slot."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self.slots = tuple(slots)
        sizes = [len(slot.blocks) for slot in self.slots]
        if not self.slots or min(sizes) == 0:
            raise PlanError("blocks: each slot must have blocks, found none; leave out empty slots")
        self.num_blocks = sum(sizes)
        self.slot_of = np.repeat(np.arange(len(sizes)), sizes)  # (blocks,)
        self.sizes = np.array(sizes)  # (slots,)
        self.costs = np.array(
            [slot.unit_cost * len(block) for slot in self.slots for block in slot.blocks]
        )  # (blocks,), multiply-adds per token

    def plan(self, removed: Flags) -> PruningPlan:
        """Return the plan that removes these blocks."""
        units: dict[str, dict[int, list[int]]] = {"head": {}, "neuron": {}}
        places = iter(removed)
        for slot in self.slots:
            gone = [unit for block in slot.blocks if next(places) for unit in block]
            if gone:
                units[slot.kind].setdefault(slot.layer, []).extend(gone)
        return PruningPlan(units["head"], units["neuron"])

    def flags(self, plan: PruningPlan) -> Flags:
        """Return which blocks a plan removes; raise `PlanError` if it cuts one or has others."""
        flags = []
        for slot in self.slots:
            by_layer = plan.heads if slot.kind == "head" else plan.neurons
            gone = {*by_layer.get(slot.layer, ())}
            flags += [gone.issuperset(block) for block in slot.blocks]
        found = np.array(flags)
        if self.plan(found) != plan:
            raise PlanError(
                "blocks: a plan must remove whole blocks of the slots, found one that removes "
                f"{plan.num_heads} heads and {plan.num_neurons} neurons, of which blocks have "
                f"{self.plan(found).num_heads} and {self.plan(found).num_neurons}; make the slots "
                "from this plan"
            )
        if not self.leaves_one(found):
            raise PlanError(
                "blocks: one block must stay in each slot, found a plan that removes all of a "
                "slot; leave one"
            )
        return found

    def left(self, removed: Flags) -> NDArray[np.int_]:
        """Return how many blocks each slot has left: (slots,)."""
        lost: NDArray[np.int_] = np.bincount(self.slot_of, weights=removed).astype(int)
        return self.sizes - lost

    def leaves_one(self, removed: Flags) -> bool:
        """Return whether each slot has a block left."""
        return bool((self.left(removed) > 0).all())

    def saved(self, removed: Flags) -> int:
        """Return the multiply-adds per token of the removed blocks."""
        return int(self.costs[removed].sum())

    def exchange(self, removed: Flags, source: int, target: int, least: int) -> Flags | None:
        """Return the flags after `target` got its best removed block back at `source`'s expense.

        As many of `source`'s first blocks go as are needed to save `least` multiply-adds. None if
        nothing can be given back, or `source` would lose its last block.
        """
        gone = np.flatnonzero(removed & (self.slot_of == target))
        if not len(gone):
            return None
        after = removed.copy()
        after[gone[-1]] = False
        present = np.flatnonzero(~removed & (self.slot_of == source)).tolist()
        while self.saved(after) < least:
            if len(present) < 2:
                return None
            after[present.pop(0)] = True
        return after
