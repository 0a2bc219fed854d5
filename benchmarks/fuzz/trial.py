"""One hostile input for one reader, and the verdict.

A reader may take the input, or refuse it with an `AuberError` of one line. Anything else is a
finding: another exception, too much time, or a change to a file outside the folder of the trial.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from auber.errors import AuberError
from benchmarks.fuzz.mutations import mutate

SECONDS = 10.0  # of a processor for one input; most take a thousandth of it
_PATIENCE = 6.0  # of this time by the clock, on a busy machine or in a wait
FORMS = ("folder", "loop", "dangling", "link to a folder", "missing")

_DIALECTS = {".json": "json", ".jsonl": "jsonl", ".toml": "toml", "": "json"}
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events that change a file, and which of their arguments are paths.
_CHANGES = {
    "os.mkdir": (0,), "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.symlink": (1,),
    "os.link": (1,), "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,),
    "shutil.rmtree": (0,),
}  # fmt: skip


Content = str | bytes | Path  # of a file, or the file or folder to copy


@dataclass(frozen=True)
class Reader:
    """A reader of valid `files`, by name in a folder; the `targets` among them are damaged."""

    name: str
    files: Mapping[str, Content]
    read: Callable[[Path], object]
    targets: tuple[str, ...] = ()  # by default all
    dialect: str | None = None  # None: by the suffix of the target
    share: float = 1.0  # of the inputs, beside other readers; less if an input takes long

    def __post_init__(self) -> None:
        if not self.targets:
            object.__setattr__(self, "targets", tuple(self.files))

    def write(self, folder: Path) -> None:
        """Write the files."""
        for name, content in self.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                (shutil.copytree if content.is_dir() else shutil.copy)(content, place)
            else:
                place.write_bytes(content.encode() if isinstance(content, str) else content)

    def dialect_of(self, target: str) -> str:
        """Return how a target is taken apart."""
        return self.dialect or _DIALECTS.get(Path(target).suffix, "rows")


class TooSlowError(BaseException):
    """The alarm of an input; not an `Exception`, so that no reader catches it."""


@dataclass(frozen=True)
class Outcome:
    """A verdict: taken, refused, untidy (a refusal in several lines), crash, timeout or escape."""

    verdict: str
    details: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether the reader must be corrected."""
        return self.verdict not in ("taken", "refused")


class Trial:
    """A folder in which inputs are given to one reader."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder = reader, folder
        self._original, self._work = folder / "original", folder / "work"
        self._original.mkdir(parents=True)
        reader.write(self._original)
        self.examples = {name: (self._original / name).read_bytes() for name in reader.targets}
        self._restore()
        # The example must be taken; and modules are imported now, not while changes are watched.
        reader.read(self._work)

    def draw(self, random: Random) -> tuple[str, bytes]:
        """Return a target and hostile bytes for it."""
        name = random.choice(self.reader.targets)
        return name, mutate(random, self.examples[name], self.reader.dialect_of(name))

    def run(self, target: str, data: bytes) -> Outcome:
        """Return the outcome with these bytes in the place of a target."""
        path = self._remove(target)
        path.write_bytes(data)
        return self._read()

    def run_form(self, target: str, form: str) -> Outcome:
        """Return the outcome with something else than a file in the place of a target."""
        path = self._remove(target)
        if form == "folder":
            path.mkdir()
        elif form != "missing":
            links = {"loop": path.name, "dangling": "nothing", "link to a folder": "/"}
            path.symlink_to(links[form])
        return self._read()

    def _remove(self, target: str) -> Path:
        self._restore()
        (self._work / target).unlink()
        return self._work / target

    def _restore(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._original, self._work)

    def _read(self) -> Outcome:
        try:
            with _alarm(), watched(self.folder) as escapes:
                self.reader.read(self._work)
            outcome = Outcome("taken")
        except AuberError as error:
            text = str(error)
            is_line = bool(text) and "\n" not in text
            outcome = Outcome("refused" if is_line else "untidy", text)
        except TooSlowError:
            outcome = Outcome("timeout", f"more than {SECONDS:g} s")
        except Exception:
            outcome = Outcome("crash", traceback.format_exc(limit=-8))
        return Outcome("escape", f"changed {escapes[0]}") if escapes else outcome


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlowError

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, SECONDS),
        (signal.SIGALRM, signal.ITIMER_REAL, _PATIENCE * SECONDS),
    )
    before = {number: signal.signal(number, ring) for number, *_ in timers}
    for _, timer, seconds in timers:
        # Again after a second, because an exception in a finaliser is ignored.
        signal.setitimer(timer, seconds, 1.0)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


_folders: list[tuple[str, list[str]]] = []  # the folder that may change, and what else did
_hooks: list[Callable[[str, tuple[object, ...]], None]] = []


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
    """Yield the list of paths outside a folder that this process changes meanwhile."""
    if not _hooks:  # a hook stays for good
        _hooks.append(_hook)
        sys.addaudithook(_hook)
    _folders.append((f"{folder.resolve()}{os.sep}", []))
    # Bytecode of modules that are imported now would be such a change, and temporary files too.
    before = sys.dont_write_bytecode, tempfile.tempdir
    sys.dont_write_bytecode, tempfile.tempdir = True, str(folder)
    try:
        yield _folders[-1][1]
    finally:
        sys.dont_write_bytecode, tempfile.tempdir = before
        _folders.pop()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _folders:
        return
    if event == "open":
        path, _, flags = arguments
        opens = isinstance(flags, int) and flags & _WRITING
        # What does not follow a link cannot leave the folder through one.
        changed = [path] if opens and not (_is_link(path) and int(flags) & _NO_FOLLOW) else []  # type: ignore[call-overload]
    else:
        changed = [arguments[index] for index in _CHANGES.get(event, ())]
    for path in changed:
        if isinstance(path, str | bytes | os.PathLike):
            place = os.path.realpath(os.fsdecode(path))
            if not f"{place}{os.sep}".startswith(_folders[-1][0]) and place != os.devnull:
                _folders[-1][1].append(place)


def _is_link(path: object) -> bool:
    return isinstance(path, str | bytes | os.PathLike) and Path(os.fsdecode(path)).is_symlink()
