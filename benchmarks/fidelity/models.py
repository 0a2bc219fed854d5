"""The models of the benchmark: what they are pruned with, their answers, and their int8 graphs."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from auber.data.encoding import EncodedRows, encode_split
from auber.data.rows import AnyRows, Rows, TextRows, WordRows
from auber.data.task import TaskData
from auber.data.texts import Texts, make_texts
from auber.errors import ConfigError
from auber.export import GRAPH
from auber.export.int8 import quantise
from auber.export.onnx import Graph, missing_packages, write_graph
from auber.export.source import Source
from auber.metrics.tags import TagTruth
from auber.training.evaluation import predict
from benchmarks.fidelity.measures import compare_scores, compare_tags, compare_vectors
from benchmarks.fidelity.texts import CANDIDATES, Material, Side, tag_words

MAX_LENGTH = 128
Measures = dict[str, float]
Row = TypeVar("Row")


class Kind(ABC):
    """One kind of model: its texts, its answers and their fidelity."""

    @abstractmethod
    def texts(self, side: Side, count: int) -> Texts:
        """Return this many texts to prune with."""

    @abstractmethod
    def rows(self, side: Side) -> AnyRows:
        """Return the rows to measure on, with placeholders for labels."""

    @abstractmethod
    def compare(self, side: Side, rows: EncodedRows, unpruned: Tensor, own: Tensor) -> Measures:
        """Return the fidelity of a model's outputs for these rows."""


class _Reranker(Kind):
    """Pairs of a query and a passage with a score."""

    def texts(self, side: Side, count: int) -> Texts:
        pairs = _checked(side.pairs(), count)
        rows = [{"query": query, "passage": passage} for query, passage in pairs]
        return make_texts(rows, text=("query", "passage"), group="query")

    def rows(self, side: Side) -> AnyRows:
        columns = tuple(zip(*side.pairs(), strict=True))
        return Rows.from_columns(columns, [0.0] * len(columns[0]))

    def compare(self, side: Side, rows: EncodedRows, unpruned: Tensor, own: Tensor) -> Measures:
        return compare_scores(unpruned.reshape(-1, CANDIDATES), own.reshape(-1, CANDIDATES))


class _Encoder(Kind):
    """Sentences with a vector each."""

    def texts(self, side: Side, count: int) -> Texts:
        return make_texts([{"text": text} for text in _checked(side.texts, count)])

    def rows(self, side: Side) -> AnyRows:
        return TextRows(side.texts, (None,) * len(side.texts))

    def compare(self, side: Side, rows: EncodedRows, unpruned: Tensor, own: Tensor) -> Measures:
        return compare_vectors(unpruned, own, side.places())


class _Tagger(Kind):
    """Words in lower case with a tag each."""

    def texts(self, side: Side, count: int) -> Texts:
        texts = _checked(side.texts, count)
        return make_texts([{"tokens": tag_words(text)[0]} for text in texts], text="tokens")

    def rows(self, side: Side) -> AnyRows:
        words = tuple(tuple(tag_words(text)[0]) for text in side.texts)
        return WordRows(words, tuple((0,) * len(each) for each in words))

    def compare(self, side: Side, rows: EncodedRows, unpruned: Tensor, own: Tensor) -> Measures:
        truth = rows.truth(torch.device("cpu"))
        assert isinstance(truth, TagTruth)
        return compare_tags(*(each[truth.places].argmax(-1) for each in (unpruned, own)))


def _checked(rows: Sequence[Row], count: int) -> Sequence[Row]:
    if len(rows) < count:
        raise ConfigError(f"--counts must be at most {len(rows)}, found {count}; prepare more")
    return rows[:count]


KINDS: dict[str, Kind] = {"reranker": _Reranker(), "encoder": _Encoder(), "tagger": _Tagger()}


class Judge:
    """Measures models of one kind on the held-out texts against the unpruned model."""

    def __init__(
        self, kind: str, unpruned: Source, material: Material, count: int | None, *, int8: bool
    ) -> None:
        self._kind, self._int8 = KINDS[kind], int8
        self._side = material.held_out
        if count is not None or kind == "encoder":
            self._side = self._side.first(count or len(self._side.queries))
        rows = self._kind.rows(self._side)
        task = TaskData("held out", rows, rows, None, "")
        self._rows = encode_split(unpruned.tokenizer, task, "train", MAX_LENGTH)
        self._wanted = predict(unpruned.model, self._rows).cpu()

    @property
    def rows(self) -> int:
        """The number of rows that models are measured on."""
        return len(self._rows)

    def measure(self, source: Source) -> dict[str, Measures]:
        """Return the fidelity of a model in float32, and in int8 if that is measured."""
        forms = {"float32": self._compare(source.model)}
        if self._int8:
            forms["int8"] = self._compare(make_int8(source))
        return forms

    def _compare(self, model: Any) -> Measures:
        own = predict(model, self._rows).cpu()
        return self._kind.compare(self._side, self._rows, self._wanted, own)


def make_int8(source: Source, threads: int | None = None) -> Graph:
    """Return the model as a graph with 8-bit weights in onnxruntime, on the CPU.

    Without a number of threads it has that of torch.
    """
    with tempfile.TemporaryDirectory(prefix="auber-fidelity-") as folder:
        graph, small = Path(folder) / GRAPH, Path(folder) / "int8.onnx"
        write_graph(source.model.cpu(), graph, source.inputs)
        quantise(graph, small)
        return Graph(small, threads or torch.get_num_threads())


def can_measure_int8() -> bool:
    """Return whether the packages are installed."""
    return not missing_packages()
