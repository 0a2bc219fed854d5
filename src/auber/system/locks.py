"""One process at a time in a folder: a lock file that names its owner.

The file (`.lock` in a run folder, `.claim` in the folder of a study's block) is locked with `flock`
where the file system supports it. It records process, host and time. Its owner deletes it at the
end. If the owner was killed, the next process on the same host takes the lock over. A process on
another host cannot be checked, so its lock is respected until the user deletes the file. A
truncated or damaged file has no owner.

filelock is not used: it does not delete the file, keeps no readable owner beside `flock`, and does
not distinguish owners on other hosts.
"""

from __future__ import annotations

import errno
import os
import platform
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import ConfigDict, Field, ValidationError

from auber.errors import RunError
from auber.system.records import Name, Record

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # the file system has no locks
_SAME_START = 2.0  # seconds by which two readings of a process's start may differ
_LONGEST = 4096  # bytes of a lock file; ours have a few hundred
_LARGEST_PROCESS = 2**31 - 1
_LATEST = 1e11  # seconds since 1970; within the range of calendars

Moment = Annotated[float, Field(ge=0, lt=_LATEST)]


class HeldError(RunError):
    """Another process uses a folder, or may use it; `reason` does not name the folder."""

    def __init__(self, folder: Path, reason: str, remedy: str = "") -> None:
        super().__init__(f"{folder}: {reason}{remedy}")
        self.reason = reason


class Holder(Record):
    """The owner of a lock. Old versions wrote neither `since` nor `after_boot`."""

    model_config = ConfigDict(extra="ignore")  # later versions may write more

    process: int = Field(gt=0, le=_LARGEST_PROCESS)
    started: Moment  # distinguishes it from a later process with the same number
    host: Annotated[Name, Field(max_length=255)]
    since: Moment | None = None  # when it took the lock
    after_boot: Moment | None = None  # seconds from the start of the machine to its own

    @property
    def is_here(self) -> bool:
        """Return whether it is a process of this machine."""
        return self.host == platform.node()

    @property
    def is_running(self) -> bool:
        """Return whether it is known to run; never true for another machine."""
        return self.is_here and is_alive(self.process, self.started, self.after_boot)

    def __str__(self) -> str:
        if self.since is None:
            return f"process {self.process} on {self.host}"
        taken = datetime.fromtimestamp(self.since).astimezone().isoformat(" ", "seconds")
        return f"process {self.process} on {self.host} (since {taken})"


class FolderLock:
    """Hold the lock `name` of a folder until `release`; raise `HeldError` if it is taken.

    `left_by` is the killed process that the lock was taken over from.
    """

    def __init__(self, folder: Path, name: str = LOCK) -> None:
        self._folder, self._path = folder, folder / name
        self.left_by: Holder | None = None
        try:
            descriptor, is_locked = self._open()
            # A lock that is garbage-collected is released.
            self._close = weakref.finalize(self, os.close, descriptor)
            self._claim(descriptor, is_locked)
        except OSError as error:
            raise RunError(
                f"{self._path}: cannot be written ({error.strerror}); nothing was changed: make "
                "room there or make the folder writable"
            ) from error

    def release(self) -> None:
        """Delete the lock file and unlock it."""
        if self._close.alive:
            self._path.unlink(missing_ok=True)
            self._close()

    def _open(self) -> tuple[int, bool]:
        """Return the open file, and whether it is locked; some file systems have no locks."""
        # Do not follow a symbolic link: its target would be overwritten.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        while True:
            descriptor = os.open(self._path, flags, 0o666)
            try:
                is_locked = self._lock(descriptor)
                # The previous owner may have deleted the file before we locked it.
                if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    return descriptor, is_locked
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _lock(self, descriptor: int) -> bool:
        """Lock the file; return False if the file system has no locks."""
        if fcntl is None:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # Until the owner has written its name, the file may hold that of an earlier one.
            holder = read_holder(self._folder, self._path.name)
            if holder is not None and holder.is_here and not holder.is_running:
                holder = None
            raise self._held(holder) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False
        return True

    def _claim(self, descriptor: int, is_locked: bool) -> None:
        """Write our name unless the file names an owner that may still run."""
        holder = read_holder(self._folder, self._path.name)
        if holder is not None and not holder.is_here:
            raise HeldError(
                self._folder,
                f"locked by {holder}; whether that process has ended cannot be checked from here: "
                f"make sure that it has, delete {self._path}, and start again",
            )
        if holder is not None and not is_locked and holder.is_running:
            raise self._held(holder)
        self.left_by = holder
        started, after_boot = start_of(psutil.Process())
        own = Holder(
            process=os.getpid(),
            started=started,
            host=platform.node(),
            since=round(time.time(), 3),
            after_boot=after_boot,
        )
        os.ftruncate(descriptor, 0)
        os.write(descriptor, own.model_dump_json().encode())

    def _held(self, holder: Holder | None) -> HeldError:
        reason = f"in use by {holder or 'another process'}"
        return HeldError(
            self._folder, reason, "; wait for it or stop it, or choose another folder for --out"
        )


@contextmanager
def held(folder: Path, name: str = LOCK, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder inside the context.

    Raise `HeldError` if it is taken and is not released within `wait` seconds.
    """
    ends = time.monotonic() + wait
    while True:
        try:
            lock = FolderLock(folder, name)
            break
        except HeldError:
            if time.monotonic() >= ends:
                raise
        time.sleep(0.05)
    try:
        yield
    finally:
        lock.release()


def start_of(process: psutil.Process) -> tuple[float, float]:
    """Return the start of a process in seconds since 1970 and since the start of the machine.

    Setting the clock changes one of them; which one depends on the system.
    """
    started = float(process.create_time())
    return started, max(0.0, round(started - psutil.boot_time(), 3))


def is_alive(number: int, started: float | None = None, after_boot: float | None = None) -> bool:
    """Return whether a process runs, and is not a later one with the same number.

    It is the same process if either reading of its start (`start_of`) is unchanged: the clock may
    have been set in between. A zombie counts as ended.
    """
    if not 0 < number <= _LARGEST_PROCESS:
        return False
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        readings = zip(start_of(process), (started, after_boot), strict=True)
        gaps = [abs(now - then) for now, then in readings if then is not None]
        return not gaps or min(gaps) < _SAME_START
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # it runs, but belongs to another user


def drop_foreign_lock(folder: Path) -> None:
    """Delete a lock of another machine; the caller has made sure that its owner has ended."""
    holder = read_holder(folder)
    if holder is not None and not holder.is_here:
        (folder / LOCK).unlink(missing_ok=True)


def read_holder(folder: Path, name: str = LOCK) -> Holder | None:
    """Return the owner that a lock names, running or not; None without one or if damaged."""
    try:
        with (folder / name).open("rb") as file:
            return Holder.model_validate_json(file.read(_LONGEST))
    except (OSError, ValidationError):
        return None
