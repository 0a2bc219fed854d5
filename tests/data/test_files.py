from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from auber.data.files import read_lines, read_records
from auber.errors import TaskError

ROWS = [
    {"id": "007", "text": 'say "hi", you', "y": "NA"},
    {"id": "8", "text": "two\nlines", "y": ""},
    {"id": "9", "text": 'tab\there, a 5" pipe', "y": "1.0"},
]
COLUMNS = ["text", "y"]


def read(path, columns=COLUMNS):
    return list(read_records(path, columns))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_separated(path, delimiter):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


TABLE_LINES, EVERY_OTHER = ["line 2", "line 4", "line 5"], ["line 1", "line 3", "line 5"]
WRITERS = {
    "rows.csv": (lambda path: write_separated(path, ","), TABLE_LINES),
    "rows.CSV": (lambda path: write_separated(path, ","), TABLE_LINES),  # as spreadsheets name it
    "rows.tsv": (lambda path: write_separated(path, "\t"), TABLE_LINES),
    "rows.jsonl": (lambda path: path.write_text("\n\n".join(map(json.dumps, ROWS))), EVERY_OTHER),
    "lines.json": (lambda path: path.write_text("\n\n".join(map(json.dumps, ROWS))), EVERY_OTHER),
    "rows.json": (lambda path: path.write_text(json.dumps(ROWS)), ["item 0", "item 1", "item 2"]),
    "rows.parquet": (write_parquet, ["row 0", "row 1", "row 2"]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_text_and_its_places(tmp_path, name):
    path = tmp_path / name
    write_rows, places = WRITERS[name]
    write_rows(path)
    expected = [(f"{path}, {place}", row) for place, row in zip(places, ROWS, strict=True)]
    assert read(path, list(ROWS[0])) == expected


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_line_ends_and_a_byte_order_mark_are_read(tmp_path, end):
    lines = ["\ufefftext,y", "one,1", '"two, three",2', ""]
    found = read(write(tmp_path / "rows.csv", end.join(lines)))
    assert [fields for _, fields in found] == [
        {"text": "one", "y": "1"},
        {"text": "two, three", "y": "2"},
    ]
    text = write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\nb\xc2\x85c\n")
    assert list(read_lines(text)) == ["a\r\n", "b\x85c\n"]


CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
"""


@pytest.mark.parametrize("name", ["rows.conll", "rows.txt"])
def test_columns_of_words_and_tags(tmp_path, name):
    path = write(tmp_path / name, CONLL)
    assert read(path, ["tokens", "tags"]) == [
        (f"{path}, line 3", {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}),
        (f"{path}, line 6", {"tokens": ["Peter"], "tags": ["B-PER"]}),
    ]


def test_tabs_windows_line_ends_and_words_with_spaces(tmp_path):
    path = write(tmp_path / "a.conll", "New York\tB-LOC\r\nis\tO\r\n\r\n\r\n\u00a0x\tO\r\n")
    words = [fields["tokens"] for _, fields in read(path, ["tokens", "tags"])]
    assert words == [["New York", "is"], ["\u00a0x"]]


GOOD = "id,text,y\n1,a,no\n2,c,yes\n"
LINE = '{"text": "a", "y": 0}\n\n'

SQUAD_COLUMNS = ["question", "context", "answers"]


def squad(*paragraphs):
    return json.dumps({"data": [{"paragraphs": paragraphs}]})


# fmt: off
BAD = [
    ("rows.csv", "id,other,y\n1,a,no\n", ": Unknown column 'text'. Known: id, other, y$"),
    ("rows.csv", "text,text,y\na,b,no\n",
     ": one column 'text' is needed, found several of that name; there are text, text, y$"),
    ("rows.csv", GOOD + "\na,b\n", ", line 5: 3 columns are needed, found 2; correct the line$"),
    ("rows.csv", GOOD + "3,a,no,extra\n", ", line 4: 3 columns are needed, found 4"),
    ("rows.csv", GOOD + '3,"f\nends,here",no\n"open,f,no\n',
     ", line 6: unexpected end of data; put fields that hold quotes, separators or line ends in "
     "quotes, quotes inside doubled, or use jsonl$"),
    ("rows.csv", GOOD + '"open,f,no\n' + "3,f,no\n" * 3,
     r", line 4: unexpected end of data \(a quote is open until line 7\); put fields that"),
    ("rows.csv", GOOD + '"closed" not,f,no\n', ", line 4: .* expected after .*; put fields that"),
    ("rows.csv", "text,y\rone,a\r", ", line 1: new-line character seen in unquoted field"),
    ("rows.csv", GOOD + f"{'x' * 200_000},f,no\n", r", line 4: field larger than field limit"),
    ("rows.csv", GOOD + "e\0,f,no\n",
     ", line 4: holds a NUL character, so it is not a text file; save it as UTF-8 text$"),
    ("rows.csv", GOOD.encode() + b"caf\xe9,f,no\n",
     ", line 4: byte 0xe9 is not UTF-8; save the file as UTF-8$"),
    ("rows.csv", GOOD.encode("utf-16"), ", line 1: byte 0xff is not UTF-8"),
    ("rows.csv", "text;y\none;a\n", ": columns must be separated by commas, found semicolons; "
     "write it again, or use jsonl$"),
    ("rows.csv", "text\ty\none\ta\n", ": columns must be separated by commas, found tabs; write"),
    ("rows.tsv", "text,y\none,a\n", ": columns must be separated by tabs, found commas; write"),
    ("rows.jsonl", LINE + '{"text": "a", ',
     r", line 3: not a JSON value \(Expecting .* at character \d+\); each line must be one JSON "
     "object$"),
    ("rows.jsonl", LINE + "[" * 100_000, ", line 3: not a JSON value"),
    ("rows.jsonl", LINE + '{"text": ' + "9" * 5000 + "}", ", line 3: not a JSON value"),
    ("rows.jsonl", LINE + '["a"]', ", line 3: must be an object that maps .*, found list$"),
    ("rows.jsonl", LINE + '{"y": 1}',
     ", line 3: Unknown column 'text'. Known: y$"),
    ("rows.json", "{",
     r": not a JSON value \(.*\); SQuAD's json, or a list of objects, is needed$"),
    ("rows.json", "[3]", ", item 0: must be an object that maps columns to values, found int$"),
    ("rows.json", "{}", ": a JSON object with a list 'data' is needed, as in SQuAD's files; "
     "correct it$"),
    ("rows.json", '{"data": []}', ", read as SQuAD's questions: Unknown column 'text'"),
    ("squad.json", '{"data": [{"paragraphs": null}]}',
     ", data 0: a JSON object with a list 'paragraphs' is needed"),
    ("squad.json", squad({"context": "a"}),
     ", data 0, paragraph 0: a JSON object with a list 'qas' is needed"),
    ("squad.json", squad({"context": "a", "qas": [3]}),
     ", data 0, paragraph 0, question 0: must be an object .* found int$"),
    ("squad.json", squad({"context": "a", "qas": [{"question": "b"}]}),
     ", data 0, paragraph 0, question 0: Unknown column 'answers'. Known: context, question$"),
    ("words.txt", "EU B-ORG\nrejects\n",
     ", line 2: a word and its tag are needed, found 'rejects' alone; add its tag$"),
    ("rows.txt", "one a\n", ", read as words with tags: Unknown column 'text'"),
    ("rows.parquet", b"PAR1 no it is not PAR1",
     r": cannot be read as parquet \(.*\); write it again$"),
    ("rows.xlsx", "", ": the name must end in one of .conll, .csv, .json, .jsonl, .parquet, .tsv, "
     ".txt, found '.xlsx'$"),
]
# fmt: on


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_a_bad_file_is_refused(tmp_path, name, content, message):
    columns = {"squad.json": SQUAD_COLUMNS, "words.txt": ["tokens", "tags"]}.get(name, COLUMNS)
    with pytest.raises(TaskError, match=name + message):
        read(write(tmp_path / name, content), columns)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".parquet", ".conll"])
def test_a_missing_file_is_named(tmp_path, suffix):
    path = tmp_path / f"nothing{suffix}"
    with pytest.raises(TaskError, match=f"^{path}: there is no such file; correct the path$"):
        read(path, ["tokens", "tags"])


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(TaskError, match=f"^{tmp_path}: is a folder; name a file of rows in it$"):
        read(tmp_path)
    message = r"cannot be read \(Is a directory\); a readable file is needed$"
    with pytest.raises(TaskError, match=message):
        list(read_lines(tmp_path))


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = "reading parquet needs the package 'pyarrow'; install it or use csv$"
    with pytest.raises(TaskError, match=message):
        read(tmp_path / "a.parquet")
