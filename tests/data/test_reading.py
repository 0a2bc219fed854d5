from __future__ import annotations

from pathlib import Path

import pytest

from auber.data.text_files import read_bytes, read_text
from auber.errors import TaskError


def test_a_byte_order_mark_goes_and_line_ends_stay(tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_bytes(b"\xef\xbb\xbfa\r\nb\xc2\x85c\n")
    assert read_text(file) == "a\r\nb\x85c\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ok\nna\xefve\n", r"rows\.tsv, line 2: byte 0xef is not UTF-8; save the file as UTF-8$"),
        (
            b"ok\nfine\nb\0d\n",
            r"rows\.tsv, line 3: holds a NUL character, so it is not a text file",
        ),
        ("wide".encode("utf-16"), r"rows\.tsv, line 1: byte 0xff is not UTF-8"),
    ],
)
def test_what_is_not_text_is_refused_with_its_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "rows.tsv"
    file.write_bytes(content)
    with pytest.raises(TaskError, match=message):
        read_text(file)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nothing\.csv: there is no such file; correct the path"):
        read_bytes(tmp_path / "nothing.csv")
    with pytest.raises(
        TaskError, match=r"cannot be read \(Is a directory\); a readable file is needed"
    ):
        read_bytes(tmp_path)
