from __future__ import annotations

import json

import pytest
import torch

from auber.data.task_types import TASK_TYPES
from auber.errors import AuberError
from auber.export.subjects import choose_length, read_subjects
from auber.models.encoders import REMOVED_HEADS, encoder_of
from tests.export.models import UNEVEN, make_result, make_run, save_pruned
from tests.tiny_models import tiny_config

PLAN = {layer: tuple(heads) for layer, heads in UNEVEN.items()}


@pytest.fixture
def origin(tmp_path):
    """A folder with nothing but the config of the unpruned model."""
    tiny_config("bert", num_labels=5).save_pretrained(tmp_path / "origin")
    return str(tmp_path / "origin")


def test_a_run_with_its_model(tmp_path):
    run = make_run(tmp_path / "mine")
    (subject,) = read_subjects((str(run),), None)
    assert (subject.name, subject.plan) == ("rte auber seed 3", PLAN)
    (again,) = read_subjects((str(run / "model"),), None)
    assert (again.name, again.plan) == ("rte auber seed 3", PLAN)
    assert not hasattr(again.config, "auto_map")  # nothing points at code to run


def test_a_model_folder_is_called_after_its_run(tmp_path):
    start = make_run(tmp_path / "seed-0" / "start", method="original")
    (start / "result.json").write_text(
        json.dumps({**make_result(method="original"), "kind": "finetune"})
    )
    copied = save_pruned(tmp_path / "copied" / "model") and tmp_path / "copied"
    save_pruned(tmp_path / "mine")
    names = [str(start), str(start / "model"), str(copied / "model"), str(tmp_path / "mine")]
    assert [subject.name for subject in read_subjects((names[0],), None)] == ["rte start seed 3"]
    assert [subject.name for subject in read_subjects(tuple(names[1:]), None)] == [
        "rte start seed 3",
        "copied",
        "mine",
    ]


def test_equal_names_get_the_parts_of_their_paths_that_differ(tmp_path):
    runs = [
        make_run(tmp_path / name)
        for name in ("a/seed-0/random-0", "a/seed-0/random-1", "b/seed-0/random-1")
    ]
    found = read_subjects((*map(str, runs), str(runs[0] / "model")), None)
    assert [subject.name for subject in found] == [
        "rte auber seed 3 (a/seed-0/random-0)",
        "rte auber seed 3 (a/seed-0/random-1)",
        "rte auber seed 3 (b/seed-0/random-1)",
        "rte auber seed 3 (a/seed-0/random-0/model)",
    ]
    twice = read_subjects((str(runs[0]), str(runs[0])), None)
    assert {subject.name for subject in twice} == {"rte auber seed 3"}, "it is one and the same"


def test_runs_without_their_model_in_three_ways(tmp_path, origin):
    run = make_run(tmp_path / "mine", keep_weights=False)
    lone = tmp_path / "results" / "kept.json"
    lone.parent.mkdir()
    lone.write_text(json.dumps(make_result(seed=4)))
    kept = tmp_path / "folder"
    kept.mkdir()
    (kept / "result.json").write_text(json.dumps(make_result(labels=3)))
    subjects = read_subjects((str(run), str(lone), str(kept)), origin)
    assert [subject.name for subject in subjects] == [
        "rte auber seed 3 (mine)",
        "rte auber seed 4",
        "rte auber seed 3 (folder)",
    ]
    assert all(subject.plan == PLAN for subject in subjects)
    assert [subject.config.num_labels for subject in subjects] == [
        2,
        2,
        3,
    ]  # the task's, not the origin's


@pytest.mark.parametrize(
    ("kind", "metric", "labels"), [("tokens", "entity_f1", 5), ("spans", "span_exact", 2)]
)
@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_the_classifier_is_one_of_the_runs_kind(kind, metric, labels, model_type, tmp_path):
    make_run(tmp_path / "whole", keep_weights=False, metric=metric, labels=labels)
    save_pruned(tmp_path / "whole" / "model", kind=kind, model_type=model_type)
    gone = make_run(tmp_path / "gone", keep_weights=False, metric=metric, labels=labels)
    tiny_config(model_type).save_pretrained(tmp_path / "origin")  # a pretrained encoder
    names = tuple(map(str, (tmp_path / "whole", tmp_path / "whole" / "model", gone)))
    for subject in read_subjects(names, str(tmp_path / "origin")):
        for model in subject.build():
            assert encoder_of(model).task_type is TASK_TYPES[kind]
            assert model.config.num_labels == labels


def test_a_model_folder_without_a_classifier_is_measured_under_one_for_texts(tmp_path, origin):
    (subject,) = read_subjects((origin,), None)
    assert subject.task_type is TASK_TYPES["sequence"]


def test_both_models_have_the_same_weights(tmp_path, origin):
    run = make_run(tmp_path / "mine", keep_weights=False)
    (subject,) = read_subjects((str(run),), origin)
    torch.manual_seed(1)
    unpruned, pruned = subject.build()
    torch.manual_seed(2)
    again, _ = subject.build()
    assert all(
        torch.equal(one, other)
        for one, other in zip(unpruned.parameters(), again.parameters(), strict=True)
    )
    assert encoder_of(pruned).removed == PLAN
    assert not encoder_of(unpruned).removed
    assert not hasattr(subject.config, REMOVED_HEADS)
    assert torch.equal(pruned.classifier.weight, unpruned.classifier.weight)
    assert not pruned.training


