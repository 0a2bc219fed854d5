"""What a run leaves that a measurement of speed reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.export.models import UNEVEN, save_pruned


def make_result(**changes: Any) -> dict[str, Any]:
    """The result of a run on a tiny BERT, as far as it matters."""
    result = {
        "task": "rte",
        "metric": "accuracy",
        "method": "auber",
        "seed": 3,
        "model": "tiny-bert",
        "labels": 2,
        "heads": {"removed": 6, "total": 12, "layers": 3, "per_layer": 4},
        "plan": {str(layer): heads for layer, heads in UNEVEN.items()},
    }
    return {**result, **changes}


def make_run(
    folder: Path, *, keep_weights: bool = True, kind: str = "sequence", **changes: Any
) -> Path:
    """A finished run's folder."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "result.json").write_text(json.dumps(make_result(**changes)))
    if keep_weights:
        save_pruned(folder / "model", kind=kind)
    return folder
