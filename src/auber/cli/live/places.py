"""Where there is something to watch: the folder of a run or of a study, or the newest run in a folder of several.

Nothing heavy is loaded, so that a watcher that waits for a run costs nothing.
"""

from __future__ import annotations

from pathlib import Path

from auber.errors import RunError

RUN, STUDY = "run.json", "study.toml"
_BEFORE_THE_RUN = {"stages", "config.toml"}  # made before a run can be told by its file


def find_place(folder: Path) -> Path | None:
    """The folder itself, or the folder of the newest run in it; None while there is nothing.

    The newest is the one that was begun last. `RunError` where something else stands there.
    """
    if (folder / RUN).is_file() or (folder / STUDY).is_file():
        return folder
    if folder.is_file():
        raise _something_else(folder)
    below = _visible(folder)
    begun = [(started, path) for path in below if (started := _began(path)) is not None]
    if begun:
        return max(begun)[1]
    if any(path.name not in _BEFORE_THE_RUN and not _is_begun_soon(path) for path in below):
        raise _something_else(folder)
    return None


def _something_else(folder: Path) -> RunError:
    return RunError(
        f"{folder}: must be the folder of a run, of several, or of a study, found something else; name its --out"
    )


def _began(folder: Path) -> int | None:
    """When the run in a folder was begun, in nanoseconds; None where there is none."""
    try:
        return (folder / RUN).stat().st_mtime_ns
    except OSError:  # not there, not yet, or no longer
        return None


def _is_begun_soon(folder: Path) -> bool:
    """Whether a folder is one in which a run is just being begun."""
    names = {path.name for path in _visible(folder)}
    return bool(names) and names <= _BEFORE_THE_RUN


def _visible(folder: Path) -> list[Path]:
    """What stands in a folder, without hidden files; nothing where there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
