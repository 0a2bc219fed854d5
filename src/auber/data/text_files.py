"""The text of a file of rows, or a `TaskError` that says where it is not text."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from auber.errors import TaskError


def read_bytes(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TaskError(f"{path}: there is no such file; correct the path") from error
    except OSError as error:
        raise TaskError(
            f"{path}: cannot be read ({error.strerror}); a readable file is needed"
        ) from error


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, without a byte order mark; line ends are left as they are."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TaskError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    nul = text.find("\0")
    if nul >= 0:
        raise TaskError(
            f"{path}, line {text.count(chr(10), 0, nul) + 1}: holds a NUL character, so it is not a text file; "
            "save it as UTF-8 text"
        )
    return text


def read_lines(path: Path, newline: str) -> Generator[str, None, None]:
    """The lines of a UTF-8 file as they are asked for, line ends included; `newline` is what `open` takes for it.

    What is not text is found when it is met, and told in the words of `read_text`.
    """
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            for line in file:
                if "\0" in line:
                    break
                yield line
            else:
                return
    except (OSError, UnicodeDecodeError):
        pass  # the whole file tells what is wrong with it, and where
    read_text(path)
