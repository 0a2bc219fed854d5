"""Pruned classifiers as a run leaves them, and what else a run leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import auber
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from tests.kinds import TAGS
from tests.tiny_models import tiny_model, tiny_tokenizer

# Of 3 layers of 4 heads and 48 neurons.
UNEVEN = PruningPlan({0: [0, 3], 1: [1], 2: [0, 1, 2]}, {0: range(5, 40), 2: [7]})
LABELS = {
    "sequence": ("bad", "good"),
    "tokens": TAGS,
    "spans": ("start", "end"),
    "embeddings": ("unused", "too"),
}


def save_pruned(
    folder: Path,
    plan: dict[int, list[int]] | None = None,
    *,
    model_type: str = "bert",
    kind: str = "sequence",
    **changes: Any,
) -> Any:
    """Save a tiny model without some heads, with its tokenizer, and return the live model."""
    names = dict(enumerate(LABELS[kind]))
    options = {
        "pad_token_id": 0,
        "id2label": names,
        "label2id": {name: index for index, name in names.items()},
        "num_labels": len(names),
    }
    model = tiny_model(model_type, kind=kind, **{**options, **changes})
    remove(model, UNEVEN if plan is None else plan, allow_empty_layers=True)
    auber.save(model, tiny_tokenizer(), folder)
    return model


def make_result(**changes: Any) -> dict[str, Any]:
    """Return what a measurement of speed reads from the result of a run on a tiny BERT."""
    result = {
        "task": "rte",
        "metric": "accuracy",
        "method": "auber",
        "seed": 3,
        "model": "tiny-bert",
        "labels": 2,
        "heads": {"removed": 6, "total": 12, "layers": 3, "per_layer": 4},
        "plan": UNEVEN.to_json(),
    }
    return {**result, **changes}


def make_run(
    folder: Path, *, keep_weights: bool = True, kind: str = "sequence", **changes: Any
) -> Path:
    """Write the folder of a finished run."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "result.json").write_text(json.dumps(make_result(**changes)))
    if keep_weights:
        save_pruned(folder / "model", kind=kind)
    return folder
