"""Texts to prune with and to measure on: sentences, and queries with their ten nearest passages.

Half of the queries are questions (TREC), half are statements (the hypotheses of RTE and WNLI).
Passages are the premises of RTE and WNLI and the sentences of MRPC. The candidates of a query are
its nearest passages by a sentence encoder: any model tells random passages apart. The other
sentences (CoLA, SST-2, SUBJ) are for sentence encoders and taggers.

Texts are divided once into a side to tune on and a side to measure on. Texts that stand in one row
of their source, such as a premise and its hypothesis, are on the same side, and texts with the same
words count as one.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from auber.data import load_task
from auber.data.files import read_records
from auber.data.rows import Rows
from auber.data.splits import set_aside
from auber.system.records import Count, Record, parse
from auber.system.seeds import generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CANDIDATES = 10  # of a query
HELD_OUT = 0.4  # share of the texts to measure on
QUERIES = ("question", "statement")
_LONGEST = 128  # tokens that the encoder reads of a text

# The role of each text of a row.
_GLUE = {
    "rte": ("passage", "statement"),
    "wnli": ("passage", "statement"),
    "mrpc": ("passage", "passage"),
    "cola": ("other",),
}
_FILES = {"trec": "question", "sst2": "other", "subj": "other"}
_SPLITS = ("train", "dev")

# A word with its inner apostrophes and hyphens, or the mark behind it.
_TOKEN = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")
_MARKS = {",": "comma", ".": "stop", "?": "stop", "!": "stop"}
TAGS = ("o", "comma", "stop", "capital", "capital comma", "capital stop")

Row = tuple[tuple[str, str], ...]  # (text, role) of each text


class Side(Record):
    """Texts in random order; queries and candidates are places in them."""

    texts: tuple[str, ...]
    queries: tuple[Count, ...]
    candidates: tuple[tuple[Count, ...], ...]

    def places(self) -> list[tuple[int, int]]:
        """Return each query with each of its candidates, query after query."""
        return [
            (query, place)
            for query, places in zip(self.queries, self.candidates, strict=True)
            for place in places
        ]

    def pairs(self) -> list[tuple[str, str]]:
        """Return the texts of `places`."""
        return [(self.texts[query], self.texts[place]) for query, place in self.places()]

    def first(self, queries: int) -> Side:
        """Return the first queries and their candidates, without the texts of the others."""
        asked, candidates = self.queries[:queries], self.candidates[:queries]
        used = sorted({*asked, *(place for places in candidates for place in places)})
        new = {place: number for number, place in enumerate(used)}
        return Side(
            texts=tuple(self.texts[place] for place in used),
            queries=tuple(new[place] for place in asked),
            candidates=tuple(tuple(new[place] for place in places) for places in candidates),
        )


class Material(Record):
    """What models are pruned with, and what they are measured on."""

    format: Literal[1] = 1
    kind: Literal["fidelity texts"] = "fidelity texts"
    command: str
    tune: Side
    held_out: Side


def read_material(path: Path) -> Material:
    """Return the texts that `write_material` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return parse(Material, json.load(file), str(path), "prepare the texts again")


def write_material(path: Path, material: Material) -> None:
    """Write texts as one compressed file."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(material.to_json(), file, ensure_ascii=False)


def read_rows(glue: Path, data: Path) -> list[Row]:
    """Return the rows of all sources."""
    rows: list[Row] = []
    for name, roles in _GLUE.items():
        task = load_task(name, data=glue)
        texts = [*task.train.texts(), *task.dev.texts()]
        rows += [tuple(zip(row, roles, strict=True)) for row in texts]
    for name, role in _FILES.items():
        for split in _SPLITS:
            path = data / f"{name}-{split}.csv"
            rows += [((record["text"], role),) for _, record in read_records(path, ("text",))]
    return rows


def divide(rows: Sequence[Row]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts to tune on and to measure on, each with its role.

    A text that has several roles keeps the first.
    """
    words = [[_same_words(text) for text, _ in row] for row in rows]
    joined = Rows.from_columns(
        ([row[0] for row in words], [row[-1] for row in words]), [0] * len(rows)
    )
    sides: tuple[dict[str, str], ...] = ({}, {})
    for side, places in zip(sides, set_aside(joined, joined.labels, HELD_OUT), strict=True):
        known: set[str] = set()
        for place in places:
            for (text, role), same in zip(rows[place], words[place], strict=True):
                if same and same not in known:
                    known.add(same)
                    side[text] = role
    return sides[0], sides[1]


