from __future__ import annotations

import pytest

from auber.data.rows import QuestionRows, Rows, WordRows
from auber.errors import TaskError
from tests.data.test_task import ASKED, TRAIN, WORDS


def test_rows_are_selected_in_order():
    assert TRAIN.select([2, 0]) == Rows(("e f", "a b"), ("z", "x"), (1, 0))
    assert Rows(("a", "b"), None, (0.5, 1.5)).select([1]) == Rows(("b",), None, (1.5,))
    assert WORDS.select([1, 0]) == WordRows((("c",), ("a", "b")), ((0,), (0, 1)))
    assert ASKED.select([1, 1]).contexts == ("a cat", "a cat")
    assert (len(TRAIN), len(ASKED.select([]))) == (3, 0)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: Rows(("a", "b"), ("c",), (0, 1)), "2 first, 1 second, 2 labels"),
        (lambda: WordRows((("a",),), ()), "1 words, 0 tags"),
        (lambda: QuestionRows(("a",), ("b",), ()), "1 questions, 1 contexts, 0 answers"),
    ],
)
def test_columns_must_be_equally_long(make, found):
    message = f"^rows: all columns must be equally long, found {found}; correct them$"
    with pytest.raises(TaskError, match=message):
        make()
