"""Read a run's folder: what the run is and, if it is finished, its result.

Reading needs no lock and imports neither torch nor the pipeline. Files may be damaged or changed by
others: an error names the file and the remedy.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from auber.errors import CheckpointError, RunError
from auber.run.records import RunIdentity
from auber.run.result_record import ResultRecord
from auber.system import records
from auber.system.files import digest_file

RESULT = "result.json"
MODELS = "models"  # of a run that makes several sizes
PROGRESS = "progress.json"
SETTLED = "settled.json"
TUNING = "tuning.json"  # the trials of --tune, which come before the run

# What an interrupted write leaves, by `write_text` and by `checkpoint.save`.
SCRATCH = re.compile(
    r"\.((run|splits|plan|settled|progress|result)\.json|config\.toml)\.[0-9]+|\.model\.[a-z0-9_]{8}"
)
DIGEST = "model_sha256"  # key of the weights' digest, in stages and in the result

_SCORES_STAY = "and scores that are known are not computed again"


def is_run(folder: str | Path) -> bool:
    """Return whether a folder holds a run, finished or not."""
    return (Path(folder) / "run.json").is_file()


def find_run(folder: str | Path) -> Path | None:
    """Return the run that a folder is, or that its model belongs to; None for other folders."""
    place = Path(folder)
    if is_run(place):
        return place
    if place.name == "model":
        place = place.parent
    elif place.parent.name == MODELS:
        place = place.parent.parent
    else:
        return None
    return place if is_run(place) else None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file of a run."""
    return records.read_json(
        path, find_remedy(path), missing=f"is {path.parent} the folder of a run?"
    )


def read_result(folder: str | Path) -> dict[str, Any]:
    """Return the result of a finished run as JSON, as `Pruned.result` has it."""
    folder = Path(folder)
    if not is_run(folder):
        raise RunError(f"{folder}: not a run's folder (it has no run.json)")
    path = folder / RESULT
    if not path.is_file():
        raise RunError(f"{folder}: the run is not finished; continue it with --resume")
    data = read_json(path)
    if not isinstance(data, dict):
        raise RunError(
            f"{path}: must be a JSON object, found {type(data).__name__}; "
            f"it is damaged: {find_remedy(path)}"
        )
    return data


def read_result_record(folder: str | Path) -> ResultRecord:
    """Return the result of a finished run, checked."""
    path = Path(folder) / RESULT
    return records.parse(ResultRecord, read_result(folder), str(path), find_remedy(path))


def read_identity(folder: str | Path) -> RunIdentity:
    """Return what a run is."""
    path = Path(folder) / "run.json"
    missing = f"is {folder} the folder of a run?"
    return records.read(RunIdentity, path, find_remedy(path), missing=missing)


def read_source(folder: str | Path) -> str | None:
    """Return the folder or hub name that a run's model was read from, None for a live model."""
    source = read_identity(folder).source
    if source is None or not source.startswith(os.pardir):
        return source
    return os.path.normpath(Path(folder).resolve() / source)


def read_row_settings(folder: str | Path) -> dict[str, Any]:
    """Return the settings that decide how a finished run reads rows; none for other folders."""
    run = find_run(folder)
    if run is None:
        return {}
    config = read_result_record(run).config
    return {"max_length": config["max_length"]} if "max_length" in config else {}


def check_digest(folder: Path, recorded: str | None) -> None:
    """Raise `CheckpointError` unless a model folder holds the weights that were recorded.

    Early versions recorded no digest; their weights are not checked.
    """
    from auber.models.source import WEIGHTS  # imports torch

    if recorded is None:
        return
    path = folder / WEIGHTS
    try:
        found = digest_file(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if found != recorded:
        raise CheckpointError(
            f"{path}: must be the file the run wrote (sha256 {recorded}), found another "
            f"(sha256 {found}): it is damaged or was changed"
        )


def find_remedy(path: Path) -> str:
    """Return what to do about a damaged file: only stages can be repeated."""
    if path.parent.name == "stages":
        return _find_stage_remedy(path)
    if path.name not in ("run.json", RESULT):
        return "put it back, or delete it"
    model = path.parent / "model"
    usable = f"; the model in {model} can be used without it" if model.is_dir() else ""
    return f"put a copy of it back{usable}"


def _find_stage_remedy(path: Path) -> str:
    """Return what to do about a stage's record; repeating it needs the weights before it."""
    if (path.parent.parent / RESULT).is_file():
        return "put a copy of it back"
    others = [other for other in path.parent.glob("*.json") if other.stem != "first"]
    dropped = any(_has_weights(other) for other in others if other != path)
    if path.stem != "first" and dropped:
        return describe_going_back(path.parent)
    return (
        "put a copy of it back, or delete it: the stage is repeated with all after it, "
        f"{_SCORES_STAY}"
    )


def describe_going_back(stages: Path) -> str:
    """Return how to continue from the first stage, whose weights are always kept."""
    return (
        f"put a copy of it back, or delete every file of {stages} but first.json and first/: "
        f"the run continues from there, {_SCORES_STAY}"
    )


def _has_weights(path: Path) -> bool:
    """Return whether a stage stored weights, so that earlier ones were deleted."""
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["weights"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return True  # damaged: it may have
