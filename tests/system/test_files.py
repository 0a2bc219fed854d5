from __future__ import annotations

import errno
import hashlib
import os

import pytest

from auber.system.files import (
    cut_torn_line,
    digest_file,
    is_refusal,
    sync_folder,
    write_json,
    write_text,
)


def test_a_file_replaces_the_previous_one(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("longer than the new content")
    write_json(path, {"é": [1]})
    assert path.read_text(encoding="utf-8") == '{\n  "é": [\n    1\n  ]\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_unless_told_to_follow(tmp_path):
    kept, link = tmp_path / "kept" / "a.json", tmp_path / "link.json"
    kept.parent.mkdir()
    kept.write_text("before")
    link.symlink_to(kept)
    write_json(link, 1, follow=True)
    assert (link.is_symlink(), kept.read_text()) == (True, "1\n")
    write_json(link, 2)
    assert (link.is_symlink(), link.read_text(), kept.read_text()) == (False, "2\n", "1\n")


def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "a.json", "{}", durable=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "after"), [("a\nb\n", "a\nb\n"), ("a\nb", "a\n"), ("a", ""), ("", "")]
)
def test_an_incomplete_last_line_is_removed(before, after, tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text(before)
    cut_torn_line(path)
    assert path.read_text() == after


def test_removing_a_line_of_a_missing_file_does_nothing(tmp_path):
    cut_torn_line(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_digest_file(tmp_path):
    (tmp_path / "file").write_bytes(b"weights")
    assert digest_file(tmp_path / "file") == hashlib.sha256(b"weights").hexdigest()


def test_sync_folder(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    sync_folder(tmp_path)
    assert synced == [tmp_path.stat().st_ino]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, True),
        (errno.EROFS, True),
        (errno.EDQUOT, True),
        (errno.EFBIG, True),
        (errno.ENAMETOOLONG, True),
        (errno.ENOENT, False),
        (None, False),
    ],
)
def test_a_full_or_closed_disk_is_a_refusal(code, expected):
    assert is_refusal(OSError(code, "message")) == expected