def make_side(
    roles: dict[str, str],
    embed: Embed,
    *,
    queries: int,
    texts: int,
    seed: int,
) -> Side:
    """Return at most this many texts, among them queries and their nearest passages."""
    rng = generator(seed, "fidelity texts")
    passages = _with_role(roles, "passage")
    asked = []
    for role in QUERIES:
        found = _with_role(roles, role)
        asked += [found[place] for place in rng.permutation(len(found))[: queries // 2]]
    asked = [asked[place] for place in rng.permutation(len(asked))]
    near = nearest(embed(asked), embed(passages))
    used = dict.fromkeys([*asked, *(passages[place] for row in near for place in row)])
    others = [text for text in roles if text not in used]
    some = rng.permutation(len(others))[: max(0, texts - len(used))]
    chosen = [*used, *(others[place] for place in some)]
    chosen = [chosen[place] for place in rng.permutation(len(chosen))]
    places = {text: place for place, text in enumerate(chosen)}
    return Side(
        texts=tuple(chosen),
        queries=tuple(places[text] for text in asked),
        candidates=tuple(tuple(places[passages[place]] for place in row) for row in near),
    )


def nearest(
    queries: NDArray[np.float32], passages: NDArray[np.float32], count: int = CANDIDATES
) -> list[list[int]]:
    """Return the places of the passages nearest to each query by cosine, the nearest first."""
    found = []
    for start in range(0, len(queries), 1024):
        cosines = queries[start : start + 1024] @ passages.T
        found += np.argsort(-cosines, axis=1, kind="stable")[:, :count].tolist()
    return found


class Embed:
    """Texts to normalised vectors: the first token's last hidden state, as bge has it."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors: (texts, hidden)."""
        import torch

        vectors = np.zeros((len(texts), self._model.config.hidden_size), np.float32)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        with torch.inference_mode():
            for start in range(0, len(order), 64):
                places = order[start : start + 64]
                batch: Any = self._tokenizer(
                    [texts[place] for place in places],
                    padding=True,
                    truncation=True,
                    max_length=_LONGEST,
                    return_tensors="pt",
                )
                states = self._model(**batch.to(self._model.device)).last_hidden_state[:, 0]
                vectors[places] = torch.nn.functional.normalize(states, dim=-1).cpu().numpy()
        return vectors


def tag_words(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a text in lower case, and what that and dropping the marks hides.

    A tag says whether the word is written with a capital, and which mark follows it.
    """
    words: list[str] = []
    tags: list[str] = []
    for token in _TOKEN.findall(text):
        if token[0].isalnum() or token[0] == "_":
            words.append(token.lower())
            tags.append("capital" if token[0].isupper() else "o")
        elif tags and tags[-1] in ("o", "capital") and token in _MARKS:
            tags[-1] = f"{tags[-1]} {_MARKS[token]}".removeprefix("o ")
    return words, tags


def tagged_rows(texts: Iterable[str], count: int | None = None) -> list[dict[str, list[str]]]:
    """Return the first texts that have capitals, and at least two words, as tagged words."""
    rows: list[dict[str, list[str]]] = []
    for text in texts:
        if len(rows) == count:
            break
        words, tags = tag_words(text)
        if len(words) > 1 and any(letter.isupper() for letter in text):
            rows.append({"tokens": words, "tags": tags})
    return rows


def _with_role(roles: dict[str, str], role: str) -> list[str]:
    return [text for text, own in roles.items() if own == role]


def _same_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
