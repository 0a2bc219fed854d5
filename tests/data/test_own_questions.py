from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auber.data.rows import Answer
from auber.data.user_rows import make_task
from auber.errors import TaskError

CONTEXT = "The cat sat on the mat."
ANSWERS = {"text": ["the mat", "mat", "mat"], "answer_start": [15, 19, 19]}
ROW = {"question": "Where?", "context": CONTEXT, "answers": ANSWERS}
SQUAD: dict[str, Any] = {
    "version": "1.1",
    "data": [
        {
            "title": "Cats",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "1",
                            "question": "Who?",
                            "answers": [{"text": "The cat", "answer_start": 0}],
                        },
                        {
                            "id": "2",
                            "question": "Where?",
                            "answers": [
                                {"text": text, "answer_start": start}
                                for text, start in zip(
                                    ANSWERS["text"], ANSWERS["answer_start"], strict=True
                                )
                            ],
                        },
                    ],
                }
            ],
        }
    ],
}


def write(path: Path, value: object, *more: object) -> Path:
    path.write_text("\n".join(json.dumps(each) for each in (value, *more)), encoding="utf-8")
    return path


def test_a_squad_file(tmp_path):
    file = write(tmp_path / "train.json", SQUAD)
    task = make_task(file, file, kind="spans")
    assert task.train.questions == ("Who?", "Where?")
    assert task.train.contexts == (CONTEXT, CONTEXT)
    assert task.train.answers == (
        (Answer("The cat", 0),),
        (Answer("the mat", 15), Answer("mat", 19)),
    )
    assert (task.kind, task.metric, task.label_names) == ("spans", "span_f1", None)


def test_jsonl_and_memory_say_the_same(tmp_path):
    file = write(tmp_path / "train.jsonl", ROW)
    from_file = make_task(file, file, kind="spans", metric="span_exact")
    assert from_file == make_task([ROW], [ROW], metric="span_exact")
    assert from_file.train == make_task(
        write(tmp_path / "a.json", SQUAD), file, kind="spans"
    ).train.select([1])


def test_the_columns_may_have_other_names():
    row = {"q": "Where?", "c": CONTEXT, "a": ANSWERS}
    task = make_task([row], [row], kind="spans", text=["q", "c"], label="a")
    assert task.train == make_task([ROW], [ROW], kind="spans").train


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"answers": {"text": ["mat"], "answer_start": [23]}},
            "answer_start must be from 0 to 22, .*found 23; correct it",
        ),
        (
            {"answers": {"text": ["mat"], "answer_start": [18]}},
            "the context has ' ma' at answer_start 18, the answer's text is 'mat'; correct one of them",
        ),
        (
            {"answers": {"text": [], "answer_start": []}},
            "has no answer; questions without one cannot be learned here",
        ),
        (
            {"answers": []},
            "has no answer; questions without one cannot be learned here, leave the row out",
        ),
        (
            {"answers": {"text": ["mat"], "answer_start": []}},
            "an object with the lists text and answer_start, equally long",
        ),
        (
            {"answers": "mat"},
            "an object with the lists text and answer_start is needed, found str 'mat'; correct it",
        ),
        (
            {"answers": {"text": ["mat"], "answer_start": ["19"]}},
            "text must be text and answer_start a whole number, found",
        ),
        (
            {"answers": [{"text": "mat"}]},
            "text must be text and answer_start a whole number, found 'mat' and None",
        ),
    ],
)
def test_a_bad_answer_is_named(tmp_path, changes, message):
    file = write(tmp_path / "train.jsonl", ROW, {**ROW, **changes})
    with pytest.raises(TaskError, match=rf"train\.jsonl, line 2, column 'answers': {message}"):
        make_task(file, file, kind="spans")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 3}, "column 'context': must be text, found int 3; correct it"),
        (
            {"question": " "},
            "column 'question': the text is empty; fill it in or leave the row out",
        ),
    ],
)
def test_a_bad_text_is_named(tmp_path, changes, message):
    file = write(tmp_path / "train.jsonl", ROW, {**ROW, **changes})
    with pytest.raises(TaskError, match=rf"train\.jsonl, line 2, {message}"):
        make_task(file, file, kind="spans")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, r": a JSON object with a list 'data' is needed, as in SQuAD's files"),
        ([], ": has no rows; at least one is needed"),
        ([3], ", item 0: must be a JSON object, found int"),
        (
            [ROW, {"question": "b"}],
            ", item 1: one column 'context' is needed, found no such column",
        ),
        (
            {"data": [{"paragraphs": None}]},
            ", data 0: a JSON object with a list 'paragraphs' is needed",
        ),
        (
            {"data": [{"paragraphs": [{"context": "a"}]}]},
            ", data 0, paragraph 0: a JSON object with a list 'qas' is needed",
        ),
        (
            {"data": [{"paragraphs": [{"context": "a", "qas": [3]}]}]},
            ", data 0, paragraph 0, question 0: must be a JSON object, found int",
        ),
        (
            {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}]},
            ", data 0, paragraph 0, question 0: one column 'answers' is needed, found no such column",
        ),
        (
            {"data": [{"paragraphs": [{"qas": [{"question": "b", "answers": []}]}]}]},
            ", data 0, paragraph 0, question 0, column 'context': must be text, found NoneType",
        ),
        ({"data": []}, ": has no rows; at least one is needed"),
    ],
)
def test_a_bad_squad_file_is_named(tmp_path, value, message):
    file = write(tmp_path / "train.json", value)
    with pytest.raises(TaskError, match=rf"train\.json{message}"):
        make_task(file, file, kind="spans")


def test_what_is_no_json_at_all(tmp_path):
    file = tmp_path / "train.json"
    file.write_text("{")
    with pytest.raises(
        TaskError,
        match=r"train\.json: not a JSON value \(.*\); SQuAD's json, or a list of objects, is needed",
    ):
        make_task(file, file, kind="spans")


def test_answers_have_no_names():
    with pytest.raises(
        TaskError,
        match=r"^labels: answers are pieces of their context and have no names; leave labels out$",
    ):
        make_task([ROW], [ROW], kind="spans", labels=["a"])
