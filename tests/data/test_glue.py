from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from auber.data import glue
from auber.data.glue import load_glue_from_hub, read_glue
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


def test_mrpc_knows_no_quoting(folder):
    data = read_glue("mrpc", folder)
    assert data.train.first == ('He said " no', "A line\u2028inside")
    assert data.train.second == ("No , he said", '" B')
    assert data.train.labels == (1, 0)
    assert data.dev.second == ("D",)
    assert (data.label_names, data.metric) == (("not_equivalent", "equivalent"), "accuracy")


def test_cola_has_no_header_and_no_last_line_end(folder):
    data = read_glue("cola", folder)
    assert data.train.first == ("They slept.", "Them sleep.")
    assert data.train.second is None
    assert (data.train.labels, data.dev.labels) == ((1, 0), (0, 1))
    assert (data.label_names, data.metric) == (("unacceptable", "acceptable"), "matthews")


def test_rte_counts_entailment_first_and_wnli_last(folder):
    rte, wnli = read_glue("rte", folder), read_glue("wnli", folder)
    assert (rte.train.labels, rte.dev.labels) == ((1, 0), (0,))
    assert rte.label_names == ("entailment", "not_entailment")
    assert (wnli.train.labels, wnli.dev.labels) == ((1, 0), (1,))
    assert wnli.label_names == ("not_entailment", "entailment")


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


def test_a_folder_that_is_the_tasks_own_or_holds_none(tmp_path):
    (tmp_path / "RTE").mkdir()
    message = (
        "RTE: a GLUE folder must hold RTE/train.tsv and dev.tsv, found no RTE in it; "
        "give --data the folder above RTE$"
    )
    with pytest.raises(TaskError, match=message):
        read_glue("rte", tmp_path / "RTE")


# fmt: off
DAMAGED = [
    ("rte", "RTE/dev.tsv", None, r"RTE.dev\.tsv: there is no such file; correct the path$"),
    ("rte", "RTE/dev.tsv", "index\tsentence1\tlabel\n", "the header must name a column "
     "'sentence2', found index, sentence1, label; is it GLUE's file"),
    ("rte", "RTE/dev.tsv", "", "the header must name a column 'label', found ; is it GLUE's file"),
    ("rte", "RTE/dev.tsv", FILES["RTE/dev.tsv"] + "1\tE\tF\n",
     "line 3: 4 columns are needed, found 3; correct the line$"),
    ("rte", "RTE/dev.tsv", FILES["RTE/dev.tsv"] + "1\tE\tF\t1\n",
     "line 3: the label must be one of entailment, not_entailment, found '1'; correct it$"),
    ("cola", "CoLA/train.tsv", "a\t1\t\tx\na\t0\t\t \n",
     r"CoLA.train\.tsv, line 2: the text is empty"),
    ("cola", "CoLA/dev.tsv", "", "line 1: 4 columns are needed, found 1"),
    ("mrpc", "MRPC/dev.tsv", "Quality\t#1 String\t#2 String\n", "^mrpc: dev has no rows"),
]
# fmt: on


@pytest.mark.parametrize(("name", "file", "content", "message"), DAMAGED)
def test_a_damaged_folder_is_refused(folder, name, file, content, message):
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        read_glue(name, folder)


def test_an_unknown_task_names_its_neighbour(tmp_path):
    for load in (lambda: read_glue("mprc", tmp_path), lambda: load_glue_from_hub("mprc")):
        with pytest.raises(TaskError, match=r"Unknown GLUE task 'mprc'\. Did you mean 'mrpc'\?"):
            load()


def hub(monkeypatch, answer):
    """Replace the hub; return the list of requests."""
    asked = []

    def load_dataset(path, name):
        asked.append((path, name))
        if isinstance(answer, Exception):
            raise answer
        return answer

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


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
    asked = hub(monkeypatch, datasets.DatasetDict(splits))
    assert load_glue_from_hub(name) == expected
    assert asked == [("nyu-mll/glue", name)]


def test_without_the_network_the_message_names_the_folder(monkeypatch):
    hub(monkeypatch, ConnectionError("Couldn't reach the Hub\nmore lines"))
    message = (
        r"^rte: 'nyu-mll/glue' cannot be read from the hub "
        r"\(ConnectionError: Couldn't reach the Hub\); check the network, "
        r"or pass --data DIR with a GLUE folder$"
    )
    with pytest.raises(TaskError, match=message):
        load_glue_from_hub("rte")


def test_without_datasets_the_message_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        TaskError,
        match=r"^rte: reading the hub needs the package 'datasets'; install it, or pass --data",
    ):
        load_glue_from_hub("rte")
