"""Texts without labels: reading, what is refused, and the split into tune and measure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from auber.data.task_types import TASK_TYPES
from auber.data.texts import make_texts
from auber.errors import TaskError

SEQUENCE, TOKENS, SPANS = (TASK_TYPES[name] for name in ("sequence", "tokens", "spans"))


def pairs(queries=40, passages=5, shared=False):
    return [
        {
            "query": f"query {query}",
            "passage": f"passage {number if shared else (query, number)}",
            "topic": query % 7,
        }
        for query in range(queries)
        for number in range(passages)
    ]


def write(folder, records):
    path = folder / "texts.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_a_file_and_rows_in_memory_are_the_same(tmp_path):
    records = pairs()
    texts = make_texts(write(tmp_path, records), text=["query", "passage"], group="query")
    assert texts == make_texts(records, text=("query", "passage"), group="query")
    assert len(texts) == 200
    assert texts.groups == texts.columns[0]


@pytest.mark.parametrize("shared", [False, True], ids=["own passages", "shared passages"])
@pytest.mark.parametrize("group", ["query", None])
def test_a_query_is_on_one_side(group, shared, caplog):
    texts = make_texts(pairs(shared=shared), text=("query", "passage"), group=group)
    task = texts.as_task(SEQUENCE, None, "spearman")
    assert len(task.dev) == pytest.approx(40, abs=4)
    assert len(task.train) + len(task.dev) == 200
    assert not set(task.train.first) & set(task.dev.first)
    assert (task.groups is None) == (group is None)
    warned = "a second text may be on both sides; name what belongs together (group)"
    assert (warned in caplog.text) == (shared and group is None)


def test_the_digest_does_not_depend_on_answers():
    task = make_texts(pairs(), text=("query", "passage")).as_task(SEQUENCE, ("a", "b"), "accuracy")
    other = replace(task, train=replace(task.train, labels=(1,) * len(task.train)))
    assert other.content_hash == task.content_hash
    assert replace(other, is_answered=False).content_hash != task.content_hash


def test_rows_that_repeat_another_are_left_out(caplog):
    texts = make_texts(pairs() + pairs()[:20], text=("query", "passage"))
    assert len(texts) == 200
    assert "texts: 20 of 220 rows repeat another row and are left out" in caplog.text


WORDS = [{"tokens": ["word", str(number)], "text": f"text {number}"} for number in range(120)]
REFUSED = [
    (
        WORDS[:99],
        {},
        "texts: at least 100 different texts are needed, found 99; give more",
    ),
    (
        WORDS[:50] * 4,
        {},
        "texts: at least 100 different texts are needed, found 50; give more",
    ),
    (
        [*WORDS, {"text": "  "}],
        {},
        "texts row 120, column 'text': the text is empty; fill it in or leave the row out",
    ),
    (
        [*WORDS, {"tokens": []}],
        {"text": "tokens"},
        "texts row 120, column 'tokens': has no words; fill it in or leave the row out",
    ),
    (
        WORDS,
        {"text": "txt"},
        "texts row 0: Unknown column 'txt'. Did you mean 'text'? Known: text, tokens; name it with "
        "--text",
    ),
    (
        WORDS,
        {"group": "query"},
        "texts row 0: Unknown column 'query'. Known: text, tokens; name it with --group",
    ),
    (
        [*WORDS, {"text": "a", "tokens": ""}],
        {"group": "tokens"},
        "texts row 120, 'tokens': the group is empty; fill it in or leave the row out",
    ),
    (
        WORDS,
        {"text": ("tokens", "text")},
        "texts: columns tokens, text must be texts, or one of them lists of words, found both; "
        "correct the rows, or name others with --text",
    ),
    (
        WORDS,
        {"text": ("a", "b", "c")},
        "columns: one or two text columns are needed, found a, b, c; name them with --text",
    ),
    (
        WORDS,
        {"name": "mrpc"},
        "name: must be a word or more, and none of a known task (agreement, cola, mrpc, rte, "
        "wnli), found 'mrpc'; choose another",
    ),
]


@pytest.mark.parametrize(("records", "options", "message"), REFUSED)
def test_what_is_wrong_with_texts(records, options, message):
    with pytest.raises(TaskError) as error:
        make_texts(records, **options)
    assert str(error.value) == message


def test_a_file_is_named_in_messages(tmp_path):
    path = write(tmp_path, WORDS[:3])
    with pytest.raises(TaskError, match=r"texts\.jsonl: at least 100 different texts are needed"):
        make_texts(path)


@pytest.mark.parametrize(
    ("columns", "task_type", "message"),
    [
        (
            "text",
            TOKENS,
            "texts own: a model ...ForTokenClassification needs one column of lists of words "
            "(jsonl or conll), found 1 of texts; name the columns with --text, by default tokens",
        ),
        (
            "text",
            SPANS,
            "texts own: a model ...ForQuestionAnswering needs a column of questions and one of "
            "contexts, found 1 of texts; name the columns with --text, by default question,context",
        ),
        (
            "tokens",
            SEQUENCE,
            "texts own: a model ...ForSequenceClassification needs one or two columns of texts, "
            "found lists of words; name the columns with --text, by default text",
        ),
    ],
)
def test_texts_that_do_not_fit_the_model(columns, task_type, message):
    with pytest.raises(TaskError) as error:
        make_texts(WORDS, text=columns).as_task(task_type, ("a",), "accuracy")
    assert str(error.value) == message


def test_groups_that_are_too_large():
    records = [{**record, "half": number % 2} for number, record in enumerate(WORDS)]
    with pytest.raises(TaskError) as error:
        make_texts(records, group="half").as_task(SEQUENCE, None, "spearman")
    assert str(error.value) == (
        "--group: a fifth of the rows, 24, are set aside by whole groups, found no group that "
        "small among 2; give smaller groups"
    )
