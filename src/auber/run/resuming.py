"""Whether a run can begin in a folder, or go on there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from auber.config import Config, make_config
from auber.errors import RunError
from auber.run.files import RESULT, SCRATCH, TUNING, is_run, read_identity
from auber.run.records import RunIdentity
from auber.system.locks import LOCK

logger = logging.getLogger(__name__)

Resume = bool | Literal["upgrade"]  # "upgrade": also with other versions of the packages
Versions = dict[str, tuple[str | None, str]]  # of packages, then and now

_SAME_VERSIONS = ("auber", "torch", "transformers")  # others hardly change a number
# Not compared as settings: versions are checked apart, equal weights may come from elsewhere, and
# of the threads it is the resolved number that counts.
_NOT_COMPARED = ("versions", "upgrades", "source", "threads")
_DIGESTED = {
    "data": "its rows were others",
    "weights": "its model had other weights",
    "origin": "its fold models were trained from another model",
}
# How to run in the recorded environment again.
_REMEDIES: dict[str, Callable[[Any], str]] = {
    "computed_on_threads": lambda threads: f"--set threads={threads}",
    "processes": lambda number: (
        "without torchrun" if number == 1 else f"torchrun --nproc-per-node {number}"
    ),
}


def check_place(folder: Path, *, resume: bool) -> None:
    """Raise `RunError` unless a run can begin in a folder or, with `resume`, continue in it."""
    try:
        str(folder).encode()
        is_there = is_run(folder)
    except UnicodeEncodeError as error:
        raise RunError(
            f"{folder}: must have a name in UTF-8, without which no tokenizer can be written "
            "there; choose another folder for --out"
        ) from error
    except OSError as error:  # such as a name that is too long
        raise RunError(
            f"{folder}: cannot be a run's folder ({error.strerror}); choose another folder "
            "for --out"
        ) from error
    if is_there:
        if not resume:
            state = "a finished" if (folder / RESULT).is_file() else "an unfinished"
            raise RunError(
                f"{folder}: holds {state} run; add --resume to continue it, or choose another "
                "folder for --out"
            )
    elif folder.exists() and not (folder.is_dir() and _is_unused(folder)):
        raise RunError(
            f"{folder}: must be a new or an empty folder; choose another folder for --out"
        )


def check_resumable(
    folder: Path, identity: RunIdentity, config: Config, resume: Resume
) -> Versions:
    """Raise `RunError` unless the run in a folder can be resumed as the run `identity`.

    It can if the caller asked to resume, if model, data, method, hardware and settings are the
    same, and if auber, torch and transformers have the same versions. With `resume="upgrade"` other
    versions are allowed; their changes are returned. A finished run computes nothing more, so its
    versions do not matter.
    """
    check_place(folder, resume=bool(resume))
    recorded = read_identity(folder)
    _check_same_run(folder, recorded, identity, config)
    changed: Versions = {
        name: (recorded.versions.get(name, "not recorded"), identity.versions[name])
        for name in _SAME_VERSIONS
        if name in identity.versions and recorded.versions.get(name) != identity.versions[name]
    }
    if not changed or (folder / RESULT).is_file():
        return {}
    words = ", ".join(f"{name} was {was} and is now {now}" for name, (was, now) in changed.items())
    if resume != "upgrade":
        raise RunError(
            f"{folder}: was begun with other versions: {words}; install those to get the numbers "
            "of an unbroken run, or add --allow-upgrade to go on with these"
        )
    logger.warning(
        "%s: goes on with other versions (%s): its numbers may differ from an unbroken run's",
        folder,
        words,
    )
    return changed


def _check_same_run(
    folder: Path, recorded: RunIdentity, identity: RunIdentity, config: Config
) -> None:
    settings = make_config("paper", file=folder / "config.toml").flat()
    was = {**recorded.to_json(), **settings}
    now = {**identity.to_json(), **config.flat()}
    changed = sorted(
        key for key in was.keys() | now.keys()
        if key not in _NOT_COMPARED and was.get(key) != now.get(key)
    )  # fmt: skip
    if not changed:
        return
    named = [
        f"{key} was {was.get(key)!r} and is now {now.get(key)!r}"
        for key in changed
        if key not in _DIGESTED
    ]
    # Other weights or rows mostly follow from another seed or method, which is named instead.
    words = ", ".join(named or [_DIGESTED[key] for key in changed])
    remedies = [_REMEDIES[key](was.get(key)) for key in changed if key in _REMEDIES]
    hint = f" ({', '.join(remedies)})" if remedies else ""
    raise RunError(
        f"{folder}: holds another run: {words}; use the same settings{hint} or another folder "
        "for --out"
    )


def _is_unused(folder: Path) -> bool:
    """Return whether a folder is empty or was left by a run that was killed while creating it."""
    ours = {LOCK, "stages", "config.toml"}
    names = {path.name for path in folder.iterdir() if not SCRATCH.fullmatch(path.name)}
    names.discard(TUNING)
    if not names:
        return True
    stages = folder / "stages"
    return names <= ours and stages.is_dir() and not any(stages.iterdir())
