from __future__ import annotations

import json

import pytest
import torch

from auber.data.task_types import TASK_TYPES
from auber.errors import AuberError
from auber.export.subjects import choose_length, read_subjects
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.plan import PruningPlan
from tests.export.models import UNEVEN, make_result, make_run, save_pruned
from tests.tiny_models import tiny_config


@pytest.fixture
def origin(tmp_path):
    """A folder with nothing but the config of the unpruned model."""
    tiny_config("bert", num_labels=5).save_pretrained(tmp_path / "origin")
    return str(tmp_path / "origin")


def read_all(*places, model=None, only=()):
    return read_subjects(tuple(map(str, places)), model, only)


def names_of(subjects):
    return [subject.name for subject in subjects]


def refuse(message):
    return pytest.raises(AuberError, match=message)


def test_a_run_with_its_model(tmp_path):
    run = make_run(tmp_path / "mine")
    for place in (run, run / "model"):
        (subject,) = read_all(place)
        assert (subject.name, subject.plan) == ("rte auber seed 3", UNEVEN)
        assert not hasattr(subject.config, "auto_map")  # nothing points at code to run


def test_a_model_folder_is_called_after_its_run(tmp_path):
    start = make_run(tmp_path / "start")
    (start / "result.json").write_text(json.dumps(make_result(kind="finetune")))
    for place in (tmp_path / "copied" / "model", tmp_path / "mine"):
        save_pruned(place)
    assert names_of(read_all(start)) == ["rte start seed 3"]
    found = read_all(start / "model", tmp_path / "copied" / "model", tmp_path / "mine")
    assert names_of(found) == ["rte start seed 3", "copied", "mine"]


def test_equal_names_get_the_parts_of_their_paths_that_differ(tmp_path):
    runs = [make_run(tmp_path / name) for name in ("a/random-0", "a/random-1", "b/random-1")]
    assert names_of(read_all(*runs, runs[0] / "model")) == [
        "rte auber seed 3 (a/random-0)",
        "rte auber seed 3 (a/random-1)",
        "rte auber seed 3 (b/random-1)",
        "rte auber seed 3 (a/random-0/model)",
    ]
    assert set(names_of(read_all(runs[0], runs[0]))) == {"rte auber seed 3"}


def test_runs_without_their_model(tmp_path, origin):
    run = make_run(tmp_path / "mine", keep_weights=False)
    lone = tmp_path / "results" / "kept.json"
    lone.parent.mkdir()
    lone.write_text(json.dumps(make_result(seed=4)))
    kept = tmp_path / "folder"
    kept.mkdir()
    (kept / "result.json").write_text(json.dumps(make_result(labels=3)))
    subjects = read_all(run, lone, kept, model=origin)
    assert names_of(subjects) == [
        "rte auber seed 3 (mine)",
        "rte auber seed 4",
        "rte auber seed 3 (folder)",
    ]
    assert all(subject.plan == UNEVEN for subject in subjects)
    # The task's, not the origin's.
    assert [subject.config.num_labels for subject in subjects] == [2, 2, 3]


@pytest.mark.parametrize(
    ("kind", "metric", "labels", "model_type"),
    [("tokens", "entity_f1", 5, "modernbert"), ("spans", "span_exact", 2, "bert")],
)
def test_the_classifier_is_one_of_the_runs_kind(kind, metric, labels, model_type, tmp_path):
    make_run(tmp_path / "whole", keep_weights=False, metric=metric, labels=labels)
    save_pruned(tmp_path / "whole" / "model", kind=kind, model_type=model_type)
    gone = make_run(tmp_path / "gone", keep_weights=False, metric=metric, labels=labels)
    tiny_config(model_type).save_pretrained(tmp_path / "origin")  # a pretrained encoder
    places = (tmp_path / "whole", tmp_path / "whole" / "model", gone)
    for subject in read_all(*places, model=str(tmp_path / "origin")):
        for model in subject.build():
            assert encoder_of(model).task_type is TASK_TYPES[kind]
            assert model.config.num_labels == labels
    (bare,) = read_all(tmp_path / "origin")
    assert bare.task_type is TASK_TYPES["sequence"]  # its config names no class


def test_both_models_have_the_same_weights(tmp_path):
    (subject,) = read_all(make_run(tmp_path / "mine"))
    torch.manual_seed(1)
    unpruned, pruned = subject.build()
    torch.manual_seed(2)
    again, _ = subject.build()
    assert all(
        torch.equal(one, other)
        for one, other in zip(unpruned.parameters(), again.parameters(), strict=True)
    )
    assert encoder_of(pruned).removed == UNEVEN
    assert not encoder_of(unpruned).removed
    assert not hasattr(subject.config, REMOVED_HEADS)
    assert torch.equal(pruned.classifier.weight, unpruned.classifier.weight)
    assert not pruned.training
    assert [choose_length(unpruned, subject, asked) for asked in (28, None)] == [28, 28]
    with refuse("^--length must be at most 28, the positions of rte auber seed 3, found 29$"):
        choose_length(unpruned, subject, 29)


