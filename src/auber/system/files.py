"""Files that a kill cannot leave in halves: written beside their place and renamed into it, or cut where they are torn."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from auber.system.disk import sync_folder


def write_text(path: Path, text: str, *, durable: bool = False, follow: bool = False) -> None:
    """Write a file whole or not at all; `durable`: it is on the disk, and not only on its way there, when this returns.

    A link in its place is replaced, for in a folder that came from elsewhere it may lead anywhere. `follow` is for a file that
    a person has named: what the link leads to is written, and the link stays.
    """
    if follow:
        path = Path(os.path.realpath(path))
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
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
    """Write JSON whole or not at all; as `write_text`."""
    write_text(
        path, json.dumps(data, indent=2, ensure_ascii=False) + "\n", durable=durable, follow=follow
    )


def cut_torn_line(path: Path) -> None:
    """Cut a last line whose end never reached the file, so that the next one starts on its own."""
    if path.is_file():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)


def digest_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
