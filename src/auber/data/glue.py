"""MRPC, CoLA, RTE and WNLI, from a GLUE folder or from the Hugging Face hub.

The folder is the one GLUE's own download makes: `MRPC/train.tsv`, `MRPC/dev.tsv` and so on. Its files know no quoting
(MRPC has lone quote characters), columns are found by their name in the header (CoLA has none), and both sources give
the same rows with the same label numbers. GLUE's test labels are secret, so its dev set is what scores are reported on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auber.data.task import Rows, TaskData, check_task, check_text
from auber.data.text_files import read_text
from auber.errors import TaskError, unknown_name
from auber.system.hub import reading_hub

HUB_DATASET = "nyu-mll/glue"


@dataclass(frozen=True)
class GlueFormat:
    """How one GLUE task is stored, in the folder and on the hub."""

    folder: str
    text: tuple[str, ...]
    label: str
    label_names: tuple[str, ...]
    hub_text: tuple[str, ...]
    metric: str = "accuracy"
    header: tuple[str, ...] | None = None  # the columns of a file that does not name them itself
    labels_are_words: bool = False

    @property
    def written_labels(self) -> tuple[str, ...]:
        """The labels as the files write them, by label number."""
        return (
            self.label_names
            if self.labels_are_words
            else tuple(map(str, range(len(self.label_names))))
        )


FORMATS = {
    "cola": GlueFormat(
        folder="CoLA",
        header=("source", "label", "mark", "sentence"),
        text=("sentence",),
        label="label",
        label_names=("unacceptable", "acceptable"),
        hub_text=("sentence",),
        metric="matthews",
    ),
    "mrpc": GlueFormat(
        folder="MRPC",
        text=("#1 String", "#2 String"),
        label="Quality",
        label_names=("not_equivalent", "equivalent"),
        hub_text=("sentence1", "sentence2"),
    ),
    "rte": GlueFormat(
        folder="RTE",
        text=("sentence1", "sentence2"),
        label="label",
        label_names=("entailment", "not_entailment"),
        labels_are_words=True,
        hub_text=("sentence1", "sentence2"),
    ),
    "wnli": GlueFormat(
        folder="WNLI",
        text=("sentence1", "sentence2"),
        label="label",
        label_names=("not_entailment", "entailment"),
        hub_text=("sentence1", "sentence2"),
    ),
}


def read_glue(name: str, folder: Path) -> TaskData:
    """A task from the files of a GLUE folder."""
    layout = _layout(name)
    if not (folder / layout.folder).is_dir():
        raise TaskError(
            f"{folder}: a GLUE folder must hold {layout.folder}/train.tsv and dev.tsv, found no {layout.folder} in it; give --data the folder "
            f"above {layout.folder}"
        )
    return _task(
        name, layout, lambda split: _read_tsv(folder / layout.folder / f"{split}.tsv", layout)
    )


def load_glue_from_hub(name: str) -> TaskData:
    """A task from the hub, or from the cache of `datasets` if it was read before."""
    layout = _layout(name)
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise TaskError(
            f"{name}: reading the hub needs the package 'datasets'; install it, or pass --data DIR with a GLUE folder"
        ) from error
    try:
        # Its rows are checked, and their hash is part of every result: another revision cannot pass for this one.
        with reading_hub(HUB_DATASET):
            dataset = load_dataset(HUB_DATASET, name)  # nosec B615 # as said above
    except (
        Exception
    ) as error:  # the errors of datasets, the hub client and its transport have no common base
        reason = (str(error).splitlines() or [""])[0]
        raise TaskError(
            f"{name}: '{HUB_DATASET}' cannot be read from the hub ({type(error).__name__}: {reason}); "
            "check the network, or pass --data DIR with a GLUE folder"
        ) from error
    return _task(
        name,
        layout,
        lambda split: _hub_rows(dataset["validation" if split == "dev" else split], layout),
    )


def _layout(name: str) -> GlueFormat:
    if name not in FORMATS:
        raise TaskError(unknown_name("GLUE task", name, FORMATS))
    return FORMATS[name]


def _task(name: str, layout: GlueFormat, read: Callable[[str], Rows]) -> TaskData:
    return check_task(TaskData(name, read("train"), read("dev"), layout.label_names, layout.metric))


def _hub_rows(split: Any, layout: GlueFormat) -> Rows:
    texts = [tuple(split[column]) for column in layout.hub_text]
    return Rows(texts[0], texts[1] if len(texts) == 2 else None, tuple(map(int, split["label"])))


def _read_tsv(path: Path, layout: GlueFormat) -> Rows:
    # Not splitlines: it also breaks at separators that may stand inside a sentence.
    lines = read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    header = layout.header or tuple(lines[0].split("\t"))
    label_column = _column(layout.label, header, path)
    text_columns = [_column(column, header, path) for column in layout.text]
    numbers = {written: number for number, written in enumerate(layout.written_labels)}
    texts: list[list[str]] = [[] for _ in text_columns]
    labels: list[int] = []
    first = 0 if layout.header else 1
    for line, content in enumerate(lines[first:], start=first + 1):
        where = f"{path}, line {line}"
        fields = content.split("\t")
        if len(fields) != len(header):
            raise TaskError(
                f"{where}: {len(header)} columns are needed, found {len(fields)}; correct the line"
            )
        if fields[label_column] not in numbers:
            known = ", ".join(numbers)
            raise TaskError(
                f"{where}: the label must be one of {known}, found '{fields[label_column]}'; correct it"
            )
        labels.append(numbers[fields[label_column]])
        for column, values in zip(text_columns, texts, strict=True):
            check_text(fields[column], where)
            values.append(fields[column])
    return Rows(tuple(texts[0]), tuple(texts[1]) if len(texts) == 2 else None, tuple(labels))


def _column(name: str, header: Sequence[str], path: Path) -> int:
    if name not in header:
        raise TaskError(
            f"{path}: the header must name a column '{name}', found {', '.join(header)}; is it GLUE's file?"
        )
    return header.index(name)
