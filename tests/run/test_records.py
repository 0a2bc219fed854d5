"""Damaged JSON in a run's folder is reported in one line with a remedy."""

from __future__ import annotations

import json
import math
import re
import shutil

import pytest
import torch

import auber
from auber.errors import RunError
from auber.run.result_record import RemainingSize
from auber.run.stage_record import StageRecord
from auber.system.progress import Progress
from auber.system.records import parse
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


BACK = (
    "put a copy of it back, or delete every file of .*/stages but first.json and first/: the run "
    "continues from there, and "
)
AGAIN = (
    "put a copy of it back, or delete it: the stage is repeated with all after it, and scores "
    "that are known are not "
)


def test_what_a_run_is_in_another_shape(folder):
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "upgrades": 5}))
    message = r"run.json: 'upgrades' must be a list, found 5; it is damaged or of .*: put a copy of"
    with pytest.raises(RunError, match=message):
        prune(folder, resume=True)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([], "must be a JSON object, found list; it is damaged:"),
        ({}, "lacks 'dev'; .*it is damaged or of another version:"),
    ],
)
def test_a_result_of_another_shape(whole, tmp_path, content, found):
    place = shutil.copytree(whole[0], tmp_path / "run")
    (place / "result.json").write_text(json.dumps(content))
    message = (
        f"result.json: {found} put a copy of it back; the model in {re.escape(str(place))}/model "
        "can be used"
    )
    for use in (
        lambda: prune(place, resume=True),
        lambda: auber.prune(place, task=small_task(), method="original", config=small_config()),
        lambda: auber.prune(place / "model", task=small_task(), config=small_config()),
        lambda: auber.evaluate(place, task=small_task()),
    ):
        with pytest.raises(RunError, match=message):
            use()


@pytest.mark.parametrize(
    ("name", "as_told"), [("layer-00", True), ("layer-01", True), ("layer-00", False)]
)
def test_a_damaged_record_in_the_middle_is_put_right_by_one_instruction(
    folder, whole, name, as_told
):
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


SEARCH = {"rewards_asked": 1, "rewards_computed": 1, "reward_seconds": 0.5, "seconds": 1.0}


@pytest.mark.parametrize(
    ("stage", "record", "message", "remedy"),
    [
        ("first", [], "must be a JSON object, found ", AGAIN),
        ("first", {"weights": True}, "lacks 'seconds'", AGAIN),
        ("layer-00", {}, "lacks 'seconds'", BACK),
        (
            "layer-02",
            {"weights": 1, "seconds": 1},
            "'weights' must be true or false, found 1",
            BACK,
        ),
        ("last", {"seconds": 1, "tuning": {"steps": 1}}, "lacks 'tuning.seconds'", ""),
        ("scout-0", {"seconds": 1, "scouting": []}, "'scouting' must be a JSON object", ""),
        ("layer-03", {"seconds": 1}, "lacks 'removed or tuning'", ""),
        ("layer-03", {"seconds": 1, "removed": ["1"]}, "'removed.0' must be a whole number", ""),
        (
            "layer-03",
            {"seconds": 1, "removed": [], "sizes": [{"removed": [1]}]},
            "lacks 'sizes.0.score'; lacks 'sizes.0.gain'",
            "",
        ),
        (
            "layer-03",
            {"seconds": 1, "removed": [], "sizes": []},
            "'sizes' must be at least 1 entries long",
            "",
        ),
        ("prior", {"seconds": 1, "plan": {"a": []}}, "'plan' must be a plan .plan: a layer", ""),
        ("prior", {"seconds": 1}, "lacks 'plan'", ""),
        ("plan", {"seconds": 1}, "lacks 'removed'", ""),
    ],
)
def test_a_stages_record_of_another_shape(folder, stage, record, message, remedy):
    (folder / "stages" / f"{stage}.json").write_text(json.dumps(record))
    damaged = "it is damaged.*: put a copy of it back"
    with pytest.raises(RunError, match=f"{stage}.json: {message}.*; {damaged}") as caught:
        prune(folder, resume=True)
    assert re.search(f"{remedy}.*computed again$" if remedy else "", str(caught.value))


SEARCH = {"rewards_asked": 1, "rewards_computed": 1, "reward_seconds": 0.5, "seconds": 1.0}
SCORES = {
    **SEARCH,
    "given_score": 0.5,
    "unpruned_score": 0.5,
    "best": [3, 1],
    "best_score": 0.75,
    "rollout": [2],
    "rollout_score": 0.625,
}


def scores_of(search=None, **stage):
    return parse(StageRecord, {"seconds": 1.0, "search": search or SCORES, **stage}, "x", "").scores


def test_the_scores_of_a_search():
    scores = scores_of(removed=[1, 3])
    assert (scores.of([1, 3]), scores.gain([3, 1])) == (0.75, 0.25)
    assert (scores.of((2,)), scores.gain((2,))) == (0.625, 0.125)
    assert (scores.of([0]), scores.gain([0])) == (None, None), "a mask that is not recorded"


def test_with_a_number_of_heads_each_size_has_its_score():
    masks = {(): 0.5, (0,): 0.375}
    sizes = [{"removed": list(mask), "score": masks[mask], "gain": 0.0} for mask in masks]
    scores = scores_of(sizes=sizes)
    assert (scores.gain([0]), scores.gain([]), scores.gain([1, 3])) == (-0.125, 0.0, 0.25)


@pytest.mark.parametrize(
    ("search", "given", "unpruned"),
    [
        ({"given": [1], "given_score": 0.5, "unpruned_score": 0.625}, 0.5, 0.625),
        ({"given": [1], "given_score": 0.5}, 0.5, None),
        ({"unpruned_score": 0.5}, 0.5, 0.5),
        ({"given": [1], "unpruned_score": 0.5}, 0.5, None),
    ],
    ids=["both", "not asked", "early version", "early version with a prior"],
)
def test_a_search_need_not_start_from_the_unpruned_layer(search, given, unpruned):
    scores = scores_of({**SEARCH, **search, "best": [2], "best_score": 0.75})
    assert (scores.given, scores.unpruned, scores.gain([2])) == (given, unpruned, 0.75 - given)


def test_a_network_that_diverged_is_recorded():
    record = parse(
        StageRecord, {"seconds": 1, "search": {**SEARCH, "q_values": [math.inf, math.nan]}}, "x", ""
    )
    assert record.search.q_values[0] == math.inf


@pytest.mark.parametrize(("share", "rule"), [(1.01, "at most 1.0"), (-0.01, "at least 0.0")])
def test_what_remains_is_a_share(share, rule):
    record = {"multiply_adds": share, "parameters": 0.5, "length": 128}
    with pytest.raises(RunError, match=f"'multiply_adds' must be {rule}, found {share}"):
        parse(RemainingSize, record, "result.json", "make it again")
