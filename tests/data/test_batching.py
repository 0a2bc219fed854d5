from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from auber.data.encoding import length_batches


@given(st.lists(st.integers(1, 128)), st.integers(1, 2000))
def test_every_row_once_and_within_the_budget(lengths, budget):
    batches = length_batches(lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget


def test_longest_rows_come_first():
    assert length_batches([3, 9, 5, 4], 10) == [[1], [2, 3], [0]]
