"""Small things under the names that pages use for large ones: a model folder, a GLUE folder, rows, finished runs.

A block names the ones it needs in its mark. Each is made in the page's own folder, or in its Python names, before the block
is run, unless an earlier block of the page had it made.
"""

from __future__ import annotations

import csv
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auber.tasks.agreement_model import build_model, build_tokenizer, vocabulary
from tests.docs.blocks import ROOT
from tests.models import tiny_model
from tests.small import small_config, small_start, small_task

_STUDY = """
model = "agreement"
tasks = ["agreement"]
methods = ["auber", "random", "original+tuning"]
seeds = [0]

[settings]
threads = 1
first.epochs = 1
agent.episodes = 4
layer.epochs = 0
last.epochs = 1
"""


def make(name: str, folder: Path, names: dict[str, Any]) -> None:
    """Put a stand-in into the folder, or among the Python names."""
    if name in _OBJECTS:
        names[name] = _OBJECTS[name]()
    else:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _FILES[name](folder / name)


def _encoder(path: Path, layers: int = 2, heads: int = 4) -> None:
    """A pretrained encoder, random weights, with the tokenizer of the generated task."""
    model = tiny_model(
        "bert",
        bare=True,
        vocab_size=len(vocabulary()),
        pad_token_id=0,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        hidden_size=4 * heads,
        max_position_embeddings=128,
    )
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)


def _glue(path: Path) -> None:
    """The four tasks in GLUE's own files, each with sentences of the generated task as its rows."""
    task = small_task()
    for split, rows in (("train", task.train), ("dev", task.dev)):
        texts = [
            (row, text, text, label) for row, (text, label) in enumerate(zip(rows.first, rows.labels, strict=True))
        ]
        words = {0: "entailment", 1: "not_entailment"}
        files = {
            "CoLA": [f"made\t{label}\t\t{text}" for _, text, _, label in texts],
            "MRPC": [
                "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
                *(f"{label}\t{row}\t{row}\t{first}\t{second}" for row, first, second, label in texts),
            ],
            "RTE": [
                "index\tsentence1\tsentence2\tlabel",
                *(f"{row}\t{first}\t{second}\t{words[label]}" for row, first, second, label in texts),
            ],
            "WNLI": [
                "index\tsentence1\tsentence2\tlabel",
                *(f"{row}\t{first}\t{second}\t{label}" for row, first, second, label in texts),
            ],
        }
        for name, lines in files.items():
            (path / name).mkdir(parents=True, exist_ok=True)
            (path / name / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def _table(path: Path, columns: tuple[str, str, str]) -> None:
    """Rows of the generated task as two columns of text and one of labels: train where the name says so or begins with a."""
    task = small_task()
    rows = task.train if path.name in ("train.csv", "a.csv") else task.dev
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows((text, text, label) for text, label in zip(rows.first, rows.labels, strict=True))


@functools.cache
def _finished_run() -> Path:
    """A run of seconds that removed heads, made once for all pages."""
    from auber.api import prune

    out = Path(tempfile.mkdtemp(prefix="auber-docs-")) / "run"
    model, tokenizer = small_start(max_position_embeddings=128)
    prune(model, tokenizer, task=small_task(), method="random", heads=3, config=small_config(), out=out)
    return out


def _run(path: Path) -> None:
    shutil.copytree(_finished_run(), path)


def _batch() -> Any:
    return build_tokenizer()(["the key opens the door", "the keys open it"], padding=True, return_tensors="pt")


_FILES: dict[str, Callable[[Path], object]] = {
    "DIR": _encoder,
    "bert-base-cased": functools.partial(_encoder, layers=3, heads=6),
    "bert-base-uncased": functools.partial(_encoder, layers=12),
    "GLUE_DIR": _glue,
    "train.csv": functools.partial(_table, columns=("question", "answer", "label")),
    "dev.csv": functools.partial(_table, columns=("question", "answer", "label")),
    "a.csv": functools.partial(_table, columns=("q1", "q2", "y")),
    "b.csv": functools.partial(_table, columns=("q1", "q2", "y")),
    "runs/mrpc": _run,
    "runs/rte": _run,
    "runs/rte-a": _run,
    "runs/rte-b": _run,
    "runs/table2": lambda path: _run(path / "agreement" / "seen" / "seed-0" / "random-0"),
    "studies/quick.toml": lambda path: path.write_text(_STUDY),
    "old-model": lambda path: shutil.copytree(ROOT / "tests" / "fixtures" / "v4" / "bert", path),
}
_OBJECTS: dict[str, Callable[[], Any]] = {
    "model": build_model,
    "tokenizer": build_tokenizer,
    "batch": _batch,
    "folder": lambda: "runs/mrpc-onnx",
}
NAMES = frozenset(_FILES) | frozenset(_OBJECTS)
