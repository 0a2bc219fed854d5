"""One hostile input handed to one reader, and what came of it.

A reader may take the input, or refuse it with an `AuberError` of one line. Anything else is a finding: another exception, more
than the time an input may take, or a change to a file outside of the folder the trial is in.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from auber.errors import AuberError
from tests.fuzz.mutations import mutate
from tests.fuzz.readers import Reader

SECONDS = 10.0  # that an input may take; most take a thousandth

_NOT_FOLLOWING = getattr(os, "O_NOFOLLOW", 0)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# The events of the interpreter that change a file, and which of their arguments are paths.
_CHANGES = {
    "os.mkdir": (0,), "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.symlink": (1,), "os.link": (1,),
    "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,), "shutil.rmtree": (0,),
}  # fmt: skip


class TooSlow(BaseException):
    """The alarm of an input; no `Exception`, so that no reader takes it for an error of the file."""


@dataclass(frozen=True)
class Outcome:
    """What came of an input: `taken`, `refused`, `untidy`, `crash`, `timeout` or `escape`; the last three are findings.

    `untidy` is a refusal in more than one line: what stood in the file was put into the message as it was.
    """

    verdict: str
    details: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether the reader must be put right."""
        return self.verdict in ("crash", "timeout", "escape")


class Trial:
    """A folder in which inputs are tried on one reader."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder = reader, folder
        self._origin = folder / "origin"
        self._work = folder / "work"
        self._origin.mkdir(parents=True)
        reader.prepare(self._origin)
        self.examples = {name: (self._origin / name).read_bytes() for name in reader.targets}
        self._fresh()
        reader.read(
            self._work
        )  # it must be taken; and what is imported on the way is imported now, not under watch

    def draw(self, random: Random) -> tuple[str, bytes]:
        """A target and hostile bytes for it."""
        name = random.choice(self.reader.targets)
        return name, mutate(random, self.examples[name], self.reader.dialect_of(name))

    def run(self, target: str, data: bytes) -> Outcome:
        """What the reader does with these bytes in place of the target."""
        self._fresh()
        path = self._work / target
        path.unlink()
        path.write_bytes(data)
        return self._read()

    def run_form(self, target: str, form: str) -> Outcome:
        """What the reader does where the target is no ordinary file."""
        self._fresh()
        path = self._work / target
        path.unlink()
        if form == "folder":
            path.mkdir()
        elif form == "loop":
            path.symlink_to(path.name)
        elif form == "dangling":
            path.symlink_to("nothing")
        elif form == "link to a folder":
            path.symlink_to("/")
        else:
            assert form == "missing", form
        return self._read()

    def _fresh(self) -> None:
        """The reader's files as they were; readers may write where they read."""
        if not self.reader.writes and self._work.is_dir():
            for name, example in self.examples.items():  # the only ones that a trial has changed
                path = self._work / name
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                elif path.is_symlink():
                    path.unlink()
                path.write_bytes(example)
            return
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._origin, self._work)

    def _read(self) -> Outcome:
        try:
            with _alarm(), watching(self.folder) as escapes:
                self.reader.read(self._work)
            outcome = Outcome("taken")
        except AuberError as error:
            outcome = _judge(error)
        except TooSlow:
            outcome = Outcome("timeout", f"more than {SECONDS:g} s")
        except Exception:
            outcome = Outcome("crash", traceback.format_exc(limit=-8))
        return Outcome("escape", f"changed {escapes[0]}") if escapes else outcome


def _judge(error: AuberError) -> Outcome:
    text = str(error)
    if not text or "\n" in text:
        return Outcome("untidy", f"the message must be one line, found {text!r:.300}")
    return Outcome("refused", text)


FORMS = ("folder", "loop", "dangling", "link to a folder", "missing")


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_watched: list[tuple[str, list[str]]] = []  # the folder that may change, and what else did
_hooked = False


@contextmanager
def watching(folder: Path) -> Iterator[list[str]]:
    """The paths outside of a folder that this process changes in the meantime."""
    global _hooked
    if not _hooked:  # a hook stays for good
        sys.addaudithook(_hook)
        _hooked = True
    _watched.append((f"{folder.resolve()}{os.sep}", []))
    # the bytecode of a module that is first imported now would be such a change, and none of the reader's
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield _watched[-1][1]
    finally:
        sys.dont_write_bytecode = before
        _watched.pop()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _watched:
        return
    if event == "open":
        path, _, flags = arguments
        # What does not follow a link cannot get out by one.
        opens = (
            isinstance(flags, int)
            and flags & _WRITING
            and not (flags & _NOT_FOLLOWING and _is_link(path))
        )
        changed = [path] if opens else []
    else:
        changed = [arguments[index] for index in _CHANGES.get(event, ())]
    for path in changed:
        if isinstance(path, (str, bytes, os.PathLike)):
            place = os.path.realpath(os.fsdecode(path))
            if not f"{place}{os.sep}".startswith(_watched[-1][0]) and place != os.devnull:
                _watched[-1][1].append(place)


def _is_link(path: object) -> bool:
    return isinstance(path, (str, bytes, os.PathLike)) and Path(os.fsdecode(path)).is_symlink()
