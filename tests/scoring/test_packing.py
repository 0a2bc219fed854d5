from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from auber.scoring.packing import Slab, cut_rows

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 128), min_size=1), st.integers(1, 500))
def test_every_row_is_in_one_slab_and_slabs_are_sorted(lengths, tokens):
    slabs = cut_rows(lengths, tokens)
    assert sorted(row for rows in slabs for row in rows) == list(range(len(lengths)))
    flat = [lengths[row] for rows in slabs for row in rows]
    assert flat == sorted(lengths, reverse=True)
    for rows in slabs:
        assert len(rows) == 1 or sum(lengths[row] for row in rows) <= tokens


@given(st.lists(st.integers(1, 20), min_size=1))
def test_the_shape_of_a_slab(lengths):
    slab = Slab(tuple(sorted(lengths, reverse=True)), CPU)
    assert slab.num_tokens == sum(lengths)
    assert slab.starts.diff().tolist() == list(slab.lengths)
    assert slab.firsts.tolist() == slab.starts[:-1].tolist()
    assert [length for count, length in slab.groups for _ in range(count)] == list(slab.lengths)
    assert slab.positions.tolist() == [
        position for length in slab.lengths for position in range(length)
    ]


@given(st.lists(st.integers(1, 5), min_size=1), st.integers(1, 3))
def test_blocks_hold_whole_rows_and_join_again(lengths, times):
    slab = Slab(tuple(sorted(lengths, reverse=True)), CPU).repeated(times)
    packed = torch.arange(2 * slab.num_tokens).view(-1, 2)
    by_row = packed.split(slab.lengths)
    blocks = slab.blocks(packed)
    for block, (count, length) in zip(blocks, slab.groups, strict=True):
        assert block.shape == (times * count, length, 2)
        assert all(any(torch.equal(row, other) for other in by_row) for row in block)
    assert torch.equal(slab.join(blocks), packed)
    firsts = packed[slab.firsts]
    blocks = slab.blocks(firsts, first_only=True)
    assert [block.shape[:2] for block in blocks] == [(times * count, 1) for count, _ in slab.groups]
    assert torch.equal(slab.join(blocks), firsts)


def test_copies_stand_one_after_the_other():
    single = Slab((3, 1), CPU)
    slab = single.repeated(2)
    assert single.repeated(2) is slab
    assert single.repeated(1) is single
    assert slab.starts.tolist() == [0, 3, 4, 7, 8]
    assert slab.groups == single.groups == ((1, 3), (1, 1))
    assert [block.flatten().tolist() for block in slab.blocks(torch.arange(8)[:, None])] == [
        [0, 1, 2, 4, 5, 6],
        [3, 7],
    ]
