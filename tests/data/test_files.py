from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from auber.data.files import read_records
from auber.data.task import Rows, TaskData
from auber.data.user_rows import make_task
from auber.errors import ConfigError, TaskError

TRAIN = [
    {"id": 7, "q1": 'say "hi", you', "q2": "two\nlines", "y": "no"},
    {"id": 8, "q1": "c", "q2": "d", "y": "yes"},
]
DEV = [{"id": 9, "q1": "tab\there", "q2": 'a 5" pipe', "y": "yes"}]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        import csv

        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(
                file, list(rows[0]), delimiter="," if path.suffix == ".csv" else "\t"
            )
            writer.writeheader()
            writer.writerows(rows)
    return path


def own(
    tmp_path: Path,
    train: str,
    dev: str = "q1,q2,y\ne,f,yes\n",
    suffix: str = ".csv",
    **changes: str,
) -> TaskData:
    """The task of two files with this content."""
    files = []
    for name, content in (("train", train), ("dev", dev)):
        files.append(tmp_path / f"{name}{suffix}")
        files[-1].write_text(content, encoding="utf-8", newline="")
    return make_task(*files, text=["q1", "q2"], label="y", metric=changes.get("metric"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".CSV"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    if suffix == ".CSV":  # what some spreadsheets call it
        files = [
            write(tmp_path / f"{name}.csv", rows) for name, rows in (("train", TRAIN), ("dev", DEV))
        ]
        files = [file.rename(file.with_suffix(".CSV")) for file in files]
    else:
        files = [
            write(tmp_path / f"{name}{suffix}", rows)
            for name, rows in (("train", TRAIN), ("dev", DEV))
        ]
    data = make_task(*files, text=["q1", "q2"], label="y", name="mine")
    assert data == TaskData(
        name="mine",
        train=Rows(('say "hi", you', "c"), ("two\nlines", "d"), (0, 1)),
        dev=Rows(("tab\there",), ('a 5" pipe',), (1,)),
        label_names=("no", "yes"),
        metric="accuracy",
    )
    single = make_task(*files, text=["q1"], label="y", metric="f1")
    assert (single.train.second, single.metric) == (None, "f1")


def test_kinds_may_be_mixed(tmp_path: Path) -> None:
    files = write(tmp_path / "train.csv", TRAIN), write(tmp_path / "dev.jsonl", DEV)
    same = write(tmp_path / "train.tsv", TRAIN), write(tmp_path / "dev.parquet", DEV)
    assert make_task(*files, text=["q1"], label="y") == make_task(*same, text=["q1"], label="y")


@pytest.mark.parametrize(
    ("written", "names", "numbers"),
    [
        (["10", "9", "2"], ("2", "9", "10"), (2, 1, 0)),
        (["b", "10", "9"], ("10", "9", "b"), (2, 0, 1)),
        (["-1", "1", " 0 "], ("-1", "0", "1"), (0, 2, 1)),
    ],
)
def test_classes_are_sorted_by_value_if_all_are_numbers(
    tmp_path: Path, written: list[str], names: tuple[str, ...], numbers: tuple[int, ...]
) -> None:
    lines = "".join(f"text {place},b,{label}\n" for place, label in enumerate(written))
    data = own(tmp_path, f"q1,q2,y\n{lines}", f"q1,q2,y\ne,f,{written[0]}\n")
    assert (data.label_names, data.train.labels) == (names, numbers)


def test_labels_of_json_mean_what_those_of_csv_mean(tmp_path: Path) -> None:
    lines = [
        '{"q1": "a", "q2": "b", "y": 1}',
        '{"q1": "c", "q2": "d", "y": "0"}',
        '{"q1": "e", "q2": "f", "y": 2.0}',
    ]
    data = own(tmp_path, "\n".join(lines), lines[1].replace("c", "g"), ".jsonl")
    assert (data.label_names, data.train.labels, data.dev.labels) == (
        ("0", "1", "2"),
        (1, 0, 2),
        (0,),
    )
    truth = own(
        tmp_path,
        lines[0].replace("1}", "true}") + "\n\n" + lines[0].replace("1}", "false}"),
        lines[0].replace("1}", "true}"),
        ".jsonl",
    )
    assert truth.label_names == ("false", "true")


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_a_regression_metric_reads_numbers(tmp_path: Path, metric: str) -> None:
    data = own(tmp_path, "q1,q2,y\na,b,0.5\nc,d,3\n", "q1,q2,y\ne,f,-1e2\n", metric=metric)
    assert (data.train.labels, data.dev.labels) == ((0.5, 3.0), (-100.0,))
    assert (data.label_names, data.metric, data.num_labels) == (None, metric, 1)


GOOD = "q1,q2,y\na,b,no\nc,d,yes\n"


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        (
            "q1,other,y\na,b,no\n",
            GOOD,
            r"train\.csv: Unknown column 'q2'\. Known: other, q1, y$",
        ),
        (
            "q1,q2,q2,y\na,b,b,no\n",
            GOOD,
            "one column 'q2' is needed, found several of that name; there are q1, q2, q2, y",
        ),
        (
            GOOD + "\na,b\n",
            GOOD,
            r"train\.csv, line 5: 3 columns are needed, found 2; correct the line$",
        ),
        (GOOD + "a,b,no,extra\n", GOOD, "line 4: 3 columns are needed, found 4"),
        ("", GOOD, r"train\.csv: has no rows; at least one is needed$"),
        (GOOD, "q1,q2,y\n", r"dev\.csv: has no rows"),
        (
            GOOD,
            "q1,q2,y\ne,f,maybe\n",
            r"dev\.csv, line 2: label 'maybe' is not one of train's \(no, yes\); correct it",
        ),
        (
            "q1,q2,y\na,b,0.5\nc,d,1.25\n",
            "q1,q2,y\ne,f,0.75\n",
            r"dev\.csv, line 2: label '0.75' is not one of train's \(0.5, 1.25\); correct it or leave the row out; for numbers to predict choose "
            r"--metric pearson or spearman$",
        ),
        (
            "q1,q2,y\na,b,no\n",
            "q1,q2,y\nc,d,no\n",
            "every row of train is of class 'no'; at least two classes are needed",
        ),
        (
            GOOD + "e,f,\n",
            GOOD,
            "train.csv, line 4, column 'y': the label is empty; fill it in or leave the row out",
        ),
        (
            GOOD + "e, ,no\n",
            GOOD,
            "train.csv, line 4, column 'q2': the text is empty; fill it in or leave the row out",
        ),
        (
            GOOD + 'e,"f\nends,here",no\n"open,f,no\n',
            GOOD,
            "train.csv, line 6: unexpected end of data; put fields that",
        ),
        (
            GOOD + '"open,f,no\n' + "e,f,no\n" * 3,
            GOOD,
            r"train.csv, line 4: unexpected end of data \(a quote is open until line 7\); put fields that",
        ),
        (
            GOOD + '"closed" not,f,no\n',
            GOOD,
            "train.csv, line 4: .* expected after .*, quotes inside doubled, or use jsonl",
        ),
        (
            GOOD + f"{'x' * 200_000},f,no\n",
            GOOD,
            r"train.csv, line 4: field larger than field limit \(131072\)",
        ),
        (GOOD + "e\0,f,no\n", GOOD, "train.csv, line 4: holds a NUL character"),
    ],
)
def test_a_bad_csv_is_refused_with_its_line(
    tmp_path: Path, train: str, dev: str, message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        own(tmp_path, train, dev)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"q1": "a", ',
            r"train\.jsonl, line 3: not a JSON value \(Expecting .* at character \d+\); each line must be one JSON object$",
        ),
        ("[" * 100_000, "line 3: not a JSON value"),
        ('{"q1": ' + "9" * 5000 + "}", "line 3: not a JSON value"),
        ('["a", "b"]', "line 3: each line must be a JSON object, found list"),
        (
            '{"q1": "a", "y": 1}',
            "line 3: one column 'q2' is needed, found no such column; there are q1, y",
        ),
        (
            '{"q1": 4, "q2": "b", "y": 1}',
            "line 3, column 'q1': must be text, found int 4; put it in quotes",
        ),
        ('{"q1": null, "q2": "b", "y": 1}', "line 3, column 'q1': the text is empty"),
        (
            '{"q1": "\\ud800", "q2": "b", "y": 1}',
            "line 3, column 'q1': the text holds half a surrogate pair",
        ),
        ('{"q1": "a", "q2": "b", "y": null}', "line 3, column 'y': the label is empty"),
        (
            '{"q1": "a", "q2": "b", "y": 0.5}',
            "line 3, column 'y': a class must be a word or a whole number, found 0.5; for",
        ),
        (
            '{"q1": "a", "q2": "b", "y": [1]}',
            r"a class must be a word or a whole number, found \[1\]",
        ),
        ('{"q1": "a", "q2": "b", "y": NaN}', "a class must be a word or a whole number, found nan"),
    ],
)
def test_a_bad_json_line_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    good = '{"q1": "a", "q2": "b", "y": 0}\n\n'
    with pytest.raises(TaskError, match=message):
        own(tmp_path, good + line + "\n", good, ".jsonl")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's list of open files")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "text,grade\none,1\ntwo\n"),
        ("rows.tsv", 'text\tgrade\n"one"more\t1\ntwo\t2\n'),
        ("rows.jsonl", '{"text": "one", "grade": 1}\n[]\n{}\n'),
        ("rows.conll", "one A\ntwo\nthree B\n"),
    ],
)
def test_a_file_is_closed_whoever_keeps_its_error(tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    columns = ["tokens", "tags"] if name.endswith("conll") else ["text", "grade"]
    with pytest.raises(TaskError, match=f"{name}, line ") as kept:
        list(read_records(file, columns))
    opened = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    assert str(file) not in opened, f"{kept.value} keeps the file open"


@pytest.mark.parametrize("value", ["high", "nan", "inf", "", "1_000e999"])
def test_a_regression_target_must_be_a_number(tmp_path: Path, value: str) -> None:
    message = rf"train.csv, line 3, column 'y': a regression target must be a finite number, found '{value}'; correct it"
    with pytest.raises(TaskError, match=message):
        own(tmp_path, f"q1,q2,y\na,b,1\nc,d,{value}\n", metric="pearson")


def test_truth_values_are_no_regression_targets(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="a regression target must be a finite number, found True"):
        own(tmp_path, '{"q1": "a", "q2": "b", "y": true}\n', "", ".jsonl", metric="pearson")


def test_names_that_cannot_be_right(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", TRAIN)
    with pytest.raises(TaskError, match=r"nothing\.csv: there is no such file"):
        make_task(tmp_path / "nothing.csv", file, text=["q1"], label="y")
    endings = r"\.conll, \.csv, \.json, \.jsonl, \.parquet, \.tsv, \.txt"
    with pytest.raises(
        TaskError, match=rf"rows\.xlsx: the name must end in one of {endings}, found '\.xlsx'"
    ):
        make_task(tmp_path / "rows.xlsx", file, text=["q1"], label="y")
    with pytest.raises(ConfigError, match=r"Unknown metric 'acuracy'\. Did you mean 'accuracy'\?"):
        make_task(file, file, text=["q1"], label="y", metric="acuracy")
    for text, label in (([], "y"), (["q1", "q2", "id"], "y"), (["q1", "q1"], "y"), (["q1"], "q1")):
        with pytest.raises(
            TaskError,
            match="one or two text columns and another for the label are needed, found text",
        ):
            make_task(file, file, text=text, label=label)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(GOOD.encode() + b"caf\xe9,f,no\n")
    with pytest.raises(
        TaskError, match=r"rows\.csv, line 4: byte 0xe9 is not UTF-8; save the file as UTF-8"
    ):
        make_task(file, file, text=["q1"], label="y")


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "rows.parquet"
    file.write_bytes(b"PAR1 no it is not PAR1")
    with pytest.raises(
        TaskError, match=r"rows\.parquet: cannot be read as parquet \(.*\); write it again"
    ):
        make_task(file, file, text=["q1"], label="y")
    write(file, TRAIN)
    with pytest.raises(
        TaskError, match=r"rows\.parquet: Unknown column 'z'\. Known: id, q1, q2, y$"
    ):
        make_task(file, file, text=["z"], label="y")
    write(file, [*TRAIN, {"id": 1, "q1": None, "q2": "b", "y": "no"}])
    with pytest.raises(TaskError, match=r"rows\.parquet, row 2, column 'q1': the text is empty"):
        make_task(file, file, text=["q1"], label="y")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        TaskError, match="reading parquet needs the package 'pyarrow'; install it or use csv"
    ):
        make_task(tmp_path / "a.parquet", tmp_path / "a.parquet", text=["q1"], label="y")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "rows.csv",
            "text;label\none;a\n",
            r"rows\.csv: columns must be separated by commas, found semicolons; write it again",
        ),
        (
            "rows.csv",
            "text\tlabel\none\ta\n",
            r"rows\.csv: columns must be separated by commas, found tabs; write it again",
        ),
        (
            "rows.tsv",
            "text,label\none,a\n",
            r"rows\.tsv: columns must be separated by tabs, found commas; write it again",
        ),
        (
            "rows.json",
            '{"data": []}',
            r"rows\.json, read as SQuAD's questions: Unknown column 'text'",
        ),
        ("rows.txt", "one a\n", r"rows\.txt, read as words with tags: Unknown column 'text'"),
    ],
)
def test_a_file_of_another_kind_than_its_name_says(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TaskError, match=message):
        make_task(tmp_path / name, tmp_path / name)


def test_a_folder_is_no_file_of_rows(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=f"^{tmp_path}: is a folder; name a file of rows in it$"):
        make_task(tmp_path, tmp_path)
