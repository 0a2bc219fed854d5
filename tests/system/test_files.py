from __future__ import annotations

import errno

import pytest

from auber.system.files import (
    cut_torn_line,
    is_refusal,
    write_json,
    write_text,
)


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
    cut_torn_line(tmp_path / "none")


@pytest.mark.parametrize("name", ["ENOSPC", "EROFS", "EDQUOT", "EFBIG", "ENAMETOOLONG"])
def test_a_full_or_closed_disk_is_a_refusal(name):
    assert is_refusal(OSError(getattr(errno, name), "message"))
    assert not is_refusal(OSError(errno.ENOENT, "message"))
