"""A study is of certain weights, and no others are mixed with them."""

from __future__ import annotations

import shutil

import pytest
import torch

from auber.errors import ConfigError, RunError
from auber.models import checkpoint
from auber.study import State, StudyFolder, read_study, run_study
from auber.study import weights as study_weights
from auber.study.plan import Block
from tests.small import small_start
from tests.study.tiny import Notes, tiny_study

BLOCK = Block("agreement", "seen", 0)


def studied(model, **changes):
    return tiny_study(model, **{"methods": ["original"], **changes})


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A model of the same last name with other weights."""
    changed, tokenizer = small_start(bare=True)
    with torch.no_grad():
        next(changed.parameters()).add_(0.5)
    folder = tmp_path_factory.mktemp("other") / "tiny"
    checkpoint.save(changed, tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("weights") / "study"
    run_study(studied(model), StudyFolder(place), Notes())
    return place


@pytest.fixture
def folder(finished, tmp_path):
    """A copy to go on in."""
    return StudyFolder(shutil.copytree(finished, tmp_path / "study"))


def record_of(folder):
    return read_study(folder.path / "study.toml")


def test_the_record_has_the_digest_of_the_bare_encoder(model, folder):
    encoder = checkpoint.load_classifier(model, num_labels=2, seed=9).model.base_model
    assert record_of(folder).weights == checkpoint.weights_digest(encoder)


def test_other_weights_under_the_same_name_are_refused(other, folder):
    message = (
        f"^{folder.path}: holds another study: model 'tiny' has other weights than it had; use what it had or "
        "another --out$"
    )
    with pytest.raises(RunError, match=message):
        run_study(studied(other, seeds=[0, 1]), folder, Notes())
    assert record_of(folder).seeds == (0,)


def test_the_same_weights_elsewhere_go_on(model, folder, tmp_path):
    moved = shutil.copytree(model, tmp_path / "moved" / "tiny")
    outcomes = run_study(studied(moved, seeds=[0, 1]), folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}


def test_who_only_looks_reads_no_weights(other, folder, monkeypatch):
    monkeypatch.setattr(study_weights, "_load", None)
    folder.check(studied(other))
    assert {outcome.state for outcome in run_study(studied(other), folder, Notes())} == {
        State.COMPLETE
    }


def forget_weights(folder):
    """Make the record one that an earlier version wrote."""
    record = folder.path / "study.toml"
    record.write_text(
        "".join(
            line
            for line in record.read_text().splitlines(keepends=True)
            if not line.startswith("weights")
        )
    )
    assert record_of(folder).weights is None


def test_an_older_record_gets_the_digest_where_its_runs_began_with_these_weights(
    model, other, folder
):
    digest = record_of(folder).weights
    forget_weights(folder)
    run_study(studied(other, seeds=[0, 1]), folder, Notes())
    assert record_of(folder).weights is None, "the first start began with others"
    run_study(studied(model, seeds=[0, 2]), folder, Notes())
    assert record_of(folder).weights == digest


def test_weights_that_a_study_file_names(model, tmp_path):
    message = "^study: weights must be those of the model, found abc and in 'tiny' [0-9a-f]{32}; give the model that was meant"
    with pytest.raises(ConfigError, match=message):
        run_study(studied(model, weights="abc"), StudyFolder(tmp_path / "study"), Notes())
    assert not (tmp_path / "study").exists()
