from __future__ import annotations

import pytest

from auber.study.folder import StudyFolder
from auber.study.runner import run_study
from tests.study.tiny import Notes, tiny_model_folder, tiny_study


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Return the folder of a tiny model."""
    return tiny_model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def unbroken(model, tmp_path_factory):
    """Do a study of two seeds in this process; return (study, its folder, notes)."""
    study = tiny_study(model, seeds=[0, 1])
    folder, notes = tmp_path_factory.mktemp("unbroken") / "study", Notes()
    run_study(study, StudyFolder(folder), notes, command="auber study tiny.toml")
    return study, folder, notes
