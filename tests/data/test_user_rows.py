from __future__ import annotations

import json

import numpy
import pandas
import pytest
import torch
from datasets import Dataset

from auber.data.rows import Answer, QuestionRows, Rows, WordRows
from auber.data.task import TaskData
from auber.data.user_rows import make_task, read_task, split_names
from auber.errors import ConfigError, TaskError

ROWS = [
    {"text": "one", "other": "eins", "label": "b"},
    {"text": "two", "other": "zwei", "label": "a"},
]
TAGGED = [
    {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
    {"tokens": ["Peter"], "tags": ["B-ORG"]},
]
CONTEXT = "The cat sat on the mat."
ANSWERS = {"text": ["the mat", "mat", "mat"], "answer_start": [15, 19, 19]}
QUESTION = {"question": "Where?", "context": CONTEXT, "answers": ANSWERS}
SQUAD = [
    {"text": text, "answer_start": start}
    for text, start in zip(ANSWERS["text"], ANSWERS["answer_start"], strict=True)
]


def lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def texts(*labels):
    return [{"text": f"text {place}", "label": label} for place, label in enumerate(labels)]


def test_rows_in_memory_are_a_task():
    pairs = ["text", "other"]
    data = make_task(ROWS, ROWS[:1], text=pairs)
    train = Rows(("one", "two"), ("eins", "zwei"), (1, 0))
    assert data == TaskData("own", train, train.select([0]), ("a", "b"), "accuracy")
    assert make_task(Dataset.from_list(ROWS), iter(ROWS[:1]), text=pairs) == data
    assert make_task(pandas.DataFrame(ROWS), pandas.DataFrame(ROWS[:1]), text=pairs) == data


def test_without_dev_rows_a_fifth_of_train_is_set_aside():
    rows = [{"text": f"text {row}", "label": "ab"[row % 2]} for row in range(50)]
    data = make_task(rows)
    assert (len(data.train), len(data.dev)) == (40, 10)
    assert sorted(data.dev.labels) == [0] * 5 + [1] * 5
    assert data == make_task(rows)
    tagged = [{"tokens": [f"word{row}", "b"], "tags": ["O", "B-X"]} for row in range(20)]
    assert len(make_task(tagged, kind="tokens").dev) == 4


def test_rows_in_files_are_the_same_task(tmp_path):
    expected = make_task(ROWS, ROWS, text="text", metric="f1", name="films")
    train, dev = lines(tmp_path / "train.jsonl", ROWS), tmp_path / "dev.csv"
    pandas.DataFrame(ROWS).to_csv(dev)
    labels = split_names("a, b")
    found = make_task(train, str(dev), text="text", labels=labels, metric="f1", name="films")
    assert found == expected
    scored = read_task("own", dev, dev, labels=["b", "a", "c"])
    assert (scored.train, scored.label_names) == (scored.dev, ("b", "a", "c"))
    assert scored.dev.labels == (0, 1)


@pytest.mark.parametrize(
    ("written", "names", "numbers"),
    [
        (["10", "9", "2"], ("2", "9", "10"), (2, 1, 0)),
        (["b", "10", "9"], ("10", "9", "b"), (2, 0, 1)),
        (["-1", "1", " 0 "], ("-1", "0", "1"), (0, 2, 1)),
        ([True, False, "true"], ("false", "true"), (1, 0, 1)),
        ([1, 1.0, "1", "1.0", 0, "0.00"], ("0", "1"), (1, 1, 1, 1, 0, 0)),
        (
            [numpy.int64(1), torch.tensor(1), numpy.float32(0), numpy.str_("0")],
            ("0", "1"),
            (1, 1, 0, 0),
        ),
    ],
)
def test_classes_are_sorted_and_a_number_is_one_class(written, names, numbers):
    data = make_task(texts(*written), texts(*written[:1]))
    assert (data.label_names, data.train.labels) == (names, numbers)


def test_names_that_are_given_are_not_changed():
    rows = texts("1.0", "2.0")
    assert make_task(rows, rows, labels=["2.0", "1.0"]).train.labels == (1, 0)
    assert make_task(rows, rows, labels="2.0, 1.0").train.labels == (1, 0)


@pytest.mark.parametrize("metric", ["pearson", "spearman", "r_squared"])
def test_a_regression_metric_reads_numbers(metric):
    data = make_task(texts(1, "2.5"), texts("-1e2"), metric=metric)
    assert data.is_regression
    assert (data.train.labels, data.dev.labels, data.metric) == ((1.0, 2.5), (-100.0,), metric)


def test_many_classes_that_are_numbers_are_doubted(caplog):
    rows = [{"text": f"row {row}", "label": row / 4} for row in range(30)]
    make_task([{**row, "label": str(row["label"])} for row in rows], rows[:1], metric="accuracy")
    (doubt,) = (text for text in caplog.messages if "numbers" in text)
    assert doubt == (
        "the 30 rows of train have 30 classes, all of them numbers; to predict numbers, "
        "choose the metric (--metric) pearson or spearman"
    )


def test_tagged_words(tmp_path):
    file = tmp_path / "train.conll"
    file.write_text("EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-ORG\n")
    task = make_task(file, TAGGED, kind="tokens")
    train = WordRows((("EU", "rejects"), ("Peter",)), ((1, 0), (1,)))
    assert task == TaskData("own", train, train, ("O", "B-ORG", "I-ORG"), "entity_f1")
    assert (task.place("train"), task.place("dev")) == (str(file), "own: dev")
    renamed = [{"words": row["tokens"], "ner": row["tags"]} for row in TAGGED]
    assert make_task(renamed, renamed, kind="tokens", text="words", label="ner") == task
    ordered = make_task(TAGGED, TAGGED, kind="tokens", labels=["I-ORG", "B-ORG", "O"])
    assert ordered.train.labels == ((1, 2), (1,))


def test_tags_of_other_schemes_need_another_metric():
    rows = [{"tokens": ["a", "cat"], "tags": ["DET", "NOUN"]}, {"tokens": ["it"], "tags": [3]}]
    assert make_task(rows, rows, metric="token_accuracy").label_names == ("3", "DET", "NOUN")
    with pytest.raises(TaskError, match=r"^own: metric entity_f1 needs tags O, .* found '3'; conv"):
        make_task(rows, rows, kind="tokens")


def test_questions(tmp_path):
    answers = ((Answer("the mat", 15), Answer("mat", 19)),)
    rows = QuestionRows(("Where?",), (CONTEXT,), answers)
    task = make_task([QUESTION], [{**QUESTION, "answers": SQUAD}], kind="spans")
    assert task == TaskData("own", rows, rows, None, "span_f1")
    squad = {"question": "Where?", "answers": SQUAD, "id": "1"}
    file = tmp_path / "train.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [squad]}]}]}))
    renamed = [{"q": "Where?", "c": CONTEXT, "a": ANSWERS}]
    assert make_task(file, [QUESTION], metric="span_f1") == task
    assert make_task(renamed, renamed, kind="spans", text=["q", "c"], label="a") == task


def test_lists_in_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for kind, rows in (("tokens", TAGGED), ("spans", [QUESTION])):
        path = tmp_path / f"{kind}.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        assert make_task(path, path, kind=kind) == make_task(rows, rows, kind=kind)


# fmt: off
BAD_ROWS = [
    ({}, [], "train: has no rows; at least one is needed$"),
    ({}, None,
     "train: a file, or rows that each map columns to values, are needed, found NoneType$"),
    ({}, {"text": ["one"]}, "train: .* needed, found dict; give a list of rows, not columns$"),
    ({}, [("one", 1)], "train row 0: must be an object that maps columns to .*, found tuple$"),
    ({}, [{"text": "one"}],
     "train row 0: Unknown column 'label'. Known: text; name the column with --label, or "),
    ({}, [*texts(1), {"text": "two"}],
     "train row 1: Unknown column 'label'. Known: text; name the column with --label, or "),
    ({}, [{1: "one", "Text": 1}], "train row 0: Unknown column 'text'. Did you mean 'Text'. "
     "Known: 1, Text; name the column with --text, or add it to the row$"),
    ({}, [dict.fromkeys(map(str, range(100)), "")], r".* 26, \.\.\.; name the column with --text"),
    ({}, TAGGED, "train row 0: Unknown column 'text'. Known: tags, tokens; they look like rows of "
     "kind tokens: add --kind tokens, or name the column with --text$"),
    ({}, [{"text": " ", "label": 1}],
     "train row 0, column 'text': the text is empty; fill it in or leave the row out$"),
    ({}, [{"text": None, "label": 1}], "train row 0, column 'text': the text is empty"),
    ({}, [{"text": 4, "label": 1}],
     "train row 0, column 'text': must be text, found int 4; put it in quotes$"),
    ({}, texts(1.5), "train row 0, column 'label': a class must be a word or a whole number, found "
     "1.5; for numbers to predict choose --metric pearson or spearman$"),
    ({}, texts(float("nan")), "train row 0, column 'label': a class must be .*, found nan;"),
    ({}, texts(None), "train row 0, column 'label': the label is empty; fill it in or leave"),
    ({}, texts(" "), "train row 0, column 'label': the label is empty"),
    ({"labels": ["a", "c"]}, ROWS, r"train row 0: label 'b' is not one of the known labels \(a, c\)"
     "; correct it or leave the row out$"),
    *[({"metric": "pearson"}, texts(1, value), "train row 1, column 'label': a regression target "
       f"must be a finite number, found {value!r}; correct it$")
      for value in ("high", "nan", "inf", "", "1_000e999", True)],
    ({"kind": "tokens"}, [{"tokens": ["a", "b"], "tags": ["O"]}],
     "train row 0: every word needs a tag, found 2 words and 1 tags; correct the row$"),
    ({"kind": "tokens"}, [{"tokens": "a b", "tags": ["O"]}], "train row 0, column 'tokens': must "
     "be a list, found str 'a b'; use jsonl or CoNLL columns$"),
    ({"kind": "tokens"}, [{"tokens": ["a"], "tags": "O"}],
     "train row 0, column 'tags': must be a list, found str 'O'"),
    ({"kind": "tokens"}, [{"tokens": ["a", None], "tags": ["O", "O"]}], "train row 0, column "
     "'tokens', item 1: must be text, found NoneType None; correct it$"),
    ({"kind": "tokens"}, [{"tokens": ["a"], "tags": [True]}],
     "train row 0, column 'tags', item 0: must be text, found bool True"),
    ({"kind": "tokens", "labels": ["O", "B-X"]}, TAGGED,
     r"train row 0, word 0 'EU': tag 'B-ORG' is not one of the known labels \(O, B-X\); correct"),
    ({"kind": "tokens", "labels": ["1"]}, [{"tokens": ["a"], "tags": [2]}],
     r"train row 0, word 0 'a': tag '2' is not one of .* \(1\); correct it or leave the row out$"),
    ({}, [{"text": "y\ud800", "label": 1}], "train row 0, column 'text': the text holds half a "
     "surrogate pair at character 1; correct it or leave the row out$"),
    ({"kind": "tokens"}, [{"tokens": [], "tags": []}],
     "train row 0: has no words; fill it in or leave the row out$"),
    ({"kind": "tokens"}, [{"tokens": ["a", " "], "tags": ["O", "O"]}],
     "train row 0, word 1: the text is empty"),
    ({"kind": "spans"}, [{**QUESTION, "answers": {"text": [""], "answer_start": [3]}}],
     "train row 0, column 'answers', answer: the text is empty"),
    ({"kind": "spans"}, [{**QUESTION, "context": 3}],
     "train row 0, column 'context': must be text, found int 3"),
]
# fmt: on


@pytest.mark.parametrize(("options", "train", "message"), BAD_ROWS)
def test_bad_rows_are_refused(options, train, message):
    with pytest.raises(TaskError, match=f"^{message}"):
        make_task(train, TAGGED if "kind" in options else ROWS, **options)


# fmt: off
BAD_ANSWERS = [
    ({"text": ["mat"], "answer_start": [18]},
     "the context has ' ma' at answer_start 18, the answer's text is 'mat'; correct one of"),
    ({"text": ["mat"], "answer_start": [-1]},
     "answer_start must be from 0 to 22, a character of the context, found -1; correct it"),
    ([], "has no answer; questions without one cannot be learned here, leave the row out"),
    ({"text": ["mat"], "answer_start": []},
     "an object with the lists text and answer_start, equally long, is needed, found {"),
    ("mat", "an object with the lists text and answer_start, equally long, is needed, found 'mat'"),
    ({"text": ["mat"], "answer_start": ["19"]},
     "text must be text and answer_start a whole number, found 'mat' and '19'; correct them"),
    ([{"text": "mat"}],
     "text must be text and answer_start a whole number, found 'mat' and None; correct them"),
]
# fmt: on


@pytest.mark.parametrize(("answers", "message"), BAD_ANSWERS)
def test_bad_answers_are_refused(tmp_path, answers, message):
    file = lines(tmp_path / "train.jsonl", [QUESTION, {**QUESTION, "answers": answers}])
    with pytest.raises(TaskError, match=rf"train\.jsonl, line 2, column 'answers': {message}"):
        make_task(file, file, kind="spans")


# fmt: off
UNKNOWN_LABELS = [
    (ROWS, texts("c"), "sequence",
     r"line 1: label 'c' is not one of train's \(a, b\); correct it or leave the row out$"),
    (texts("0.5", "1.25"), texts("0.75"), "sequence",
     r"line 1: label '0.75' is not one of train's \(0.5, 1.25\); correct it or leave the row out; "
     "for numbers to predict choose --metric pearson or spearman$"),
    (TAGGED, [*TAGGED, {"tokens": ["EU", "is"], "tags": ["O", "B-GEO"]}], "tokens",
     r"line 3, word 1 'is': tag 'B-GEO' is not one of train's \(O, B-ORG, I-ORG\)"),
]
# fmt: on


@pytest.mark.parametrize(("train", "dev", "kind", "message"), UNKNOWN_LABELS)
def test_labels_that_train_lacks_are_refused(tmp_path, train, dev, kind, message):
    with pytest.raises(TaskError, match=f"dev.jsonl, {message}"):
        make_task(train, lines(tmp_path / "dev.jsonl", dev), kind=kind)


# fmt: off
BAD_OPTIONS = [
    *[({"text": text, "label": label}, "columns: one or two text columns and a "
       f"different column for the label are needed, found --text {found} and --label {label}$")
      for text, label, found in (([], "y", r"\(none\)"), (["a", "b", "c"], "y", "a,b,c"),
                                 (["a", "a"], "y", "a,a"), (["a"], "a", "a"))],
    ({"kind": "tokens", "text": ["a", "b"]},
     "columns: one column of words and a different column for the label are needed, found"),
    ({"kind": "spans", "text": "q"}, "columns: two text columns and a different column for the "),
    ({"labels": ["O", "X", "O"]},
     "labels: each name must be given once, found O, X, O; remove the repeats$"),
    ({"labels": ["a"], "metric": "pearson"},
     "labels: numbers to predict have no names; leave labels out$"),
    ({"labels": ["a"], "kind": "spans"},
     "labels: answers are pieces of their context and have no names; leave labels out$"),
    ({"kind": "tokens", "metric": "accuracy"}, "metric accuracy scores rows of kind sequence, "
     "found kind tokens; give one that fits, or leave one of the two out$"),
    ({"metric": "acuracy"}, r"Unknown metric 'acuracy'. Did you mean 'accuracy'\?"),
    *[({"name": name}, r"name: must be a word or more, and none of a known task \(agreement, .*\), "
       "found .*; choose another$") for name in ("mrpc", "", " mine", "mi\nne")],
]
# fmt: on


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options_are_refused(options, message):
    with pytest.raises((ConfigError, TaskError), match=f"^{message}"):
        make_task(ROWS, ROWS, **options)


def test_embeddings_have_no_label_column():
    message = (
        r"^kind embeddings: its labels are the unpruned model's vectors and no column of a file;"
    )
    for options in ({"kind": "embeddings"}, {"metric": "cosine"}):
        with pytest.raises(TaskError, match=message):
            make_task([{"text": "a", "label": 1}], **options)
