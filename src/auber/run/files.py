"""The files of a run's folder, read: what a run is, what its stages left and what came out.

Anybody may read them, at any time and without holding the run (`auber.run.folder`). Somebody may have damaged or changed them
since: an error names the file and says what can be done about it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auber.errors import CheckpointError, RunError
from auber.models.source import WEIGHTS
from auber.run.fields import Fields
from auber.system.files import digest_file

RESULT = "result.json"
DIGEST = "model_sha256"  # of the weights, in the record of a stage and in the result

_SCORES_STAY = "and scores that are known are not computed again"


def read_json(path: Path) -> Any:
    """JSON from a run's folder; `RunError` where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path}: no such file; is {path.parent} a run's folder?") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path}: cannot be read ({error}); it is damaged: {_advise(path)}"
        ) from error


class RunFile(Fields):
    """A JSON file of a run's folder, read field by field."""

    def __init__(self, path: Path, data: Any) -> None:
        super().__init__(str(path), data)

    @property
    def remedy(self) -> str:
        """What to do about it where it is damaged."""
        return _advise(Path(self.where))


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a run's folder."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise RunError(
            f"{path}: must be a JSON object, found {type(data).__name__}; it is damaged: {_advise(path)}"
        )
    return data


def _advise(path: Path) -> str:
    """What to do about a damaged file: of a stage another can be made, what a run is and what came of it cannot."""
    if path.parent.name == "stages":
        return _advise_stage(path)
    if path.name not in ("run.json", RESULT):
        return "put it back, or delete it"
    model = path.parent / "model"
    return "put a copy of it back" + (
        f"; the model in {model} can be used without it" if model.is_dir() else ""
    )


def _advise_stage(path: Path) -> str:
    """What to do about a stage's record: the stage can be done again where the weights it began with are there."""
    if (path.parent.parent / RESULT).is_file():
        return "put a copy of it back"
    others = [
        other for other in path.parent.glob("*.json") if other.stem not in ("first", path.stem)
    ]
    if path.stem == "first" or not any(map(_has_weights, others)):
        return f"put a copy of it back, or delete it: the stage is done again with all after it, {_SCORES_STAY}"
    return advise_going_back(path.parent)


def _has_weights(path: Path) -> bool:
    """Whether a stage's record says that weights were written, and so those before dropped; a damaged one may have said so."""
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["weights"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return True


def advise_going_back(stages: Path) -> str:
    """How to go on from the first stage, whose weights are kept."""
    return (
        f"put a copy of it back, or delete every file of {stages} but first.json and first/: the run goes on from there, "
        f"{_SCORES_STAY}"
    )


def is_run(folder: str | Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (Path(folder) / "run.json").is_file()


def read_result(folder: str | Path) -> dict[str, Any]:
    """The result of a finished run."""
    folder = Path(folder)
    if not is_run(folder):
        raise RunError(f"{folder}: not a run's folder (it has no run.json)")
    if not (folder / RESULT).is_file():
        raise RunError(f"{folder}: the run is not finished; continue it with --resume")
    return read_object(folder / RESULT)


def find_run(folder: str | Path) -> Path | None:
    """The run that a folder is, or whose model lies in it; None of any other."""
    place = Path(folder)
    return next(
        (run for run in (place, *([place.parent] if place.name == "model" else [])) if is_run(run)),
        None,
    )


def read_field(run: Path, key: str) -> str:
    """One word of a finished run's result."""
    word: str = RunFile(run / RESULT, read_result(run)).get(key, str)
    return word


def read_row_settings(folder: str | Path) -> dict[str, Any]:
    """The settings of a finished run that say how its rows are read; none of a folder that is no run's."""
    run = find_run(folder)
    if run is None:
        return {}
    settings = RunFile(run / RESULT, read_result(run)).find("config", dict) or {}
    return {key: settings[key] for key in ("max_length",) if key in settings}


def read_record(folder: str | Path) -> dict[str, Any]:
    """What a run is, as its `run.json` has it."""
    return read_object(Path(folder) / "run.json")


def read_source(folder: str | Path) -> str | None:
    """Where a run's model was read from, a folder or a hub name, if it was not a live one."""
    source = read_record(folder).get("source")
    if not isinstance(source, str):
        return None
    return (
        os.path.normpath(Path(folder).resolve() / source)
        if source.startswith(os.pardir)
        else source
    )


def check_digest(folder: Path, record: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` unless a model folder holds the weights that were written into it, as its record says.

    What was written by a version that kept no digest is taken as it is.
    """
    path, recorded = folder / WEIGHTS, record.get(DIGEST)
    if recorded is None:
        return
    try:
        found = digest_file(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if found != recorded:
        raise CheckpointError(
            f"{path}: must be the file the run wrote (sha256 {recorded}), found another (sha256 {found}): "
            "it is damaged or was changed"
        )
