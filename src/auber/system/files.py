"""Write files atomically and durably, and classify disk errors."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

_REFUSALS = {
    getattr(errno, name)
    for name in ("EACCES", "EDQUOT", "EFBIG", "EIO", "ENAMETOOLONG", "ENOSPC", "EPERM", "EROFS")
    if hasattr(errno, name)  # not every system has quotas
}


def is_refusal(error: OSError) -> bool:
    """Return whether the disk refused to write: full, over quota, read-only or not permitted.

    The user can correct this, so it is reported in one line and not as a bug.
    """
    return error.errno in _REFUSALS


def write_text(path: Path, text: str, *, durable: bool = False, follow: bool = False) -> None:
    """Write a file atomically; `durable` waits until it is on the disk.

    A symbolic link at `path` is replaced, because in a folder from elsewhere it may point anywhere.
    Pass `follow` for a path that the user gave: the target of the link is written instead.
    """
    place = Path(os.path.realpath(path)) if follow else path
    write_bytes(place, text.encode("utf-8"), durable=durable)


def write_bytes(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file atomically; see `write_text`."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, data: Any, *, durable: bool = False, follow: bool = False) -> None:
    """Write JSON atomically; see `write_text`."""
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    write_text(path, text, durable=durable, follow=follow)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, so that a rename survives a power failure."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line, so that the next line can be appended."""
    if path.is_file():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
