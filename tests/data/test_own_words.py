from __future__ import annotations

import json
from pathlib import Path

import pytest

from auber.data.user_rows import make_task
from auber.errors import TaskError

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP I-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
ROWS = [
    {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
    {"tokens": ["Peter"], "tags": ["B-ORG"]},
]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def jsonl(path: Path, rows: list[object]) -> Path:
    return write(path, "".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.parametrize("name", ["train.conll", "train.txt"])
def test_columns_of_words_and_tags(tmp_path, name):
    file = write(tmp_path / name, CONLL)
    task = make_task(file, file, kind="tokens")
    assert task.train.words == (("EU", "rejects", "German"), ("Peter", "Blackburn"))
    assert task.label_names == ("O", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert [[task.label_names[tag] for tag in tags] for tags in task.train.tags] == [
        ["B-ORG", "O", "I-MISC"],
        ["B-PER", "I-PER"],
    ]
    assert (task.kind, task.metric) == ("tokens", "entity_f1")


def test_tabs_windows_line_ends_and_words_with_odd_spaces(tmp_path):
    text = "New York\tB-LOC\r\nis\tO\r\n\r\n\r\n\u00a0x\tO\r\n"
    file = write(tmp_path / "train.conll", text)
    task = make_task(file, file, kind="tokens")
    assert task.train.words == (("New York", "is"), ("x",))


def test_lists_in_jsonl_and_in_memory(tmp_path):
    file = jsonl(tmp_path / "train.jsonl", ROWS)
    from_file = make_task(file, file, kind="tokens")
    assert from_file == make_task(ROWS, ROWS, metric="entity_f1")
    renamed = [{"words": row["tokens"], "ner": row["tags"]} for row in ROWS]
    assert (
        make_task(renamed, renamed, kind="tokens", text="words", label="ner").train
        == from_file.train
    )


def test_other_tags_are_scored_word_by_word():
    rows = [{"tokens": ["a", "cat"], "tags": ["DET", "NOUN"]}, {"tokens": ["it"], "tags": [3]}]
    task = make_task(rows, rows, metric="token_accuracy")
    assert task.label_names == ("3", "DET", "NOUN")
    message = r"^own: metric entity_f1 needs tags O, B-TYPE and I-TYPE \(IOB2\), found '3'; convert the tags, or choose"
    with pytest.raises(TaskError, match=message):
        make_task(rows, rows, kind="tokens")


def test_the_order_of_tags_can_be_a_trained_models():
    names = ["I-ORG", "B-ORG", "O"]
    task = make_task(ROWS, ROWS, kind="tokens", labels=names)
    assert task.label_names == tuple(names)
    assert task.train.tags == ((1, 2), (1,))


def test_a_name_stands_once():
    with pytest.raises(
        TaskError,
        match=r"^labels: each name may stand once, found O, B-ORG, O; leave the second out$",
    ):
        make_task(ROWS, ROWS, kind="tokens", labels=["O", "B-ORG", "O"])


def test_lists_in_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="parquet needs pyarrow")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "train.parquet")
    assert make_task(tmp_path / "train.parquet", ROWS, kind="tokens") == make_task(
        ROWS, ROWS, kind="tokens"
    )


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            {"tokens": ["a", "b"], "tags": ["O"]},
            "train.jsonl, line 3: every word needs a tag, found 2 words and 1 tags",
        ),
        (
            {"tokens": [], "tags": []},
            "train.jsonl, line 3: has no words; fill it in or leave the row out",
        ),
        (
            {"tokens": ["a", ""], "tags": ["O", "O"]},
            "train.jsonl, line 3, word 1: the text is empty",
        ),
        (
            {"tokens": "a b", "tags": ["O"]},
            "train.jsonl, line 3, column 'tokens': must be a list, found str 'a b'; use jsonl",
        ),
        (
            {"tokens": ["a"], "tags": "O"},
            "train.jsonl, line 3, column 'tags': must be a list, found str 'O'",
        ),
        (
            {"tokens": ["a", None], "tags": ["O", "O"]},
            "train.jsonl, line 3, column 'tokens', item 1: must be text, found NoneType None; correct it",
        ),
        (
            {"tokens": ["a"], "tags": [True]},
            "train.jsonl, line 3, column 'tags', item 0: must be text, found bool True; correct it",
        ),
        (
            {"tokens": ["a"]},
            "train.jsonl, line 3: one column 'tags' is needed, found no such column; there are tokens",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, train, message):
    file = jsonl(tmp_path / "train.jsonl", [*ROWS, train])
    with pytest.raises(TaskError, match=message):
        make_task(file, file, kind="tokens")


def test_a_tag_that_is_not_trains_is_named(tmp_path):
    dev = write(tmp_path / "dev.conll", "a O\n\nEU I-ORG\nis B-GEO\n")
    message = r"dev.conll, line 3, word 1 'is': tag 'B-GEO' is not one of train's \(O, B-ORG, I-ORG\); correct it or leave"
    with pytest.raises(TaskError, match=message):
        make_task(ROWS, dev, kind="tokens")
    with pytest.raises(
        TaskError,
        match=r"^train row 0, word 0 'EU': tag 'B-ORG' is not one of the known labels \(O, B-X\)",
    ):
        make_task(ROWS, ROWS, kind="tokens", labels=["O", "B-X"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "EU B-ORG\nrejects\n",
            "line 2: a word and its tag are needed, found 'rejects' alone; add its tag",
        ),
        ("", "has no rows; at least one is needed"),
        ("\n\n-DOCSTART- O\n", "has no rows; at least one is needed"),
    ],
)
def test_a_bad_file_of_columns_is_named(tmp_path, text, message):
    file = write(tmp_path / "train.conll", text)
    with pytest.raises(TaskError, match=rf"train\.conll(, |: ){message}"):
        make_task(file, file, kind="tokens")


def test_columns_of_other_kinds_are_not_in_these_files(tmp_path):
    file = write(tmp_path / "train.conll", CONLL)
    with pytest.raises(
        TaskError,
        match=r"Unknown column 'text'\. Known: tags, tokens; they look like rows of kind tokens: add --kind tokens",
    ):
        make_task(file, file)
    with pytest.raises(
        TaskError,
        match="one column of words and another for the label are needed, found text a, b and",
    ):
        make_task(file, file, kind="tokens", text=["a", "b"])


def test_kind_and_metric_must_fit():
    with pytest.raises(
        TaskError,
        match=r"^metric accuracy scores rows of kind sequence, found kind tokens; give one that",
    ):
        make_task(ROWS, ROWS, kind="tokens", metric="accuracy")
