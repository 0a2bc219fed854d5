"""Read MRPC, CoLA, RTE and WNLI from a GLUE folder or from the Hugging Face Hub.

The folder is laid out as GLUE's own download script does: `MRPC/train.tsv`, `MRPC/dev.tsv` and so
on. Its files have no quoting (MRPC has lone quote characters), and columns are found by their name
in the header (CoLA has none). Both sources give the same rows and labels. GLUE's test labels are
secret, so scores are reported on its dev set.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from auber.data.files import Record, read_table
from auber.data.task import TaskData, check_task
from auber.data.user_rows import RowReader
from auber.errors import TaskError, first_line
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

    @property
    def label_numbers(self) -> tuple[str, ...]:
        """The labels as they are written where they are numbers."""
        return tuple(map(str, range(len(self.label_names))))


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

    def read(split: str) -> Iterable[Record]:
        path, columns = inner / f"{split}.tsv", (*layout.text, layout.label)
        return read_table(path, columns, "\t", header=layout.header, quoting=csv.QUOTE_NONE)

    labels = layout.label_names if layout.labels_are_words else layout.label_numbers
    return _make_task(name, RowReader("classes", layout.text, layout.label, labels), read)


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
        raise TaskError(
            f"{name}: '{HUB_DATASET}' cannot be read from the hub "
            f"({type(error).__name__}: {first_line(error)}); "
            "check the network, or pass --data DIR with a GLUE folder"
        ) from error

    columns = (*layout.hub_text, "label")

    def read(split: str) -> Iterable[Record]:
        table = dataset["validation" if split == "dev" else split]
        for number, row in enumerate(zip(*(table[column] for column in columns), strict=True)):
            yield f"{name}: {split} row {number}", dict(zip(columns, row, strict=True))

    return _make_task(
        name, RowReader("classes", layout.hub_text, "label", layout.label_numbers), read
    )


def _make_task(name: str, reader: RowReader, read: Callable[[str], Iterable[Record]]) -> TaskData:
    train, dev = reader.read(read("train")), reader.read(read("dev"))
    layout = FORMATS[name]
    return check_task(TaskData(name, train, dev, layout.label_names, layout.metric))
