from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from unittest.mock import Mock

import pytest

from auber.data import glue
from auber.data.glue import load_glue_from_hub, read_glue
from auber.data.rows import Rows
from auber.data.task import TaskData
from auber.errors import TaskError

FILES = {
    "MRPC/train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t1\t2\tHe said " no\tNo , he said\n0\t3\t4\tA line\u2028inside\t" B\n',
    "MRPC/dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n0\t5\t6\tC\tD\r\n",
    "CoLA/train.tsv": "gj04\t1\t\tThey slept.\ngj04\t0\t*\tThem sleep.\n",
    "CoLA/dev.tsv": "gj04\t0\t*\tMe sleeps.\ngj04\t1\t\tI sleep.",
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n"
    "0\tA\tB\tnot_entailment\n1\tC\tD\tentailment\n",
    "RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tE\tF\tentailment\n",
    "WNLI/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA\tB\t1\n1\tC\tD\t0\n",
    "WNLI/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tE\tF\t1\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content.encode())
    return tmp_path


def real_folder() -> Path:
    path = Path(os.environ.get("AUBER_GLUE", Path(__file__).parents[3] / "shared" / "glue"))
    if not path.is_dir():
        pytest.skip("needs a GLUE folder: set AUBER_GLUE to one")
    return path


def test_files_have_no_quoting_and_their_own_order_of_classes(folder):
    pairs = Rows(('He said " no', "A line\u2028inside"), ("No , he said", '" B'), (1, 0))
    names = ("not_equivalent", "equivalent")
    assert read_glue("mrpc", folder) == TaskData(
        "mrpc", pairs, Rows(("C",), ("D",), (0,)), names, "accuracy"
    )
    texts = Rows(("They slept.", "Them sleep."), None, (1, 0))
    dev = Rows(("Me sleeps.", "I sleep."), None, (0, 1))
    names = ("unacceptable", "acceptable")
    assert read_glue("cola", folder) == TaskData("cola", texts, dev, names, "matthews")
    pairs, names = Rows(("A", "C"), ("B", "D"), (1, 0)), ("entailment", "not_entailment")
    dev = Rows(("E",), ("F",), (0,))
    assert read_glue("rte", folder) == TaskData("rte", pairs, dev, names, "accuracy")
    dev = Rows(("E",), ("F",), (1,))
    assert read_glue("wnli", folder) == TaskData("wnli", pairs, dev, names[::-1], "accuracy")


@pytest.mark.parametrize(
    ("name", "train", "dev", "share"),
    [
        ("mrpc", 3668, 408, 0.6838),
        ("cola", 8551, 1043, 0.6913),
        ("rte", 2490, 277, 0.5271),
        ("wnli", 635, 71, 0.5634),
    ],
)
def test_the_real_files_have_the_published_counts(name, train, dev, share):
    data = read_glue(name, real_folder())
    assert (len(data.train), len(data.dev)) == (train, dev)
    assert data.majority_share == pytest.approx(share, abs=1e-4)


# fmt: off
DAMAGED = [
    ("rte", "RTE", None, "found no RTE in it; give --data the folder above RTE$"),
    ("rte", "RTE/dev.tsv", None, r"RTE.dev\.tsv: there is no such file; correct the path$"),
    ("rte", "RTE/dev.tsv", "index\tsentence1\tlabel\n",
     r"RTE.dev\.tsv: Unknown column 'sentence2'. Did you mean 'sentence1'\? Known: index, label, "
     "sentence1$"),
    ("rte", "RTE/dev.tsv", "", "^rte: dev has no rows; at least one is needed$"),
    ("rte", "RTE/dev.tsv", FILES["RTE/dev.tsv"] + "1\tE\tF\n",
     "line 3: 4 columns are needed, found 3; correct the line$"),
    ("rte", "RTE/dev.tsv", FILES["RTE/dev.tsv"] + "1\tE\tF\t1\n",
     r"line 3: label '1' is not one of the known labels \(entailment, not_entailment\); correct it "
     "or leave the row out$"),
    ("cola", "CoLA/train.tsv", "a\t1\t\tx\na\t0\t\t \n",
     r"CoLA.train\.tsv, line 2, column 'sentence': the text is empty"),
    ("cola", "CoLA/dev.tsv", "a\n", "line 1: 4 columns are needed, found 1"),
    ("mrpc", "MRPC/dev.tsv", "Quality\t#1 String\t#2 String\n", "^mrpc: dev has no rows"),
]
# fmt: on


@pytest.mark.parametrize(("name", "file", "content", "message"), DAMAGED)
def test_a_damaged_folder_is_refused(folder, name, file, content, message):
    if content is None:
        (folder / file).rename(folder / "other")
    else:
        (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        read_glue(name, folder)


def replace_hub(monkeypatch, **answer):
    """Replace `datasets.load_dataset` by a mock with this answer, and return it."""
    module = types.ModuleType("datasets")
    module.load_dataset = Mock(**answer)
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module.load_dataset


@pytest.mark.parametrize("name", sorted(glue.FORMATS))
def test_the_hub_gives_the_same_rows_as_the_folder(folder, monkeypatch, name):
    datasets = pytest.importorskip("datasets")
    expected = read_glue(name, folder)
    columns = glue.FORMATS[name].hub_text
    features = {column: datasets.Value("string") for column in columns}
    features["label"] = datasets.ClassLabel(names=list(expected.label_names or ()))
    splits = {}
    for split, rows in (("train", expected.train), ("validation", expected.dev)):
        values = {column: [] for column in columns} | {"label": list(rows.labels)}
        for texts in rows.texts():
            for column, text in zip(columns, texts, strict=True):
                values[column].append(text)
        splits[split] = datasets.Dataset.from_dict(values, features=datasets.Features(features))
    asked = replace_hub(monkeypatch, return_value=datasets.DatasetDict(splits))
    assert load_glue_from_hub(name) == expected
    asked.assert_called_once_with("nyu-mll/glue", name)


def test_the_hub_cannot_be_read(monkeypatch):
    replace_hub(monkeypatch, side_effect=ConnectionError("Couldn't reach the Hub\nmore lines"))
    message = (
        r"^rte: 'nyu-mll/glue' cannot be read from the hub "
        r"\(ConnectionError: Couldn't reach the Hub\); check the network, "
        r"or pass --data DIR with a GLUE folder$"
    )
    with pytest.raises(TaskError, match=message):
        load_glue_from_hub("rte")
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = "^rte: reading the hub needs the package 'datasets'; install it, or pass --data"
    with pytest.raises(TaskError, match=message):
        load_glue_from_hub("rte")
