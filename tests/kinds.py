"""Random rows of the task types without classes, and tagged and asked tasks that can be learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auber.data.encoding import EncodedRows
from auber.data.generated import COMPLEMENTS, NOUNS
from auber.data.targets import AnyTargets, Spans, Tags, Vectors
from auber.data.task import TaskData
from auber.data.user_rows import make_task
from auber.metrics.tags import NO_TAG, read_scheme
from tests.tiny_models import HIDDEN, VOCABULARY

TOKEN_KINDS = ("tokens", "spans")
METRICS_OF = {
    "tokens": ("token_accuracy", "entity_f1"),
    "spans": ("span_exact", "span_f1"),
    "embeddings": ("pair_spearman", "cosine"),
}
TAGS = ("O", "B-A", "I-A", "B-B", "I-B")


def num_labels(kind: str) -> int:
    """Return the number of outputs of a model for random rows."""
    return len(TAGS) if kind == "tokens" else 2


def random_kind_rows(
    kind: str, count: int = 17, *, seed: int = 0, token_types: bool = True
) -> EncodedRows:
    """Return rows of 3 to 19 random tokens.

    Some tokens have no tag; some rows have no answer, or several.
    """
    draw = np.random.default_rng(seed)
    lengths = draw.integers(3, 20, count).tolist()
    ids = [draw.integers(5, VOCABULARY, length).tolist() for length in lengths]
    types = [[place % 2 for place in range(length)] for length in lengths] if token_types else None
    return EncodedRows(ids, types, random_targets(kind, lengths, draw), pad_token_id=1)


def random_targets(kind: str, lengths: list[int], draw: np.random.Generator) -> AnyTargets:
    if kind == "tokens":
        tags = [draw.integers(0, len(TAGS), length) for length in lengths]
        gaps = [draw.random(length) < 0.3 for length in lengths]
        placed = [np.where(gap, NO_TAG, tag).tolist() for tag, gap in zip(tags, gaps, strict=True)]
        return Tags(placed, read_scheme(TAGS))
    if kind == "embeddings":
        vectors = draw.normal(size=(len(lengths), HIDDEN)).astype(np.float32)
        return Vectors(torch.nn.functional.normalize(torch.from_numpy(vectors), dim=-1))
    contexts = [(int(draw.integers(0, length)), length - 1) for length in lengths]
    spans = []
    for first, last in contexts:
        pairs = np.sort(draw.integers(first, last + 1, (int(draw.integers(0, 3)), 2)), axis=1)
        spans.append([(int(start), int(end)) for start, end in pairs])
    return Spans(spans, contexts)


def tagged_records(count: int, seed: int) -> list[dict[str, Any]]:
    """Return sentences with entities; the word before an entity gives its type."""
    draw = np.random.default_rng(seed)
    records = []
    for _ in range(count):
        tokens, tags = [], []
        for _ in range(int(draw.integers(1, 3))):
            before, kind = [("the", "THING"), ("near", "PLACE")][int(draw.integers(2))]
            words = [NOUNS[int(draw.integers(len(NOUNS)))] for _ in range(int(draw.integers(1, 3)))]
            tokens += [before, *words]
            tags += ["O", f"B-{kind}", *[f"I-{kind}"] * (len(words) - 1)]
        records.append({"tokens": [*tokens, "."], "tags": [*tags, "O"]})
    return records


def question_records(count: int, seed: int) -> list[dict[str, Any]]:
    """Return contexts about the states of two things, and a question about one of them."""
    draw = np.random.default_rng(seed)
    records = []
    for _ in range(count):
        nouns = [NOUNS[int(number)] for number in draw.choice(len(NOUNS), 2, replace=False)]
        numbers = draw.choice(len(COMPLEMENTS), 2, replace=False)
        states = [COMPLEMENTS[int(number)] for number in numbers]
        facts = zip(nouns, states, strict=True)
        context = " ".join(f"the {noun} is {state} ." for noun, state in facts)
        asked = int(draw.integers(2))
        start = context.index(f"{nouns[asked]} is ") + len(f"{nouns[asked]} is ")
        answers = {"text": [states[asked]], "answer_start": [start]}
        records.append({"question": f"the {nouns[asked]}", "context": context, "answers": answers})
    return records


RECORDS = {"tokens": tagged_records, "spans": question_records}


def small_kind_task(kind: str, train: int = 60, dev: int = 20) -> TaskData:
    """Return a generated task."""
    return make_task(RECORDS[kind](train, 0), RECORDS[kind](dev, 1), kind=kind)


def write_kind_files(kind: str, folder: Path, train: int = 60, dev: int = 20) -> tuple[Path, Path]:
    """Write the same as jsonl files."""
    paths = folder / "train.jsonl", folder / "dev.jsonl"
    for path, records in zip(paths, (RECORDS[kind](train, 0), RECORDS[kind](dev, 1)), strict=True):
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return paths


def packed_order(rows: EncodedRows) -> torch.Tensor:
    """Return the places of tokens, longest rows first, among those of rows in their own order."""
    starts = np.cumsum([0, *rows.lengths])
    order = sorted(range(len(rows)), key=lambda row: -rows.lengths[row])
    places = [np.arange(starts[row], starts[row + 1]) for row in order]
    return torch.from_numpy(np.concatenate(places))
