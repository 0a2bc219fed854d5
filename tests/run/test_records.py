"""What stands in a run's folder may be whole JSON of another shape: each such file is one line that says what to do."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch

import auber
from auber.errors import PlanError, RunError
from auber.run.fields import Fields
from auber.run.records import check_stage
from auber.system.progress import Progress
from tests.small import small_config, small_start, small_task

# Every layer loses heads, so that every stage has weights of its own.
CONFIG = small_config(first__when="always", agent__stop_value=-1000.0)


class StopBeforeLast(Progress):
    """Stops a run when all its layers are done."""

    def begin(self, stage, total):
        if stage == "last tuning":
            raise KeyboardInterrupt


def prune(folder, **options):
    model, tokenizer = small_start()
    return auber.prune(model, tokenizer, task=small_task(), config=CONFIG, out=folder, **options)


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A run with all its layers done."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(KeyboardInterrupt):
        prune(folder, progress=StopBeforeLast())
    kept = sorted(path.name for path in (folder / "stages").iterdir())
    assert kept == [
        "first",
        "first.json",
        "layer-00.json",
        "layer-01.json",
        "layer-02",
        "layer-02.json",
    ]
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same run, unbroken."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, prune(folder)


@pytest.fixture
def folder(cut, tmp_path):
    """A copy of the cut run."""
    return shutil.copytree(cut, tmp_path / "run")


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


BACK = "put a copy of it back, or delete every file of .*/stages but first.json and first/: the run goes on from there, and "
AGAIN = "put a copy of it back, or delete it: the stage is done again with all after it, and scores that are known are not "


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "first",
            {"weights": True},
            f"first.json: lacks 'seconds'; it is damaged or of another version, {AGAIN}",
        ),
        (
            "first",
            {"weights": True, "seconds": 1},
            f"first.json: lacks 'digest'; it is damaged or .*, {AGAIN}",
        ),
        ("first", {}, f"first.json: lacks 'weights'; it is damaged or of another version, {AGAIN}"),
        ("first", [], f"first.json: must be a JSON object, found list; it is damaged: {AGAIN}"),
        (
            "layer-00",
            {},
            f"layer-00.json: lacks 'weights'; it is damaged or of another version, {BACK}",
        ),
        (
            "layer-02",
            {"weights": 1},
            f"layer-02.json: 'weights' must be true or false, found 1; it is damaged, {BACK}",
        ),
    ],
)
def test_a_stages_record_of_another_shape(folder, name, content, message):
    (folder / "stages" / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match=f"{message}.*computed again$"):
        prune(folder, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"versions": []},
            r"run.json: 'versions' must be a dict, found \[\]; it is damaged, put a copy of it back$",
        ),
        (
            {"upgrades": 5},
            r"run.json: 'upgrades' must be a list, found 5; it is damaged, put a copy of it back$",
        ),
    ],
)
def test_what_a_run_is_in_another_shape(folder, changes, message):
    change(folder / "run.json", **changes)
    with pytest.raises(RunError, match=message):
        prune(folder, resume=True)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([], "must be a JSON object, found list; it is damaged:"),
        ({}, "lacks '[a-z]+'; it is damaged or of another version,"),
    ],
)
@pytest.mark.parametrize("use", ["resumed", "start", "model of a start", "evaluated"])
def test_a_result_of_another_shape(whole, tmp_path, content, found, use):
    place = shutil.copytree(whole[0], tmp_path / "run")
    (place / "result.json").write_text(json.dumps(content))
    wanted = {
        "task": small_task(),
        "method": "original",
        "config": small_config(),
        "out": tmp_path / "next",
    }
    uses = {
        "resumed": lambda: prune(place, resume=True),
        "start": lambda: auber.prune(place, **wanted),
        "model of a start": lambda: auber.prune(place / "model", **wanted),
        "evaluated": lambda: auber.evaluate(place, task=small_task()),
    }
    if use == "evaluated" and content == {}:
        assert uses[use]().rows == 24, "nothing of the result is needed but how rows are cut"
        return
    message = f"result.json: {found} put a copy of it back; the model in {re.escape(str(place))}/model can be used"
    with pytest.raises(RunError, match=message):
        uses[use]()


@pytest.mark.parametrize(
    ("name", "as_told"), [("layer-00", True), ("layer-01", True), ("layer-00", False)]
)
def test_a_damaged_record_in_the_middle_is_put_right_by_one_instruction(
    folder, whole, name, as_told
):
    """And where the weights before it are kept also by less: a stage that is done again takes those after it along."""
    stages = folder / "stages"
    (stages / f"{name}.json").write_text('{"removed": [')
    with pytest.raises(
        RunError, match=f"{name}.json: cannot be read .*; it is damaged: {BACK}.*computed again$"
    ):
        prune(folder, resume=True)
    (stages / f"{name}.json").unlink()
    if as_told:
        for path in stages.glob("layer-*.json"):
            path.unlink()
        shutil.rmtree(stages / "layer-02")
    resumed = prune(folder, resume=True)
    state = whole[1].model.state_dict()
    assert all(
        torch.equal(tensor, state[name]) for name, tensor in resumed.model.state_dict().items()
    )
    for key in ("dev", "train", "plan", "tuned_layers"):
        assert resumed.result[key] == whole[1].result[key], key


def test_a_stage_that_is_done_again_takes_the_records_after_it_along(folder):
    (folder / "stages" / "layer-00.json").unlink()

    class StopInLayer(Progress):
        def begin(self, stage, total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune(folder, resume=True, progress=StopInLayer())
    assert sorted(path.name for path in (folder / "stages").glob("*.json")) == ["first.json"]


SEARCH = {"rewards_asked": 1, "rewards_computed": 1, "reward_seconds": 0.5, "seconds": 1.0}


@pytest.mark.parametrize(
    ("stage", "record", "error", "message"),
    [
        ("last", {}, RunError, "^x: lacks 'seconds'"),
        ("last", {"tuning": {"steps": 1}}, RunError, "^x: lacks 'tuning.seconds'"),
        ("scout-0", {"scouting": []}, RunError, "^x: 'scouting' must be a dict"),
        ("layer-03", {}, RunError, "^x: lacks 'tuning'"),
        ("layer-03", {"removed": ["1"]}, RunError, "^x: 'removed' must be a whole number"),
        ("layer-03", {"removed": [], "search": {**SEARCH, "seconds": None}}, RunError, "^x: 'search.seconds' must be a finite"),
        ("layer-03", {"removed": [], "sizes": [{"removed": [1]}]}, RunError, "^x: sizes: lacks 'gain'"),
        ("layer-03", {"removed": [], "sizes": []}, RunError, "^x: 'sizes' must have a mask, found none; it is damaged, make"),
        ("layer-03", {"removed": None}, RunError, "^x: 'removed' must be a list, found None"),
        ("layer-03", {"tuning": None}, RunError, "^x: 'tuning' must be a dict, found None"),
        ("plan", {"removed": {}, "gate_steps": None}, RunError, "^x: 'gate_steps' must be a whole number, found None"),
        ("timing", {}, RunError, "^x: lacks 'timing'"),
        ("timing", {"timing": {}}, RunError, "^x: lacks 'timing.percent_a_head'"),
        ("prior", {"plan": {"a": []}}, PlanError, "^x: plan: a layer must be a whole number from 0, found 'a'$"),
        ("budget", {"plan": 3}, RunError, "^x: 'plan' must be a dict"),
        ("plan", {"removed": [1]}, RunError, "^x: 'removed' must be a dict"),
    ],
)  # fmt: skip
def test_what_a_run_that_goes_on_asks_of_a_record(stage, record, error, message):
    if message != "^x: lacks 'seconds'":
        record = {"seconds": 1.0, **record}
    with pytest.raises(error, match=message):
        check_stage(stage, Fields("x", record))


def test_records_as_they_are_written():
    tuned = {"seconds": 2.0, "tuning": {"steps": 3, "seconds": 1.5}}
    check_stage("first", Fields("x", {**tuned, "digest": "abc"}))
    check_stage("layer-03", Fields("x", tuned))
    check_stage("layer-03", Fields("x", {"seconds": 2.0, "removed": [], "search": SEARCH}))
    check_stage("timing", Fields("x", {"seconds": 2.0, "timing": None}))
    check_stage("plan", Fields("x", {"seconds": 2.0, "removed": {"0": [1]}, "gate_steps": 3}))
