from __future__ import annotations

import json

import numpy
import pandas
import pytest
import torch
from datasets import Dataset

from auber.data.user_rows import make_task
from auber.errors import TaskError

ROWS = [
    {"text": "one", "other": "eins", "label": "b"},
    {"text": "two", "other": "zwei", "label": "a"},
]


def test_rows_in_memory_are_a_task():
    data = make_task(ROWS, ROWS[:1], text=["text", "other"])
    assert data.label_names == ("a", "b")
    assert data.train.texts() == [("one", "eins"), ("two", "zwei")]
    assert data.train.labels == (1, 0)
    assert make_task(Dataset.from_list(ROWS), iter(ROWS[:1]), text=["text", "other"]) == data
    assert (
        make_task(pandas.DataFrame(ROWS), pandas.DataFrame(ROWS[:1]), text=["text", "other"])
        == data
    )


@pytest.mark.parametrize(
    ("ones", "zeros"),
    [
        ((1, 1.0, "1", "1.0"), (0, "0.00")),
        ((numpy.int64(1), torch.tensor(1)), (numpy.float32(0), numpy.str_("0"))),
    ],
)
def test_a_number_is_one_class_however_it_is_written(ones, zeros):
    rows = [{"text": f"{label!r}", "label": label} for label in (*ones, *zeros)]
    data = make_task(rows, rows)
    assert data.label_names == ("0", "1")
    assert data.train.labels == (1,) * len(ones) + (0,) * len(zeros)


def test_a_name_that_is_given_is_taken_as_it_is():
    rows = [{"text": "one", "label": "1.0"}, {"text": "two", "label": "2.0"}]
    assert make_task(rows, rows, labels=["2.0", "1.0"]).train.labels == (1, 0)


@pytest.mark.parametrize(
    "text", [json.dumps(ROWS), "\n".join(map(json.dumps, ROWS))], ids=["a list", "lines"]
)
def test_json_is_a_list_of_rows_or_a_row_a_line(tmp_path, text):
    file = tmp_path / "train.json"
    file.write_text(text)
    assert make_task(file, file) == make_task(ROWS, ROWS)


@pytest.mark.parametrize("name", ["mrpc", "", " mine", "mi\nne"])
def test_a_name_is_a_word_that_is_no_known_task(name):
    message = r"^name: must be a word or more, and none of a known task \(agreement, .*\), found .*; choose another$"
    with pytest.raises(TaskError, match=message):
        make_task(ROWS, ROWS, name=name)
    assert make_task(ROWS, ROWS, name="my films").name == "my films"


def test_numbers_to_predict():
    rows = [{"text": "one", "label": 1}, {"text": "two", "label": "2.5"}]
    data = make_task(rows, rows, metric="pearson")
    assert data.is_regression
    assert data.train.labels == (1.0, 2.5)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([], "train: has no rows; at least one is needed"),
        (
            None,
            "train: a file, or rows that each map columns to values, are needed, found NoneType$",
        ),
        (
            {"text": ["one"], "label": ["a"]},
            "needed, found dict; give a list of rows, not columns$",
        ),
        ([("one", 1)], "train row 0: a row must map columns to values, found tuple"),
        (
            [{"text": "one"}],
            "train row 0: Unknown column 'label'. Known: text; name it with --label$",
        ),
        (
            [{"text": "one", "label": 1}, {"text": "two"}],
            "train row 1: one column 'label' is needed, found no such column; there are text$",
        ),
        (
            [{1: "one", "Text": 1}],
            "train row 0: Unknown column 'text'. Did you mean 'Text'. Known: 1, Text; name it with --text$",
        ),
        (
            [dict.fromkeys(map(str, range(100)), "")],
            r"Known: 0, 1, 10, .*, 26, \.\.\.; name it with --text$",
        ),
        (
            [{"tokens": [], "tags": []}],
            "look like rows of kind tokens: add --kind tokens, or name the column with --text$",
        ),
        ([{"text": " ", "label": 1}], "train row 0, column 'text': the text is empty"),
        (
            [{"text": "one", "label": 1.5}],
            "train row 0, column 'label': a class must be a word or a whole number, found 1.5",
        ),
    ],
)
def test_rows_that_cannot_be_used(train, message):
    with pytest.raises(TaskError, match=message):
        make_task(train, ROWS)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            {"text": "sentnce"},
            "Unknown column 'sentnce'. Did you mean 'sentence'. Known: grade, sentence$",
        ),
        (
            {"text": "sentence", "label": "grad"},
            "Unknown column 'grad'. Did you mean 'grade'. Known: grade, sentence$",
        ),
        (
            {"text": "sentence"},
            "Unknown column 'label'. Known: grade, sentence; name it with --label$",
        ),
        ({}, "Unknown column 'text'. Known: grade, sentence; name it with --text$"),
    ],
)
def test_a_column_that_is_not_there_is_told_with_the_nearest_or_the_option_that_names_it(
    tmp_path, named, message
):
    file = tmp_path / "rows.csv"
    file.write_text("sentence,grade\none,1\ntwo,2\n")
    with pytest.raises(TaskError, match=rf"rows\.csv: {message}"):
        make_task(file, file, **named)
