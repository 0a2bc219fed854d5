"""Rows and tasks of the kinds that are answered token by token: random ones, and generated ones a tiny model can learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auber.data.encoding import EncodedRows
from auber.data.generated import COMPLEMENTS, NOUNS
from auber.data.targets import AnyTargets, Spans, Tags
from auber.data.task import TaskData
from auber.data.user_rows import make_task
from auber.metrics.tags import NO_TAG, read_scheme
from tests.tiny_models import VOCABULARY

TOKEN_KINDS = ("tokens", "spans")
METRICS_OF = {"tokens": ("token_accuracy", "entity_f1"), "spans": ("span_exact", "span_f1")}
TAGS = ("O", "B-A", "I-A", "B-B", "I-B")


def num_labels(kind: str) -> int:
    """The outputs of a model for random rows of a kind."""
    return len(TAGS) if kind == "tokens" else 2


def random_kind_rows(
    kind: str, count: int = 17, *, seed: int = 0, token_types: bool = True
) -> EncodedRows:
    """Rows of 3 to 19 random tokens; some tokens have no tag, some rows no answer, some several."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(3, 20, count).tolist()
    ids = [draw.integers(5, VOCABULARY, length).tolist() for length in lengths]
    types = (
        [[position % 2 for position in range(length)] for length in lengths]
        if token_types
        else None
    )
    return EncodedRows(ids, types, random_answers(kind, lengths, draw), pad_token_id=1)


def random_answers(kind: str, lengths: list[int], draw: np.random.Generator) -> AnyTargets:
    """Answers to rows of these lengths."""
    if kind == "tokens":
        tags = [draw.integers(0, len(TAGS), length) for length in lengths]
        gaps = [draw.random(length) < 0.3 for length in lengths]
        placed = [np.where(gap, NO_TAG, tag).tolist() for tag, gap in zip(tags, gaps, strict=True)]
        return Tags(placed, read_scheme(TAGS))
    contexts = [(int(draw.integers(0, length)), length - 1) for length in lengths]
    spans = []
    for first, last in contexts:
        pairs = np.sort(draw.integers(first, last + 1, (int(draw.integers(0, 3)), 2)), axis=1)
        spans.append([(int(start), int(end)) for start, end in pairs])
    return Spans(spans, contexts)


# A rule a tiny model can learn: a noun is an entity, its type by what stands before it; the answer is what follows "is".


def tagged_records(count: int, seed: int) -> list[dict[str, Any]]:
    """Sentences with entities of one or two words."""
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
    """Contexts that say how two things are, and a question after one of them."""
    draw = np.random.default_rng(seed)
    records = []
    for _ in range(count):
        nouns = [NOUNS[int(number)] for number in draw.choice(len(NOUNS), 2, replace=False)]
        states = [
            COMPLEMENTS[int(number)] for number in draw.choice(len(COMPLEMENTS), 2, replace=False)
        ]
        context = " ".join(
            f"the {noun} is {state} ." for noun, state in zip(nouns, states, strict=True)
        )
        asked = int(draw.integers(2))
        start = context.index(f"{nouns[asked]} is ") + len(f"{nouns[asked]} is ")
        answers = {"text": [states[asked]], "answer_start": [start]}
        records.append({"question": f"the {nouns[asked]}", "context": context, "answers": answers})
    return records


RECORDS = {"tokens": tagged_records, "spans": question_records}


def small_kind_task(kind: str, train: int = 60, dev: int = 20) -> TaskData:
    """A generated task."""
    return make_task(RECORDS[kind](train, 0), RECORDS[kind](dev, 1), kind=kind)


def write_kind_files(kind: str, folder: Path, train: int = 60, dev: int = 20) -> tuple[Path, Path]:
    """The same as jsonl files."""
    paths = folder / "train.jsonl", folder / "dev.jsonl"
    for path, records in zip(paths, (RECORDS[kind](train, 0), RECORDS[kind](dev, 1)), strict=True):
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return paths


def packed_order(rows: EncodedRows) -> torch.Tensor:
    """Where the tokens of rows taken longest first lie among those of rows in their own order."""
    starts = np.cumsum([0, *rows.lengths])
    order = sorted(range(len(rows)), key=lambda row: -rows.lengths[row])
    return torch.from_numpy(
        np.concatenate([np.arange(starts[row], starts[row + 1]) for row in order])
    )
