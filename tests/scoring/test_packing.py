from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auber.scoring.packing import PackedBatch, cut_rows

CPU = torch.device("cpu")


@settings(max_examples=30)
@given(st.lists(st.integers(1, 128), min_size=1), st.integers(1, 500))
def test_every_row_is_in_one_batch_and_batches_are_sorted(lengths, tokens):
    batches = cut_rows(lengths, tokens)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    flat = [lengths[row] for rows in batches for row in rows]
    assert flat == sorted(lengths, reverse=True)
    for rows in batches:
        assert len(rows) == 1 or sum(lengths[row] for row in rows) <= tokens


@settings(max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=1))
def test_the_shape_of_a_batch(lengths):
    batch = PackedBatch(tuple(sorted(lengths, reverse=True)), CPU)
    assert batch.num_tokens == sum(lengths)
    assert batch.starts.diff().tolist() == list(batch.lengths)
    assert batch.firsts.tolist() == batch.starts[:-1].tolist()
    assert [length for count, length in batch.groups for _ in range(count)] == list(batch.lengths)
    positions = [position for length in batch.lengths for position in range(length)]
    assert batch.positions.tolist() == positions


@settings(max_examples=30)
@given(st.lists(st.integers(1, 5), min_size=1), st.integers(1, 3))
def test_blocks_hold_whole_rows_and_join_again(lengths, times):
    single = PackedBatch(tuple(sorted(lengths, reverse=True)), CPU)
    batch = single.repeated(times)
    assert single.repeated(times) is batch
    assert single.repeated(1) is single
    assert batch.lengths == single.lengths * times
    assert batch.groups == single.groups
    packed = torch.arange(2 * batch.num_tokens).view(-1, 2)
    by_row = packed.split(batch.lengths)
    blocks = batch.blocks(packed)
    for block, (count, length) in zip(blocks, batch.groups, strict=True):
        assert block.shape == (times * count, length, 2)
        assert all(any(torch.equal(row, other) for other in by_row) for row in block)
    assert torch.equal(batch.join(blocks), packed)
    firsts = packed[batch.firsts]
    blocks = batch.blocks(firsts, first_only=True)
    assert [block.shape[:2] for block in blocks] == [
        (times * count, 1) for count, _ in batch.groups
    ]
    assert torch.equal(batch.join(blocks), firsts)
