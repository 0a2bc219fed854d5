from __future__ import annotations

from dataclasses import replace

import pytest

from auber.data.rows import Answer, QuestionRows, Rows, WordRows
from auber.data.task import TaskData, check_task
from auber.errors import TaskError

WORDS = WordRows((("a", "b"), ("c",)), ((0, 1), (0,)))
TAGGED = TaskData("ner", WORDS, WordRows((("d", "e"),), ((1, 0),)), ("O", "B-X"), "entity_f1")
ASKED = QuestionRows(
    ("who?", "what?"),
    ("it was me", "a cat"),
    ((Answer("me", 7),), (Answer("cat", 2), Answer("a cat", 0))),
)
QUESTIONS = TaskData("qa", ASKED, ASKED.select([1]), None, "span_f1")


def test_what_a_task_of_each_kind_says_of_itself():
    assert (TAGGED.kind, TAGGED.num_labels, TAGGED.is_regression, TAGGED.has_classes) == (
        "tokens",
        2,
        False,
        False,
    )
    assert (QUESTIONS.kind, QUESTIONS.num_labels, QUESTIONS.is_regression, QUESTIONS.has_classes) == (
        "spans", 2, False, False,
    )  # fmt: skip
    assert TAGGED.majority_share == 0.5
    assert QUESTIONS.majority_share is None


def test_rows_are_selected_in_order():
    assert WORDS.select([1, 0]) == WordRows((("c",), ("a", "b")), ((0,), (0, 1)))
    assert ASKED.select([1, 1]).contexts == ("a cat", "a cat")
    assert len(ASKED.select([])) == 0


def test_good_tasks_pass():
    assert check_task(TAGGED) is TAGGED
    assert check_task(QUESTIONS) is QUESTIONS


def test_the_hash_tells_contents_apart():
    other = replace(TAGGED, train=replace(WORDS, tags=((0, 1), (1,))))
    moved = replace(
        QUESTIONS, train=replace(ASKED, answers=((Answer("me", 7),), (Answer("cat", 2),)))
    )
    tasks = (TAGGED, other, replace(TAGGED, metric="token_accuracy"), QUESTIONS, moved)
    assert len({task.content_hash for task in tasks}) == 5
    assert replace(TAGGED).content_hash == TAGGED.content_hash


def words(*rows):
    return replace(
        TAGGED, train=WordRows(tuple(row[0] for row in rows), tuple(row[1] for row in rows))
    )


def questions(*answers, context="it was me"):
    return replace(QUESTIONS, train=QuestionRows(("who?",), (context,), (tuple(answers),)))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            words((("a", "b"), (0,))),
            "ner: train row 0: every word needs a tag, found 2 words and 1 tags; correct the row",
        ),
        (
            words((("a",), (0,)), ((), ())),
            "ner: train row 1: has no words; fill it in or leave the row out",
        ),
        (
            words((("a", " "), (0, 1))),
            "ner: train row 0, word 1: the text is empty; fill it in or leave the row out",
        ),
        (
            words((("a", "b"), (0, 2))),
            "ner: train row 0, word 1: the tag must be from 0 to 1, found 2; correct it",
        ),
        (
            words((("a", "b"), (0, 0))),
            "ner: every word of train has the tag 'O'; at least two tags are needed",
        ),
        (
            replace(TAGGED, label_names=None),
            "ner: train: tagged words need the names of their tags; give label_names",
        ),
        (
            replace(TAGGED, metric="accuracy"),
            "ner: rows of kind tokens are scored by one of token_accuracy, entity_f1, tag_explained, found the metric accuracy",
        ),
        (
            replace(TAGGED, label_names=("O", "NOUN")),
            "ner: metric entity_f1 needs tags O, B-TYPE and I-TYPE \\(IOB2\\), found 'NOUN'; convert the tags, or choose token_",
        ),
        (
            replace(TAGGED, dev=Rows(("a",), None, (0,))),
            "ner: dev must hold rows of kind tokens, as train does, found sequence",
        ),
        (replace(TAGGED, dev=WordRows((), ())), "ner: dev has no rows; at least one is needed"),
        (
            questions(),
            "qa: train row 0: has no answer; questions without one cannot be learned here, leave the row out",
        ),
        (
            questions(Answer("me", 9)),
            "qa: train row 0: answer_start must be from 0 to 8, a character of the context, found 9; correct it",
        ),
        (
            questions(Answer("me", -1)),
            "qa: train row 0: answer_start must be from 0 to 8, .* found -1; correct it",
        ),
        (
            questions(Answer("me", 6)),
            "qa: train row 0: the context has ' m' at answer_start 6, the answer's text is 'me'; correct one of them",
        ),
        (
            questions(Answer("me too", 7)),
            "qa: train row 0: the context has 'me' at answer_start 7, the answer's text is 'me t",
        ),
        (questions(Answer("", 3)), "qa: train row 0, answer: the text is empty"),
        (questions(Answer("me", 0), context=" "), "qa: train row 0, context: the text is empty"),
        (
            replace(QUESTIONS, label_names=("a",)),
            "qa: train: answers are pieces of their context and have no names; leave",
        ),
        (
            replace(QUESTIONS, metric="entity_f1"),
            "qa: rows of kind spans are scored by one of span_exact, span_f1, found",
        ),
    ],
)
def test_bad_rows_are_named(task, message):
    with pytest.raises(TaskError, match=f"^{message}"):
        check_task(task)


def test_columns_must_be_equally_long():
    with pytest.raises(
        TaskError, match=r"^rows: lists of words and of tags must be equally many, found 1 and 0$"
    ):
        WordRows((("a",),), ())
    with pytest.raises(
        TaskError,
        match=r"^rows: questions, contexts and answers must be equally many, found 1, 1 and 0$",
    ):
        QuestionRows(("a",), ("b",), ())