def test_heads_that_transformers_4_recorded(tmp_path):
    config = tiny_config("bert").to_dict() | {"pruned_heads": {"1": [0]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (subject,) = read_all(tmp_path)
    assert subject.plan == PruningPlan({1: [0]})


@pytest.mark.parametrize(
    ("changes", "model", "message"),
    [
        (
            {},
            None,
            r"mine: its model is gone; name the architecture with --model FOLDER_OR_NAME",
        ),
        (
            {"metric": "luck", "plan": [1]},
            "origin",
            "result.json: 'metric' must be one of accuracy, .*, found 'luck'; 'plan' must be a "
            "plan .*found list.; it is damaged or of another version: give",
        ),
        (
            {"plan": {"0": [4]}},
            "origin",
            "mine: layer 0: its heads are numbered 0 to 3, the plan removes head 4",
        ),
        (
            {"heads": {"layers": 12, "per_layer": 12}},
            "origin",
            "mine: its plan is for 12 layers of 12 heads, --model .*origin has 3 of 4; give the "
            "model it was pruned from$",
        ),
        (
            {},
            "pruned",
            "^--model must be an unpruned model, .*pruned is pruned; give its origin$",
        ),
        (
            {},
            "nowhere",
            "nowhere: there is no such folder; give the one a model was saved in, or a name on",
        ),
    ],
)
def test_what_cannot_be_measured(tmp_path, origin, changes, model, message):
    run = make_run(tmp_path / "mine", keep_weights=False, **changes)
    save_pruned(tmp_path / "pruned")
    with refuse(message):
        read_all(run, model=None if model is None else str(tmp_path / model))


def test_options_that_nothing_needs(tmp_path, origin):
    run = make_run(tmp_path / "mine")
    with refuse("^--model is for runs whose model is gone, all of these have theirs; leave it out"):
        read_all(run, model=origin)
    with refuse("^--only picks runs of a results file, and none of these is one; leave it out$"):
        read_all(run, only=("seed=3",))


# Results files


def write_results(path, *changes):
    """Write a results file with a line per change, as `auber report --save` does."""
    sizes = {"kind": "prune", "layers": 3, "heads": 4, "removed": 6, "protocol": "seen"}
    lines = [{**make_result(), **sizes, **changed} for changed in changes]
    content = {"format": 1, "kind": "runs", "study": None, "runs": lines}
    path.write_text(json.dumps(content))
    return path


EVEN = {"method": "fisher", "removed": 0, "plan": {"heads": {}, "neurons": {"0": "0-7"}}}
WHOLE = {"method": "original", "removed": 0, "plan": {}}


@pytest.fixture
def kept(tmp_path):
    """A results file of four runs and a start."""
    return write_results(
        tmp_path / "study.json",
        {**WHOLE, "kind": "finetune", "folder": "rte/seen/seed-3/start"},
        {"folder": "rte/seen/seed-3/auber"},
        {"task": "mrpc", "folder": "mrpc/seen/seed-3/auber"},
        {**WHOLE, "folder": "rte/seen/seed-3/original"},
        {**EVEN, "folder": "rte/seen/seed-4/fisher"},
    )


def test_runs_of_a_results_file(kept, origin):
    found = read_all(kept, model=origin)
    assert [(subject.name, subject.plan) for subject in found] == [
        ("rte auber seed 3", UNEVEN),
        ("mrpc auber seed 3", UNEVEN),
        ("rte fisher seed 3", PruningPlan(neurons={0: range(8)})),
    ]
    (mrpc,) = read_all(kept, model=origin, only=("method=auber", "task=mrpc,seed=3"))
    assert (mrpc.name, mrpc.config.num_labels) == ("mrpc auber seed 3", 2)
    (whole,) = read_all(kept, model=origin, only=("method=original",))
    assert (whole.name, whole.plan) == ("rte original seed 3", PruningPlan())


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (
            "seed=4",
            "study.json: none of its runs is wanted; it has task: mrpc, rte; method: auber, "
            "fisher; seed: 3; protocol: seen$",
        ),
        ("auber", "^--only takes key=value such as task=rte,seed=1, found 'auber'$"),
        ("head=3", "^--only: Unknown key 'head'"),
    ],
)
def test_a_choice_that_fits_nothing(kept, origin, only, message):
    with refuse(message):
        read_all(kept, model=origin, only=(only,))


def test_a_results_file_without_removed_units(tmp_path, origin):
    path = write_results(tmp_path / "study.json", WHOLE)
    with refuse("study.json: holds no run that removed units; give one that does, or name its run"):
        read_all(path, model=origin)
