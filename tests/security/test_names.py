"""Names in files cannot lead out of their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from auber.data import load_task
from auber.errors import ConfigError, RunError, TaskError
from auber.export.hub import check_name
from auber.run.folder import Run
from auber.run.records import RunIdentity
from auber.study.folder import StudyFolder
from auber.study.plan import make_study
from tests.small import small_config

IDENTITY = RunIdentity(kind="prune", model="m", task="t", method="auber")
OUTSIDE = ["../escaped", "/tmp/escaped", "a/../../escaped", "..", "mrpc\0", ".\\..\\x"]
STUDY = {"model": "m", "tasks": ["mrpc"], "methods": ["original"], "seeds": [0]}


@pytest.mark.parametrize("name", OUTSIDE)
def test_folders_of_a_study_have_known_names(name):
    for key, value in (
        *((key, [name]) for key in ("tasks", "methods", "protocols")),
        ("tasks", {name: {}}),
    ):
        with pytest.raises(ConfigError, match="Unknown (task|method|protocol) "):
            make_study({**STUDY, key: value})


@pytest.mark.parametrize("name", [*OUTSIDE, "", ".", "-rf", "~", "a b", "x" * 101])
def test_names_of_your_own_rows_are_folder_names(name):
    with pytest.raises(ConfigError, match="must have other names for your own rows than"):
        make_study({**STUDY, "tasks": {name: {"train": "a.csv", "dev": "b.csv"}}})


@pytest.mark.parametrize("seed", ["../x", -1, 0.5, True, 2**64])
def test_seeds_are_numbers(seed):
    with pytest.raises(ConfigError, match="'seeds.0' must be "):
        make_study({**STUDY, "seeds": [seed]})


def test_all_runs_of_a_study_are_in_its_folder(tmp_path):
    methods = ["auber", "random", "original"]
    changes = {"model": "../../m", "methods": methods, "seeds": [2**63 - 1], "draws": 3}
    study, folder = make_study({**STUDY, **changes}), StudyFolder(tmp_path / "study")
    for block in study.blocks():
        for run in study.runs(block):
            path = folder.run_path(block, run).resolve()
            assert path.is_relative_to((tmp_path / "study").resolve())


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_unknown_task_is_refused(name, tmp_path):
    with pytest.raises(TaskError, match="Unknown task "):
        load_task(name, data=tmp_path)


@pytest.mark.parametrize("name", ["../escaped", "a/b/c", "/etc/x", "a b", "--x", "a..b", "x.git"])
def test_a_pushed_name_is_one_the_hub_accepts(name):
    with pytest.raises(ConfigError, match="--push must be NAME or OWNER/NAME"):
        check_name(name)


def test_a_run_does_not_write_into_other_folders(tmp_path):
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "somebody")
    for name in ("somebody", "link"):
        message = f"{name}: must be a new or an empty folder; choose another folder for --out$"
        with pytest.raises(RunError, match=message):
            Run(tmp_path / name, IDENTITY, small_config())
    assert [path.name for path in Path(tmp_path / "somebody").iterdir()] == ["notes.txt"]
