"""The rows that are held out: a share of each class, never all of one."""

from __future__ import annotations

from collections import Counter

import pytest

from auber.errors import TaskError
from auber.run.rates.tunings import hold_out
from tests.run.rates.made import task_of


def test_held_out_rows_are_a_share_of_each_class():
    task = task_of([0] * 50 + [1] * 30 + [2] * 20)
    rest, held_out = hold_out(task, 0.2, seed=3)
    assert sorted(rest + held_out) == list(range(100))
    assert Counter(task.train.labels[row] for row in held_out) == {0: 10, 1: 6, 2: 4}
    assert hold_out(task, 0.2, seed=3) == (rest, held_out)
    assert hold_out(task, 0.2, seed=4) != (rest, held_out)


def test_held_out_rows_of_a_regression():
    rest, held_out = hold_out(
        task_of([0.5 * row for row in range(10)], None, "pearson"), 0.3, seed=0
    )
    assert (len(rest), len(held_out)) == (7, 3)
    assert sorted(rest + held_out) == list(range(10))


@pytest.mark.parametrize(
    ("labels", "share", "message"),
    [
        (
            [0, 1, 2] * 4,
            0.1,
            "own: from 3 to 11 of its 12 rows of train can be held out, a share of 0.1 is 1; choose",
        ),
        (
            [0, 1, 2] * 4,
            0.99,
            "own: from 3 to 11 of its 12 rows of train can be held out, a share of 0.99 is 12;",
        ),
        (
            [0] * 20 + [1] * 20 + [2],
            0.2,
            "own: some rows of each class must be left to tune on, all 1 of class 'maybe' would be held out; add some",
        ),
    ],
)
def test_too_few_rows_to_hold_out(labels, share, message):
    with pytest.raises(TaskError, match=f"^{message}"):
        hold_out(task_of(labels), share, seed=0)
