"""Small stand-ins for what the pages mention: model folders, a GLUE folder, rows, finished runs.

A block names the stand-ins that it needs in its mark. They are created before the block runs, once
per page: as files in the page's folder, as Python names, or as patches (the hub, devices).
"""

from __future__ import annotations

import csv
import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from auber import demo
from auber.data.generated import build_model, build_tokenizer, make_agreement, vocabulary
from auber.data.glue import FORMATS, HUB_DATASET
from auber.models.pooling import Modules, Pooling
from auber.models.sentence_files import write_modules
from tests.docs.blocks import ROOT
from tests.export.test_hub import Hub
from tests.kinds import question_records, tagged_records
from tests.short_demo import SHORT
from tests.small import small_config, small_start, small_task
from tests.tiny_models import tiny_model

_STUDY = """
model = "agreement"
tasks = ["agreement"]
methods = ["auber", "random", "original+tuning"]
seeds = [0]

[settings]
threads = 1
first.epochs = 1
first.learning_rate = 2e-5
agent.episodes = 4
layer.epochs = 0
last.epochs = 0
reward.folds = 2
voita.epochs = 1
"""


# The study of the page with one seed, no known task and almost no training.
_FILMS = """
model = "DIR"
methods = ["auber", "original+tuning"]
seeds = [0]

[settings]
threads = 1
max_length = 24
first.learning_rate = 2e-5
agent.episodes = 4
layer.epochs = 0
last.epochs = 0

[tasks.films]
train = "a.csv"
dev = "b.csv"
text = "q1,q2"
label = "y"
first.epochs = 2
"""


@dataclass(frozen=True)
class Scene:
    """The environment of a page's code."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    stack: ExitStack
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    made: set[str] = field(default_factory=set)

    def make(self, name: str) -> None:
        """Create a stand-in unless it exists."""
        if name in self.made:
            return
        self.made.add(name)
        if name in _OBJECTS:
            self.names[name] = _OBJECTS[name]()
        elif name in _OUTSIDE:
            _OUTSIDE[name](self)
        else:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            _FILES[name](self.folder / name)


def make_encoder(path: Path, layers: int = 2, heads: int = 4) -> None:
    """Save an encoder with random weights and the tokenizer of the generated task."""
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


def _make_sentence_encoder(path: Path) -> None:
    """Save an encoder with the files of sentence-transformers."""
    make_encoder(path)
    write_modules(Modules(Pooling("cls"), {}), path, 16)


def _texts(path: Path) -> None:
    """Write the generated sentences without labels."""
    rows = make_agreement(0, num_train=200, num_dev=24).train.first
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text",), *((text,) for text in rows)])


def make_glue(path: Path) -> None:
    """Write RTE in GLUE's format, with sentences of the generated task."""
    task, words = small_task(), ("entailment", "not_entailment")
    (path / "RTE").mkdir(parents=True)
    for split, rows in (("train", task.train), ("dev", task.dev)):
        pairs = enumerate(zip(rows.first, rows.labels, strict=True))
        lines = [f"{row}\t{text}\t{text}\t{words[label]}\n" for row, (text, label) in pairs]
        header = "index\tsentence1\tsentence2\tlabel\n"
        (path / "RTE" / f"{split}.tsv").write_text(header + "".join(lines))


def _answer_as_the_hub(scene: Scene) -> None:
    """Serve sentences of the generated task as the hub's rows of MRPC."""
    task = small_task()

    def load_dataset(path: str, name: str) -> dict[str, dict[str, Any]]:
        assert (path, name) == (HUB_DATASET, "mrpc")
        return {
            split: {**dict.fromkeys(FORMATS[name].hub_text, rows.first), "label": rows.labels}
            for split, rows in (("train", task.train), ("validation", task.dev))
        }

    scene.monkeypatch.setattr("datasets.load_dataset", load_dataset)


def _take_uploads(scene: Scene) -> None:
    """Stand in for the hub; require an upload in the end."""
    hub = Hub()

    def require_upload(kind: type[BaseException] | None, *_: object) -> None:
        assert kind is not None or hub.uploaded, "nothing was pushed"

    scene.stack.push(require_upload)
    scene.monkeypatch.setattr("huggingface_hub.HfApi", lambda **_: hub)


def _hide_gpus(scene: Scene) -> None:
    """Use CPU threads as shards, even on a machine with GPUs."""
    scene.monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    scene.monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)


def _shorten_demo(scene: Scene) -> None:
    """Shorten the demo."""
    scene.monkeypatch.setattr("auber.demo.SETTINGS", demo.SETTINGS | SHORT)