def test_heads_that_transformers_4_recorded(tmp_path):
    config = tiny_config("bert").to_dict() | {"pruned_heads": {"1": [0]}}
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    (subject,) = read_subjects((str(tmp_path / "old"),), None)
    assert subject.plan == {1: (0,)}


def test_a_row_longer_than_the_positions(tmp_path, origin):
    (subject,) = read_subjects((str(make_run(tmp_path / "mine")),), None)
    unpruned, _ = subject.build()
    assert [choose_length(unpruned, subject, asked) for asked in (28, None)] == [28, 28]
    with pytest.raises(
        AuberError,
        match="^--length must be at most 28, the positions of rte auber seed 3, found 29$",
    ):
        choose_length(unpruned, subject, 29)


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
            "JSON object, found .1.; it is damaged or of another version: give",
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
            "^--model must be an unpruned model, .*pruned lacks 6 heads; give its origin$",
        ),
        (
            {},
            "nowhere",
            "nowhere: there is no such folder; give the one a model was saved in, or a name on",
        ),
        ({}, "albert", "config.json: A model of type 'albert' cannot be pruned"),
    ],
)
def test_what_cannot_be_measured(tmp_path, origin, changes, model, message):
    run = make_run(tmp_path / "mine", keep_weights=False, **changes)
    save_pruned(tmp_path / "pruned")
    (tmp_path / "albert").mkdir()
    (tmp_path / "albert" / "config.json").write_text('{"model_type": "albert"}')
    with pytest.raises(AuberError, match=message):
        read_subjects((str(run),), None if model is None else str(tmp_path / model))


def test_a_model_nobody_needs(tmp_path, origin):
    run = make_run(tmp_path / "mine")
    message = "^--model is for runs whose model is gone, all of these have theirs; leave it out$"
    with pytest.raises(AuberError, match=message):
        read_subjects((str(run),), origin)


def test_nothing_there(tmp_path):
    message = "none: a run's folder, its result.json, a results file or a model folder is needed"
    with pytest.raises(AuberError, match=message):
        read_subjects((str(tmp_path / "none"),), None)


@pytest.fixture
def kept(tmp_path):
    """A results file of three runs and a start, as `auber report --save` writes their plans."""
    line = {
        **make_result(),
        "kind": "prune",
        "layers": 3,
        "heads": 4,
        "removed": 6,
        "protocol": "seen",
    }
    lines = [
        {
            **line,
            "kind": "finetune",
            "method": "original",
            "removed": 0,
            "plan": {},
            "folder": "rte/seen/seed-3/start",
        },
        {**line, "folder": "rte/seen/seed-3/auber"},
        {**line, "task": "mrpc", "folder": "mrpc/seen/seed-3/auber"},
        {
            **line,
            "method": "original",
            "removed": 0,
            "plan": {},
            "folder": "rte/seen/seed-3/original",
        },
    ]
    path = tmp_path / "study.json"
    path.write_text(json.dumps({"format": 1, "kind": "runs", "study": None, "runs": lines}))
    return str(path)


def test_runs_of_a_results_file(kept, origin):
    found = read_subjects((kept,), origin)
    assert [(subject.name, subject.plan) for subject in found] == [
        ("rte auber seed 3", PLAN),
        ("mrpc auber seed 3", PLAN),
    ]
    (mrpc,) = read_subjects((kept,), origin, ("method=auber", "task=mrpc,seed=3"))
    assert mrpc.name == "mrpc auber seed 3"
    assert mrpc.config.num_labels == 2
    (whole,) = read_subjects((kept,), origin, ("method=original",))
    assert (whole.name, whole.plan) == ("rte original seed 3", {})


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (
            "seed=4",
            "study.json: none of its runs is wanted; it has task: mrpc, rte; method: auber; "
            "seed: 3; protocol: seen$",
        ),
        ("auber", "^--only takes key=value such as task=rte,seed=1, found 'auber'$"),
        ("head=3", "^--only: Unknown key 'head'"),
    ],
)
def test_a_choice_that_fits_nothing(kept, origin, only, message):
    with pytest.raises(AuberError, match=message):
        read_subjects((kept,), origin, (only,))


def test_a_results_file_without_removed_heads(tmp_path, origin):
    path = tmp_path / "study.json"
    line = {
        **make_result(method="original", plan={}),
        "kind": "prune",
        "layers": 3,
        "heads": 4,
        "removed": 0,
    }
    path.write_text(json.dumps({"format": 1, "kind": "runs", "study": None, "runs": [line]}))
    message = "study.json: holds no run that removed heads; give one that does, or name its runs"
    with pytest.raises(AuberError, match=message):
        read_subjects((str(path),), origin)


def test_a_choice_without_a_results_file(tmp_path):
    with pytest.raises(
        AuberError,
        match="^--only picks runs of a results file, and none of these is one; leave it out$",
    ):
        read_subjects((str(make_run(tmp_path / "mine")),), None, ("seed=3",))
