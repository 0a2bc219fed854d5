from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from auber.scoring.slabs import Slab, cut_rows

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
    rows = [length for _, count, length in slab.groups for _ in range(count)]
    assert rows == list(slab.lengths)
    assert [row for row, _, _ in slab.groups] == [slab.lengths.index(length) for _, _, length in slab.groups]


def test_copies_stand_one_after_the_other():
    single = Slab((3, 1), CPU)
    slab = single.repeated(2)
    assert single.repeated(2) is slab
    assert single.repeated(1) is single
    assert slab.starts.tolist() == [0, 3, 4, 7, 8]
    assert slab.groups == ((0, 1, 3), (1, 1, 1), (2, 1, 3), (3, 1, 1))