def _films(path: Path) -> None:
    """Write a study of user rows, and the files that it names."""
    path.write_text(_FILMS)
    for name in ("DIR", "a.csv", "b.csv"):
        if not path.with_name(name).exists():
            _FILES[name](path.with_name(name))


def _reranker(path: Path) -> None:
    """Save a model with one output."""
    model, tokenizer = small_start(num_labels=1, max_position_embeddings=128)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def _pairs(path: Path) -> None:
    """Write queries with five passages each."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("query", "passage"))
        passages = make_agreement(0, 120, 24).train.first
        writer.writerows((f"the key {row // 5}", text) for row, text in enumerate(passages))


def _tagged(path: Path, rows: int) -> None:
    """Write one word and its tag per line."""
    sentences = (
        zip(record["tokens"], record["tags"], strict=True)
        for record in tagged_records(rows, seed=rows)
    )
    path.write_text(
        "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)
    )


def _questions(path: Path, rows: int) -> None:
    """Write questions and contexts in the format of SQuAD."""
    paragraphs = []
    for number, record in enumerate(question_records(rows, seed=rows)):
        (text,), (start,) = record["answers"]["text"], record["answers"]["answer_start"]
        answers = [{"text": text, "answer_start": start}]
        question = {"id": str(number), "question": record["question"], "answers": answers}
        paragraphs.append({"context": record["context"], "qas": [question]})
    path.write_text(
        json.dumps({"version": "1.1", "data": [{"title": "made", "paragraphs": paragraphs}]})
    )


def _table(path: Path, columns: tuple[str, str, str]) -> None:
    """Write rows of the generated task with two text columns and one label column."""
    task = small_task()
    rows = task.train if path.name in ("train.csv", "a.csv") else task.dev
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(
            (text, text, label) for text, label in zip(rows.first, rows.labels, strict=True)
        )


@functools.cache
def _finished_run() -> Path:
    """Return the folder of a short run that removed heads."""
    from auber.api import prune

    out = Path(tempfile.mkdtemp(prefix="auber-docs-")) / "run"
    # The shape of the stand-in for bert-base-cased, which some pages load beside it.
    model, tokenizer = small_start(
        num_hidden_layers=3, num_attention_heads=6, hidden_size=24, max_position_embeddings=128
    )
    prune(
        model,
        tokenizer,
        task=small_task(),
        method="random",
        heads=3,
        config=small_config(),
        out=out,
    )
    return out


def _run(path: Path) -> None:
    shutil.copytree(_finished_run(), path)


def _batch() -> Any:
    return build_tokenizer()(
        ["the key opens the door", "the keys open it"], padding=True, return_tensors="pt"
    )


_FILES: dict[str, Callable[[Path], object]] = {
    "DIR": make_encoder,
    "my-encoder": _make_sentence_encoder,
    "texts.csv": _texts,
    "bert-base-cased": functools.partial(make_encoder, layers=3, heads=6),
    "GLUE_DIR": make_glue,
    "train.csv": functools.partial(_table, columns=("question", "answer", "label")),
    "dev.csv": functools.partial(_table, columns=("question", "answer", "label")),
    "a.csv": functools.partial(_table, columns=("q1", "q2", "y")),
    "b.csv": functools.partial(_table, columns=("q1", "q2", "y")),
    "test.csv": functools.partial(_table, columns=("q1", "q2", "y")),
    "reranker": _reranker,
    "pairs.csv": _pairs,
    "train.conll": functools.partial(_tagged, rows=60),
    "dev.conll": functools.partial(_tagged, rows=20),
    "train.json": functools.partial(_questions, rows=60),
    "dev.json": functools.partial(_questions, rows=20),
    "runs/mrpc": _run,
    "runs/table2": lambda path: _run(path / "agreement" / "seen" / "seed-0" / "random-0"),
    "results/rte/result.json": lambda path: shutil.copy(_finished_run() / "result.json", path),
    "studies/quick.toml": lambda path: path.write_text(_STUDY),
    "films.toml": _films,
    "old-model": lambda path: shutil.copytree(ROOT / "tests" / "fixtures" / "v4" / "bert", path),
}
_OBJECTS: dict[str, Callable[[], Any]] = {
    "model": build_model,
    "batch": _batch,
    "folder": lambda: "runs/mrpc-onnx",
}
_OUTSIDE: dict[str, Callable[[Scene], None]] = {
    "mrpc": _answer_as_the_hub,
    "--push": _take_uploads,
    "reward.shards": _hide_gpus,
    "auber demo": _shorten_demo,
}
