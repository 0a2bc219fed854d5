from __future__ import annotations

import hashlib

import pytest

from auber.system.files import cut_torn_line, digest_file, write_json, write_text


def test_a_file_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("longer than what comes")
    write_json(path, {"é": [1]})
    assert path.read_text(encoding="utf-8") == '{\n  "é": [\n    1\n  ]\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_where_a_person_named_it_and_replaced_elsewhere(tmp_path):
    kept, link = tmp_path / "kept" / "a.json", tmp_path / "link.json"
    kept.parent.mkdir()
    kept.write_text("before")
    link.symlink_to(kept)
    write_json(link, 1, follow=True)
    assert (link.is_symlink(), kept.read_text()) == (True, "1\n")
    write_json(link, 2)
    assert (link.is_symlink(), link.read_text(), kept.read_text()) == (False, "2\n", "1\n")


def test_a_file_that_could_not_be_written_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "a.json", "{}", durable=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "after"), [("a\nb\n", "a\nb\n"), ("a\nb", "a\n"), ("a", ""), ("", "")]
)
def test_a_line_without_its_end_is_cut_off(before, after, tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text(before)
    cut_torn_line(path)
    assert path.read_text() == after


def test_where_there_is_no_file_nothing_is_torn(tmp_path):
    cut_torn_line(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_the_digest_is_of_the_bytes(tmp_path):
    (tmp_path / "file").write_bytes(b"weights")
    assert digest_file(tmp_path / "file") == hashlib.sha256(b"weights").hexdigest()
