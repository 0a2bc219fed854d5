from __future__ import annotations

import json

import pytest

from auber.cli.live.files import Tail, read_object


@pytest.mark.parametrize("text", ["", '{"a": ', "[1]", "[" * 100_000])
def test_what_is_not_whole_is_nothing_yet(tmp_path, text):
    (tmp_path / "f.json").write_text(text)
    assert read_object(tmp_path / "f.json") is None


def test_an_object(tmp_path):
    assert read_object(tmp_path / "f.json") is None
    (tmp_path / "f.json").write_text('{"a": 1}')
    assert read_object(tmp_path / "f.json") == {"a": 1}


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_each_line_is_handed_out_once_and_whole(tmp_path):
    path, tail = tmp_path / "lines", Tail(tmp_path / "lines")
    assert tail.look() == []
    append(path, '{"n": 1}\n{"n": 2}\n{"n"')
    assert tail.look() == [{"n": 1}, {"n": 2}]
    assert tail.look() == []
    append(path, ": 3}\n")
    assert tail.look() == [{"n": 3}]
    assert not tail.restarted


def test_lines_that_hold_no_object_are_passed_over(tmp_path):
    append(tmp_path / "lines", 'nonsense\n3\n{"n": 1}\n')
    assert Tail(tmp_path / "lines").look() == [{"n": 1}]


def test_a_torn_line_that_is_cut_off_costs_nothing(tmp_path):
    path, tail = tmp_path / "lines", Tail(tmp_path / "lines")
    append(path, '{"n": 1}\n{"torn"')
    assert tail.look() == [{"n": 1}]
    path.write_text('{"n": 1}\n')  # as a run does when it goes on
    append(path, '{"n": 2}\n')
    assert tail.look() == [{"n": 2}]
    assert not tail.restarted


@pytest.mark.parametrize("replace", [True, False], ids=["another file", "a shorter one"])
def test_a_file_that_begins_anew_is_read_anew(tmp_path, replace):
    path, tail = tmp_path / "lines", Tail(tmp_path / "lines")
    path.write_text('{"n": 1}\n{"n": 2}\n')
    tail.look()
    new = tmp_path / "new" if replace else path
    new.write_text(json.dumps({"n": 9, **({"longer": "than before"} if replace else {})}) + "\n")
    new.replace(path)
    assert [entry["n"] for entry in tail.look()] == [9]
    assert tail.restarted
    path.unlink()
    assert tail.look() == []
    assert tail.restarted
