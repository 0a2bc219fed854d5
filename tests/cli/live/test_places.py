from __future__ import annotations

import os

import pytest

from auber.cli.live.places import find_place
from auber.errors import RunError


def make(folder, *names):
    """A folder with files, or folders where the name ends so."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).touch()
    return folder


@pytest.mark.parametrize("name", ["run.json", "study.toml"])
def test_a_run_and_a_study_are_their_own_place(name, tmp_path):
    make(tmp_path, name)
    make(tmp_path / "below", "run.json")
    assert find_place(tmp_path) == tmp_path


def test_the_run_begun_last_is_the_newest(tmp_path):
    for began, name in ((20, "b"), (30, "a"), (10, "c")):
        make(tmp_path / name, "run.json")
        os.utime(tmp_path / name / "run.json", (began, began))
    assert find_place(tmp_path) == tmp_path / "a"
    os.utime(tmp_path / "c" / "run.json", (40, 40))
    assert find_place(tmp_path) == tmp_path / "c"


def test_what_is_just_being_made_is_waited_for(tmp_path):
    assert find_place(tmp_path / "none") is None
    assert find_place(tmp_path) is None
    make(tmp_path / "run", "stages/", "config.toml", ".lock")
    assert find_place(tmp_path / "run") is None
    assert find_place(tmp_path) is None  # the first of several


@pytest.mark.parametrize("names", [("thesis/",), ("thesis.pdf",), ("stages/", "thesis/")])
def test_something_else_is_refused(names, tmp_path):
    make(tmp_path, *names)
    with pytest.raises(
        RunError,
        match="must be the folder of a run, of several, or of a study, found something else;",
    ):
        find_place(tmp_path)


def test_a_file_is_no_place(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(
        RunError, match="x: must be the folder of a run, of several, or of a study, found something"
    ):
        find_place(tmp_path / "x")
