from __future__ import annotations

from dataclasses import replace

import pytest

from auber.data.rows import Answer, QuestionRows, Rows, WordRows
from auber.data.task import TaskData, check_task
from auber.errors import TaskError

TRAIN = Rows(("a b", "c d", "e f"), ("x", "y", "z"), (0, 1, 1))
DEV = Rows(("g", "h", "i"), ("x", "y", "z"), (1, 0, 1))
TOY = TaskData("toy", TRAIN, DEV, ("no", "yes"), "accuracy")
NUMBERS = replace(TOY, label_names=None, metric="pearson")

WORDS = WordRows((("a", "b"), ("c",)), ((0, 1), (0,)))
TAGGED = TaskData("ner", WORDS, WordRows((("d", "e"),), ((1, 0),)), ("O", "B-X"), "entity_f1")
ASKED = QuestionRows(
    ("who?", "what?"),
    ("it was me", "a cat"),
    ((Answer("me", 7),), (Answer("cat", 2), Answer("a cat", 0))),
)
QUESTIONS = TaskData("qa", ASKED, ASKED.select([1]), None, "span_f1")


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (TOY, ("sequence", 2, False, True, 2 / 3)),
        (NUMBERS, ("sequence", 1, True, False, None)),
        (TAGGED, ("tokens", 2, False, False, 0.5)),
        (QUESTIONS, ("spans", 2, False, False, None)),
    ],
)
def test_properties_follow_from_the_rows(task, expected):
    found = (task.kind, task.num_labels, task.is_regression, task.has_classes, task.majority_share)
    assert found == expected


@pytest.mark.parametrize(
    ("task", "pinned"),
    [
        # PYTHONPATH=. python -c "import tests.data.test_task as t; print(t.TOY.content_hash)"
        (TOY, "3f54b7c931196f1720f75db8975b8cd1d1e6ef14d98381e5611afd21495835f1"),
        (TAGGED, "f963831ec53172305434f143df79b6f0d6cae9a0d9ee47bdf940e5bc9ade5c75"),
        (QUESTIONS, "45ddef73781e8b139d317f6cfd7e51f5495f7298fc451a6969a7098e7cffe88d"),
    ],
)
def test_the_hash_is_pinned(task, pinned):
    assert task.content_hash == pinned == replace(task, name="other").content_hash


def test_dev_rows_that_are_in_train_are_counted(caplog):
    check_task(replace(TOY, dev=Rows(("a b", "a b", "e f"), ("x", "other", "z"), (1, 0, 1))))
    check_task(QUESTIONS)
    assert caplog.messages == [
        f"{found} dev rows are also in train, so their scores say little about new rows"
        for found in ("2 of 3", "1 of 1")
    ]


@pytest.mark.parametrize(("copies", "warns"), [(1, False), (2, True)])
def test_train_rows_that_repeat_others_are_counted(copies, warns, caplog):
    texts = tuple(f"text {number}" for number in range(100))
    labels = tuple(number % 2 for number in range(100 + copies))
    train = Rows((*texts, *texts[:copies]), None, labels)
    check_task(replace(TOY, train=train, dev=Rows(("a", "b"), None, (0, 1))))
    message = (
        "2 of 102 train rows repeat the texts of another row, so rows that are held out "
        "may have been trained on"
    )
    assert caplog.messages == ([message] if warns else [])


# fmt: off
BAD = [
    (replace(TOY, train=Rows((), (), ())), "toy: train has no rows; at least one is needed$"),
    (replace(TAGGED, dev=WordRows((), ())), "ner: dev has no rows; at least one is needed$"),
    (replace(TOY, train=replace(TRAIN, labels=(1, 1, 1))),
     "toy: every label of train is 'yes'; at least two different ones are needed$"),
    (replace(TOY, label_names=("a", "b", "c"), dev=replace(DEV, labels=(1, 2, 0))),
     "toy: dev row 1: no row of train is of its class 'c'; add some or leave it out$"),
    (replace(NUMBERS, train=replace(TRAIN, labels=(0.5, 0.5, 0.5))),
     "toy: every label of train is 0.5; at least two different ones are needed$"),
    (replace(TAGGED, train=WordRows((("a", "b"),), ((0, 0),))),
     "ner: every label of train is 'O'; at least two different ones are needed$"),
    (replace(TAGGED, label_names=("O", "NOUN")),
     r"ner: metric entity_f1 needs tags O, B-TYPE and I-TYPE \(IOB2\), found 'NOUN'; convert the "
     "tags, or choose token_accuracy$"),
]
# fmt: on


@pytest.mark.parametrize(("task", "message"), BAD)
def test_a_task_that_cannot_be_used_is_refused(task, message):
    with pytest.raises(TaskError, match=f"^{message}"):
        check_task(task)
