from __future__ import annotations

import logging
import math
from dataclasses import replace

import pytest

from auber.data.task import Rows, TaskData, check_task
from auber.errors import TaskError

TRAIN = Rows(("a b", "c d", "e f"), ("x", "y", "z"), (0, 1, 1))
DEV = Rows(("g", "h", "i"), ("x", "y", "z"), (1, 0, 1))
DATA = TaskData("toy", TRAIN, DEV, ("no", "yes"), "accuracy")


def test_select_takes_rows_in_the_order_asked_for() -> None:
    assert TRAIN.select([2, 0]) == Rows(("e f", "a b"), ("z", "x"), (1, 0))
    assert Rows(("a", "b"), None, (0.5, 1.5)).select([1]) == Rows(("b",), None, (1.5,))
    assert len(TRAIN) == 3


def test_rows_must_be_equally_many() -> None:
    with pytest.raises(TaskError, match="found 2 first texts, 1 second texts and 2 labels"):
        Rows(("a", "b"), ("c",), (0, 1))


def test_sizes_follow_the_labels() -> None:
    assert (DATA.num_labels, DATA.is_regression, DATA.majority_share) == (
        2,
        False,
        pytest.approx(2 / 3),
    )
    regression = replace(DATA, label_names=None, metric="pearson")
    assert (regression.num_labels, regression.is_regression, regression.majority_share) == (
        1,
        True,
        None,
    )


def test_the_hash_is_pinned_and_sees_every_part() -> None:
    # PYTHONPATH=. python -c "import tests.data.test_base as t; print(t.DATA.content_hash)"
    assert DATA.content_hash == "3f54b7c931196f1720f75db8975b8cd1d1e6ef14d98381e5611afd21495835f1"
    changed = [
        replace(DATA, train=TRAIN.select([0, 2, 1])),
        replace(DATA, train=replace(TRAIN, second=None)),
        replace(DATA, dev=replace(DEV, labels=(1, 0, 0))),
        replace(DATA, train=DEV, dev=TRAIN),
        replace(DATA, label_names=("yes", "no")),
        replace(DATA, metric="f1"),
    ]
    assert len({data.content_hash for data in [DATA, *changed]}) == len(changed) + 1
    assert replace(DATA, name="other").content_hash == DATA.content_hash


def test_good_data_comes_back_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    assert check_task(DATA) is DATA
    assert not caplog.records


def test_rows_in_both_splits_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    dev = Rows(("a b", "a b", "e f"), ("x", "other", "z"), (1, 0, 1))
    with caplog.at_level(logging.WARNING):
        check_task(replace(DATA, dev=dev))
    assert [record.getMessage() for record in caplog.records] == [
        "careful: 2 of 3 dev rows also stand in train: a score on them says little of new rows"
    ]


@pytest.mark.parametrize(("copies", "told"), [(1, False), (2, True)])
def test_many_rows_that_repeat_others_are_counted(
    copies: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    texts = tuple(f"text {number}" for number in range(100))
    train = Rows(
        (*texts, *texts[:copies]), None, tuple(number % 2 for number in range(100 + copies))
    )
    check_task(replace(DATA, train=train, dev=Rows(("a", "b"), None, (0, 1))))
    message = "careful: 2 of 102 train rows have the texts of another one: of rows held out of a tuning, some may be known to it"
    assert caplog.messages == ([message] if told else [])


EMPTY = Rows((), (), ())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (replace(DATA, train=EMPTY), "^toy: train has no rows; at least one is needed$"),
        (replace(DATA, dev=EMPTY), "^toy: dev has no rows"),
        (
            replace(DATA, dev=replace(DEV, second=("x", " \t", "z"))),
            "^toy: dev row 1: the text is empty; fill it in or leave the row out$",
        ),
        (
            replace(DATA, dev=replace(DEV, first=("x", "y\ud800", "z"))),
            "dev row 1: the text holds half a surrogate pair",
        ),
        (
            replace(DATA, train=replace(TRAIN, labels=(1, 1, 1))),
            "every row of train is of class 'yes'; at least two",
        ),
        (
            replace(DATA, train=replace(TRAIN, labels=(1, 0, -1))),
            "train row 2: the label must be from 0 to 1, found -1",
        ),
        (
            replace(DATA, label_names=("a", "b", "c"), dev=replace(DEV, labels=(1, 2, 0))),
            "^toy: dev row 1: no row of train is of its class 'c'; add some or leave it out$",
        ),
        (
            replace(DATA, label_names=None, train=replace(TRAIN, labels=(1.0, math.nan, 2.0))),
            "train row 1: the target must be a finite number, found nan",
        ),
        (
            replace(DATA, label_names=None, train=replace(TRAIN, labels=(0.5, 0.5, 0.5))),
            "every target of train is 0.5; there is nothing to learn",
        ),
    ],
)
def test_data_that_cannot_be_used_is_refused(data: TaskData, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        check_task(data)
