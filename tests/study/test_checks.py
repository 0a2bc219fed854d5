"""What is checked before a study begins, and which rows and weights it belongs to."""

from __future__ import annotations

import csv
import re
import shutil

import pytest
import torch

from auber.errors import CheckpointError, ConfigError, RunError, TaskError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.report.results_file import save_results
from auber.study.folder import StudyFolder
from auber.study.runner import _outline, run_study
from tests.report.results import collect
from tests.small import small_start, small_task
from tests.study.tiny import QUICK, Notes, tiny_study
from tests.tiny_models import MODEL_TYPES, tiny_model, tiny_tokenizer

pytestmark = pytest.mark.usefixtures("young_garbage")  # a study collects after each run

FILMS = {"train": "a.csv", "dev": "b.csv", "text": "said", "label": "y"}
DIGEST = "9f" * 32


def write_rows(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("said", "y"), *zip(rows.first, rows.labels, strict=True)])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, with files of rows."""
    task = small_task()
    write_rows(tmp_path / "a.csv", task.train)
    write_rows(tmp_path / "b.csv", task.dev)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def films_study(model, films=None, **changes):
    tables = {"tasks": {"films": films or FILMS}, "methods": ["original"]}
    return tiny_study(model, **{**tables, **changes})


def states(study, folder, **options):
    return {str(outcome.state) for outcome in run_study(study, folder, Notes(), **options)}


# --- models and settings --------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_outline_of_a_model_has_its_shape(model_type, tmp_path):
    model = tiny_model(model_type)
    remove(model, PruningPlan({0: (1,)}))
    checkpoint.save(model, tiny_tokenizer(), tmp_path / "model")
    outline, _ = _outline(tiny_study(tmp_path / "model"), small_task())
    assert {parameter.device.type for parameter in outline.parameters()} == {"meta"}, "no weights"
    found, wanted = encoder_of(outline), encoder_of(model)
    for name in ("num_layers", "removed", "most_tokens"):
        assert getattr(found, name) == getattr(wanted, name)
    for layer in range(wanted.num_layers):
        assert found.present(layer) == wanted.present(layer)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"model": "./nothing"},
            CheckpointError,
            "^./nothing: there is no such folder; give the one",
        ),
        ({"model": "tiny", "tasks": ["rte"], "data": "nothing"}, TaskError, "nothing"),
        (
            {"model": "tiny", "settings": {**QUICK, "search.layers": "0,7"}},
            ConfigError,
            r"^agreement seen start: search.layers must name layers of the model, which has 3",
        ),
        ({"model": "tiny", "weights": "abc"}, ConfigError, "^study: weights must be the digest of"),
        (
            {"model": "tiny", "settings": {**QUICK, "search.heads": 2}},
            ConfigError,
            "^agreement seen auber: search.heads must be 0 under protocol seen",
        ),
    ],
)
def test_a_wrong_study_is_refused_before_anything_is_made(
    model, tmp_path, monkeypatch, changes, error, message
):
    monkeypatch.chdir(model.parent)
    with pytest.raises(error, match=message):
        run_study(tiny_study(**changes), StudyFolder(tmp_path / "study"), Notes())
    assert not (tmp_path / "study").exists()


# --- weights --------------------------------------------------------------------------------------


def test_other_weights_under_the_same_name_are_refused(model, tmp_path):
    folder = StudyFolder(tmp_path / "study")
    run_study(tiny_study(model, methods=["original"]), folder, Notes())
    encoder = checkpoint.load_classifier(model, num_labels=2, seed=9).model.base_model
    assert folder.recorded().weights == checkpoint.weights_digest(encoder)

    changed, tokenizer = small_start(bare=True)
    with torch.no_grad():
        next(changed.parameters()).add_(0.5)
    checkpoint.save(changed, tokenizer, tmp_path / "other" / "tiny")
    other = tmp_path / "other" / "tiny"
    message = f"^{folder.path}: holds another study: model 'tiny' has other weights than it had; "
    with pytest.raises(RunError, match=message):
        run_study(tiny_study(other, methods=["original"], seeds=[0, 1]), folder, Notes())
    assert folder.recorded().seeds == (0,)
    assert states(tiny_study(other, methods=["original"]), folder) == {"complete"}, "nothing to do"

    moved = shutil.copytree(model, tmp_path / "moved" / "tiny")
    assert states(tiny_study(moved, methods=["original"], seeds=[0, 1]), folder) == {"complete"}


# --- rows of your own -----------------------------------------------------------------------------


def test_other_rows_are_refused_and_the_same_rows_elsewhere_go_on(model, place):
    folder = StudyFolder(place / "o")
    run_study(films_study(model), folder, Notes())
    save_results(folder.path, place / "films.json")
    assert {key[2] for key in collect(place / "films.json").wanted} == {"films"}

    write_rows(place / "b.csv", small_task().dev.select(range(12)))
    message = "o: holds another study: task films has other rows than it had; restore that or"
    for seeds in ([0, 1], [0]):  # also if nothing is left to do
        with pytest.raises(RunError, match=message):
            run_study(films_study(model, seeds=seeds), folder, Notes())
    write_rows(place / "b.csv", small_task().dev)
    with pytest.raises(RunError, match="task films has other rows"):  # another metric, other scores
        run_study(films_study(model, {**FILMS, "metric": "f1"}, seeds=[0, 1]), folder, Notes())

    (place / "moved").mkdir()
    (place / "b.csv").rename(place / "moved" / "b.csv")
    (place / "a.csv").rename(place / "blob")
    (place / "moved" / "a.csv").symlink_to("../blob")  # read by the suffix of the link
    with pytest.raises(TaskError, match=r"^tasks.films: a.csv: there is no such file; correct the"):
        run_study(films_study(model, seeds=[0, 1]), folder, Notes())
    assert states(films_study(model), folder) == {"complete"}, "nothing to do"
    films = {**FILMS, "train": str(place / "moved" / "a.csv"), "dev": "moved/b.csv"}
    assert states(films_study(model, films, seeds=[0, 1]), folder) == {"complete"}


@pytest.mark.parametrize(
    ("films", "message"),
    [
        ({"train": "none.csv"}, "none.csv: there is no such file; correct the path"),
        ({"text": "sad"}, "a.csv: Unknown column 'sad'. Did you mean 'said'? Known: said, y"),
        ({"labels": "0"}, "a.csv, line 2: label '1' is not one of the known labels (0); correct"),
        ({"rows": DIGEST}, f"the rows of a.csv and b.csv must have the digest {DIGEST}, found"),
    ],
)
def test_wrong_rows_are_named_before_anything_is_made(model, place, films, message):
    with pytest.raises(TaskError, match=f"^tasks.films: {re.escape(message)}"):
        run_study(films_study(model, {**FILMS, **films}), StudyFolder(place / "o"), Notes())
    assert not (place / "o").exists()
