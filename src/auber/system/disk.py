"""Disks that take nothing more: full, over a quota, read-only, closed to us or short of letters for a name.

Such an `OSError` is no bug: whoever runs the program makes room, or chooses another place. Where files are written it is
turned into one line that says what is kept; the command line catches what is left.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_REFUSALS = {
    getattr(errno, name)
    for name in ("EACCES", "EDQUOT", "EFBIG", "EIO", "ENAMETOOLONG", "ENOSPC", "EPERM", "EROFS")
    if hasattr(errno, name)  # not every system has quotas
}


def is_refusal(error: OSError) -> bool:
    """Whether an error says that a disk did not take what was written."""
    return error.errno in _REFUSALS


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder onto the disk, so that a rename outlives a power cut."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
