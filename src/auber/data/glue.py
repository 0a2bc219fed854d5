"""Read MRPC, CoLA, RTE and WNLI from a GLUE folder or from the Hugging Face Hub.

The folder is laid out as GLUE's own download script does: `MRPC/train.tsv`, `MRPC/dev.tsv` and so
on. Its files have no quoting (MRPC has lone quote characters), and columns are found by their name
in the header (CoLA has none). Both sources give the same rows and labels. GLUE's test labels are
secret, so scores are reported on its dev set.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from auber.data.files import read_table
from auber.data.rows import Rows, check_text
from auber.data.task import TaskData, check_task
from auber.errors import TaskError
from auber.system.hub import reading_hub

HUB_DATASET = "nyu-mll/glue"


@dataclass(frozen=True)
class GlueFormat:
    """How one GLUE task is stored, in the folder and on the Hub."""

    folder: str
    doc: str
    label_names: tuple[str, ...]
    text: tuple[str, ...] = ("sentence1", "sentence2")
    label: str = "label"
    metric: str = "accuracy"
    header: tuple[str, ...] | None = None  # the columns, if the files do not name them
    labels_are_words: bool = False  # in the files, instead of numbers

    @property
    def hub_text(self) -> tuple[str, ...]:
        """The text columns on the Hub."""
        return ("sentence",) if len(self.text) == 1 else ("sentence1", "sentence2")


FORMATS = {
    "cola": GlueFormat(
        folder="CoLA",
        doc="is a sentence acceptable English (GLUE)",
        label_names=("unacceptable", "acceptable"),
        text=("sentence",),
        metric="matthews",
        header=("source", "label", "mark", "sentence"),
    ),
    "mrpc": GlueFormat(
        folder="MRPC",
        doc="do two sentences say the same (GLUE)",
        label_names=("not_equivalent", "equivalent"),
        text=("#1 String", "#2 String"),
        label="Quality",
    ),
    "rte": GlueFormat(
        folder="RTE",
        doc="does the first text entail the second (GLUE)",
        label_names=("entailment", "not_entailment"),
        labels_are_words=True,
    ),
    "wnli": GlueFormat(
        folder="WNLI",
        doc="what a pronoun stands for, as entailment (GLUE)",
        label_names=("not_entailment", "entailment"),
    ),
}


def read_glue(name: str, folder: Path) -> TaskData:
    """Return a task from the files of a GLUE folder."""
    layout = FORMATS[name]
    inner = folder / layout.folder
    if not inner.is_dir():
        raise TaskError(
            f"{folder}: a GLUE folder must hold {layout.folder}/train.tsv and dev.tsv, found no "
            f"{layout.folder} in it; give --data the folder above {layout.folder}"
        )
    return _task(name, layout, lambda split: _read_tsv(inner / f"{split}.tsv", layout))


def load_glue_from_hub(name: str) -> TaskData:
    """Return a task from the Hub, or from the cache of `datasets`."""
    layout = FORMATS[name]
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise TaskError(
            f"{name}: reading the hub needs the package 'datasets'; install it, or pass --data DIR "
            "with a GLUE folder"
        ) from error
    try:
        # No revision is pinned: every result records the hash of the rows.
        with reading_hub(HUB_DATASET):
            dataset = load_dataset(HUB_DATASET, name)  # nosec B615 # as said above
    except Exception as error:  # datasets and the hub client have no common base of errors
        reason = (str(error).splitlines() or [""])[0]
        raise TaskError(
            f"{name}: '{HUB_DATASET}' cannot be read from the hub "
            f"({type(error).__name__}: {reason}); "
            "check the network, or pass --data DIR with a GLUE folder"
        ) from error

    def read(split: str) -> Rows:
        rows = dataset["validation" if split == "dev" else split]
        texts = [list(rows[column]) for column in layout.hub_text]
        for row, text in ((row, text) for column in texts for row, text in enumerate(column)):
            check_text(text, f"{name}: {split} row {row}")
        return Rows.from_columns(texts, map(int, rows["label"]))

    return _task(name, layout, read)


def _task(name: str, layout: GlueFormat, read: Callable[[str], Rows]) -> TaskData:
    return check_task(TaskData(name, read("train"), read("dev"), layout.label_names, layout.metric))


def _read_tsv(path: Path, layout: GlueFormat) -> Rows:
    names = layout.label_names
    written = names if layout.labels_are_words else tuple(map(str, range(len(names))))
    columns = (layout.label, *layout.text)
    rows = []
    for where, row in read_table(path, columns, "\t", header=layout.header, quoting=csv.QUOTE_NONE):
        if row[layout.label] not in written:
            raise TaskError(
                f"{where}: the label must be one of {', '.join(written)}, "
                f"found '{row[layout.label]}'; correct it"
            )
        for column in layout.text:
            check_text(row[column], where)
        rows.append(row)
    texts = [[row[column] for row in rows] for column in layout.text]
    return Rows.from_columns(texts, [written.index(row[layout.label]) for row in rows])
