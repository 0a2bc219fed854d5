"""One process at a time in a run's folder: a lock that names who holds it.

The lock is the file `.lock`. It is held with the file system's own lock where there is one, and says which process holds it,
since when, and on which machine. Who ends well takes the file away. A killed process leaves it: on the same machine it is
seen to be gone, and its lock is taken over. Whether a process on another machine is gone cannot be seen, so its lock is
respected until somebody who knows deletes the file.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from auber.errors import RunError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # what a file system without locks answers
_SAME_START = 2.0  # seconds two readings of when a process began may differ by


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    process: int
    started: float  # seconds since 1970: tells it from a later process of the same number
    host: str

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == platform.node()

    @property
    def is_running(self) -> bool:
        """Whether it still runs; of a process of another machine nothing is known."""
        return self.is_here and is_alive(self.process, self.started)

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class FolderLock:
    """Holds the lock of a folder from its making to `release`; `left_by` is the killed process it was taken over from."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / LOCK
        self.left_by: Holder | None = None
        try:
            descriptor, is_guarded = self._open()
            self._close = weakref.finalize(self, os.close, descriptor)  # whoever forgets the lock has let it go
            self._claim(descriptor, is_guarded)
        except OSError as error:
            raise RunError(
                f"{self._path}: cannot be written ({error.strerror}), so the run cannot go on here; nothing was changed: "
                "make room there or make the folder writable"
            ) from error

    def release(self) -> None:
        """Let others in."""
        if self._close.alive:
            self._path.unlink(missing_ok=True)
            self._close()

    def _open(self) -> tuple[int, bool]:
        """The file, locked, and whether the file system keeps it so.

        That it still stands under its name is looked at again, for its last holder may just have taken it away.
        """
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                is_guarded = self._lock(descriptor)
                if self._path.exists() and os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    return descriptor, is_guarded
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _lock(self, descriptor: int) -> bool:
        """Lock the file; False where the file system cannot. Raise `RunError` where another process has it."""
        if fcntl is None:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._held(_read(self._path)) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False
        return True

    def _claim(self, descriptor: int, is_guarded: bool) -> None:
        """Write our name, unless that of somebody who may still be at work stands there."""
        holder = _read(self._path)
        if holder is not None and not holder.is_here:
            raise RunError(
                f"{self._folder}: {holder} was at work in it and did not sign off; whether it has ended cannot be seen from "
                f"here: make sure that it has, delete {self._path}, and start again"
            )
        if holder is not None and not is_guarded and holder.is_running:
            raise self._held(holder)
        self.left_by = holder
        own = Holder(os.getpid(), psutil.Process().create_time(), platform.node())
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(asdict(own)).encode())

    def _held(self, holder: Holder | None) -> RunError:
        who = holder or "another process"
        return RunError(f"{self._folder}: {who} is at work in it; wait for it or stop it, or choose another --out")


def is_alive(number: int, started: float | None = None) -> bool:
    """Whether a process of this number is here and, where its start is known, no later one of the same number.

    One that has ended and whose parent has not asked after it yet, a zombie, is gone.
    """
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(float(process.create_time()) - started) < _SAME_START
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # it is somebody else's, and it is there


def drop_foreign_lock(folder: Path) -> None:
    """Delete the lock that a process of another machine left: for who has made sure that it is gone."""
    holder = _read(folder / LOCK)
    if holder is not None and not holder.is_here:
        (folder / LOCK).unlink(missing_ok=True)


def _read(path: Path) -> Holder | None:
    """Who a lock names; None where it is not there, names nobody, or its writing was cut."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
