from __future__ import annotations

from auber.data.rows import Rows, WordRows
from tests.data.test_task import ASKED, TRAIN, WORDS


def test_rows_are_selected_in_order():
    assert TRAIN.select([2, 0]) == Rows(("e f", "a b"), ("z", "x"), (1, 0))
    assert Rows(("a", "b"), None, (0.5, 1.5)).select([1]) == Rows(("b",), None, (1.5,))
    assert WORDS.select([1, 0]) == WordRows((("c",), ("a", "b")), ((0,), (0, 1)))
    assert ASKED.select([1, 1]).contexts == ("a cat", "a cat")
    assert (len(TRAIN), len(ASKED.select([]))) == (3, 0)
