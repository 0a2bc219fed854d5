"""The models of the benchmark: what they are pruned with, their answers, and their int8 graphs."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from auber.data.encoding import EncodedRows, encode_rows, encode_words
from auber.data.rows import Rows, WordRows
from auber.data.texts import Texts, make_texts
from auber.export import GRAPH
from auber.export.int8 import quantise
from auber.export.onnx import Graph, missing_packages, write_graph
from auber.export.source import Source
from auber.metrics.tags import TagTruth
from auber.training.evaluation import predict
from benchmarks.fidelity.measures import compare_scores, compare_tags
from benchmarks.fidelity.texts import CANDIDATES, Material, Side, tag_words

MAX_LENGTH = 128


class Kind(ABC):
    """One kind of model: its texts, its answers and their fidelity."""

    @abstractmethod
    def texts(self, side: Side, count: int) -> Texts:
        """Return this many texts to prune with."""

    @abstractmethod
    def encode(self, source: Source, side: Side, count: int | None) -> EncodedRows:
        """Return the rows to measure on: of this many queries or texts, or of all."""

    @abstractmethod
    def compare(self, rows: EncodedRows, unpruned: torch.Tensor, own: torch.Tensor) -> Measures:
        """Return the fidelity of a model's outputs."""


Measures = dict[str, float]


class _Reranker(Kind):
    """Pairs of a query and a passage with a score."""

    def texts(self, side: Side, count: int) -> Texts:
        rows = [{"query": query, "passage": passage} for query, passage in side.pairs()[:count]]
        return make_texts(_checked(rows, count), text=("query", "passage"), group="query")

    def encode(self, source: Source, side: Side, count: int | None) -> EncodedRows:
        pairs = side.pairs()[: None if count is None else count * CANDIDATES]
        rows = Rows.from_columns(tuple(zip(*pairs, strict=True)), [0.0] * len(pairs))
        return encode_rows(source.tokenizer, rows, MAX_LENGTH, is_regression=True)

    def compare(self, rows: EncodedRows, unpruned: torch.Tensor, own: torch.Tensor) -> Measures:
        return compare_scores(*(_array(each).reshape(-1, CANDIDATES) for each in (unpruned, own)))


class _Tagger(Kind):
    """Words in lower case with a tag each."""

    def texts(self, side: Side, count: int) -> Texts:
        rows = [{"tokens": words} for words in _words(side.texts)]
        return make_texts(_checked(rows[:count], count), text="tokens")

    def encode(self, source: Source, side: Side, count: int | None) -> EncodedRows:
        words = tuple(map(tuple, _words(side.texts[:count])))
        rows = WordRows(words, tuple((0,) * len(each) for each in words))
        names = [source.model.config.id2label[number] for number in range(source.model.num_labels)]
        return encode_words(source.tokenizer, rows, MAX_LENGTH, names)

    def compare(self, rows: EncodedRows, unpruned: torch.Tensor, own: torch.Tensor) -> Measures:
        truth = rows.truth(torch.device("cpu"))
        assert isinstance(truth, TagTruth)
        return compare_tags(
            *(each.cpu()[truth.places].argmax(-1).numpy() for each in (unpruned, own))
        )


def _words(texts: Iterable[str]) -> list[list[str]]:
    """Return the words of texts that have at least two; the order of texts stays."""
    found = (tag_words(text)[0] for text in texts)
    return [words for words in found if len(words) > 1]


def _checked(rows: list[Any], count: int) -> list[Any]:
    if len(rows) < count:
        raise SystemExit(f"--texts must be at most {len(rows)}, found {count}")
    return rows


def _array(values: torch.Tensor) -> NDArray[np.float64]:
    return values.double().cpu().numpy()


KINDS: dict[str, Kind] = {"reranker": _Reranker(), "tagger": _Tagger()}


class Judge:
    """Measures models of one kind on the held-out texts against the unpruned model."""

    def __init__(
        self, kind: str, unpruned: Source, material: Material, count: int | None, *, int8: bool
    ) -> None:
        self._kind, self._int8 = KINDS[kind], int8
        self._rows = self._kind.encode(unpruned, material.held_out, count)
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
        return self._kind.compare(self._rows, self._wanted, predict(model, self._rows).cpu())


def make_int8(source: Source) -> Graph:
    """Return the model as a graph with 8-bit weights in onnxruntime, on the CPU."""
    with tempfile.TemporaryDirectory(prefix="auber-fidelity-") as folder:
        graph, small = Path(folder) / GRAPH, Path(folder) / "int8.onnx"
        write_graph(source.model.cpu(), graph, source.inputs)
        quantise(graph, small)
        return Graph(small, torch.get_num_threads())


def can_measure_int8() -> bool:
    """Return whether the packages are installed."""
    return not missing_packages()
