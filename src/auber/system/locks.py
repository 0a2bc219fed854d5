"""One process at a time in a folder: a lock that names who holds it.

The lock is a file, `.lock` in a run's folder and `.claim` in that of a study's block. It is held with the file system's own
lock where there is one, and says which process holds it, on which machine and since when. Who ends well takes the file away. A
killed process leaves it: on the same machine it is seen to be gone, and its lock is taken over. Whether a process on another
machine is gone cannot be seen, so its lock is respected until somebody who knows deletes the file. A file that names nobody, cut
or damaged, is nobody's.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

import psutil

from auber.errors import RunError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # what a file system without locks answers
_SAME_START = 2.0  # seconds two readings of when a process began may differ by
_NAMES_ITSELF = 1.0  # seconds a process that has just taken a lock may need to write its name
_LONGEST = 4096  # bytes of a lock; ours have some hundred
_LONGEST_HOST = 255  # characters; no system takes longer names
_LARGEST_PROCESS = 2**31 - 1
_LATEST = 1e11  # seconds since 1970; later than any lock, and earlier than what calendars end at


class HeldError(RunError):
    """Another process is at work in a folder, or may be; `reason` says so without naming the folder."""

    def __init__(self, folder: Path, reason: str, remedy: str = "") -> None:
        super().__init__(f"{folder}: {reason}{remedy}")
        self.reason = reason


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    process: int
    started: float  # seconds since 1970: tells it from a later process of the same number
    host: str
    since: float | None = (
        None  # when it took the lock; None where an earlier version of this package wrote it
    )
    after_boot: float | None = None  # seconds from the machine's start to its own; None likewise

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == platform.node()

    @property
    def is_running(self) -> bool:
        """Whether it still runs; of a process of another machine nothing is known."""
        return self.is_here and is_alive(self.process, self.started, self.after_boot)

    def __str__(self) -> str:
        if self.since is None:
            return f"process {self.process} on {self.host}"
        taken = datetime.fromtimestamp(self.since).astimezone().isoformat(" ", "seconds")
        return f"process {self.process} on {self.host} (since {taken})"


class FolderLock:
    """Holds the lock `name` of a folder from its making to `release`; `left_by` is the killed process it was taken over from.

    `HeldError` where another process has it.
    """

    def __init__(self, folder: Path, name: str = LOCK) -> None:
        self._folder, self._path = folder, folder / name
        self.left_by: Holder | None = None
        try:
            descriptor, is_guarded = self._open()
            self._close = weakref.finalize(
                self, os.close, descriptor
            )  # whoever forgets the lock has let it go
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
        # A link in its place is not followed: what it leads to would be overwritten.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        while True:
            descriptor = os.open(self._path, flags, 0o666)
            try:
                is_guarded = self._lock(descriptor)
                if self._stands_under_its_name(descriptor):
                    return descriptor, is_guarded
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _stands_under_its_name(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _lock(self, descriptor: int) -> bool:
        """Lock the file; False where the file system cannot. Raise `HeldError` where another process has it."""
        if fcntl is None:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._held(_wait_for_name(descriptor)) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False
        return True

    def _claim(self, descriptor: int, is_guarded: bool) -> None:
        """Write our name, unless that of somebody who may still be at work stands there."""
        holder = _parse(_content(descriptor))
        if holder is not None and not holder.is_here:
            raise HeldError(
                self._folder,
                f"{holder} was at work in it and did not sign off; whether it has ended cannot be seen from here: make sure that "
                f"it has, delete {self._path}, and start again",
            )
        if holder is not None and not is_guarded and holder.is_running:
            raise self._held(holder)
        self.left_by = holder
        started, after_boot = start_of(psutil.Process())
        own = Holder(os.getpid(), started, platform.node(), round(time.time(), 3), after_boot)
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(asdict(own)).encode())

    def _held(self, holder: Holder | None) -> HeldError:
        who = holder or "another process"
        return HeldError(
            self._folder,
            f"{who} is at work in it",
            "; wait for it or stop it, or choose another --out",
        )


@contextmanager
def held(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Hold the lock of a folder inside the context; `HeldError` where another process has it."""
    lock = FolderLock(folder, name)
    try:
        yield
    finally:
        lock.release()


def start_of(process: psutil.Process) -> tuple[float, float]:
    """When a process began: in seconds since 1970, and since the machine's start.

    Which of them moves when somebody sets the clock depends on the system; one stays.
    """
    started = float(process.create_time())
    return started, max(0.0, round(started - psutil.boot_time(), 3))


def is_alive(number: int, started: float | None = None, after_boot: float | None = None) -> bool:
    """Whether a process of this number is here and, where its start is known, no later one of the same number.

    It is the same one if either reading of its start (`start_of`) is as it was, for the clock may have been set since. One that
    has ended and whose parent has not asked after it yet, a zombie, is gone.
    """
    if not 0 < number <= _LARGEST_PROCESS:
        return False
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        recorded = [
            (now, then)
            for now, then in zip(start_of(process), (started, after_boot), strict=True)
            if then is not None
        ]
        return not recorded or any(abs(now - then) < _SAME_START for now, then in recorded)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # it is somebody else's, and it is there


def drop_foreign_lock(folder: Path) -> None:
    """Delete the lock that a process of another machine left: for who has made sure that it is gone."""
    holder = read_holder(folder)
    if holder is not None and not holder.is_here:
        (folder / LOCK).unlink(missing_ok=True)


def read_holder(folder: Path, name: str = LOCK) -> Holder | None:
    """Who the lock of a folder names, running or not; None where there is none, or it names nobody."""
    try:
        with (folder / name).open("rb") as file:
            return _parse(file.read(_LONGEST))
    except OSError:
        return None


def _wait_for_name(descriptor: int) -> Holder | None:
    """Who holds a lock that is taken; None if that does not show for a while.

    Between taking a lock and writing its name into it a process needs a moment, in which an older name may stand there.
    """
    ends = time.monotonic() + _NAMES_ITSELF
    while True:
        holder = _parse(_content(descriptor))
        if holder is not None and (holder.is_running or not holder.is_here):
            return holder
        if time.monotonic() > ends:
            return None
        time.sleep(0.02)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, _LONGEST)


def _parse(content: bytes) -> Holder | None:
    """The holder that is written there; None where its writing was cut, or what stands there is no holder."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    process, started, host, since, after_boot = (data.get(field.name) for field in fields(Holder))
    if type(process) is not int or not 0 < process <= _LARGEST_PROCESS or not is_moment(started):
        return None
    if not isinstance(host, str) or len(host) > _LONGEST_HOST or not host.isprintable():
        return None
    if any(found is not None and not is_moment(found) for found in (since, after_boot)):
        return None
    return Holder(process, started, host, since, after_boot)


def is_moment(found: Any) -> TypeGuard[float]:
    """Whether what a file holds are seconds since 1970."""
    return type(found) in (int, float) and 0 <= found < _LATEST
