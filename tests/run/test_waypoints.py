"""The sizes on the way to a target, as declared and in whole runs."""

from __future__ import annotations

import json

import pytest

import auber
from auber.models.plan import PruningPlan
from auber.run.waypoints import find_waypoints
from auber.system.progress import Progress
from tests.small import small_config, small_start, small_task

TASK = small_task()
STEPS = small_config().replace(
    {"size.step": 0.7, "last.epochs": 3, "teacher.outputs": 1.0, "teacher.copies": 1}
)


@pytest.mark.parametrize(
    ("now", "target", "step", "epochs", "expected"),
    [
        (1.0, 0.5, 0.5, 6, [(0.5, 6)]),
        (1.0, 0.25, 0.0, 6, [(0.25, 6)]),
        (1.0, 0.25, 0.5, 6, [(0.5, 2), (0.25, 4)]),
        (1.0, 0.125, 0.5, 6, [(0.5, 1), (0.25, 2), (0.125, 3)]),
        (1.0, 0.125, 0.5, 10, [(0.5, 2), (0.25, 3), (0.125, 5)]),
        (1.0, 0.2, 0.5, 6, [(0.5848, 1), (0.342, 2), (0.2, 3)]),
        (0.5, 0.25, 0.5, 6, [(0.25, 6)]),
        (0.5, 0.125, 0.5, 6, [(0.25, 2), (0.125, 4)]),
        (1.0, 0.125, 0.5, 2, [(0.25, 1), (0.125, 1)]),  # no tuning without an epoch
        (1.0, 0.125, 0.5, 0, [(0.125, 0)]),
        (1.0, 1.0, 0.5, 6, [(1.0, 6)]),
    ],
)
def test_every_step_leaves_the_same_share_and_later_ones_have_more_epochs(
    now, target, step, epochs, expected
):
    found = find_waypoints(now, target, step, epochs)
    assert [(each.share, each.epochs) for each in found] == expected
    assert {(each.target, each.steps) for each in found} == {(target, len(expected))}


class StopAt(Progress):
    """Stop a run when a stage of this name begins."""

    def __init__(self, stage):
        super().__init__()
        self._stage = stage

    def begin(self, stage, total):
        super().begin(stage, total)
        if stage == self._stage:
            raise KeyboardInterrupt


def prune(folder, keep, config=STEPS, **options):
    model, tokenizer = small_start()
    return auber.prune(
        model,
        tokenizer,
        task=TASK,
        method="fisher",
        keep=keep,
        config=config,
        out=folder,
        **options,
    )


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """A finished run to one size in two steps, and its folder."""
    folder = tmp_path_factory.mktemp("steps") / "single"
    return prune(folder, 0.5), folder


def stages_of(folder):
    return {path.stem for path in (folder / "stages").glob("*.json")}


def test_steps_share_the_epochs_of_the_last_tuning(single):
    pruned, folder = single
    assert stages_of(folder) == {"first", "step-0.7071", "plan", "last"}
    assert 0.45 < pruned.result["remaining"]["multiply_adds"] <= 0.5
    removed = [
        PruningPlan.from_json(json.loads((folder / "stages" / name).read_text())["removed"])
        for name in ("step-0.7071.json", "plan.json")
    ]
    assert all(removed)
    assert removed[0] | removed[1] == pruned.plan
    at_once = prune(None, 0.5, STEPS.replace({"size.step": 0.0}))
    assert at_once.plan != pruned.plan, "each step ranks anew"
    costs = pruned.result["cost"], at_once.result["cost"]
    assert costs[0]["tuning_steps"] == costs[1]["tuning_steps"] > 0


@pytest.mark.parametrize("stage", ["tuning at 0.7071, on the way to 0.5", "last tuning"])
def test_a_stopped_run_resumes_to_the_same_bits(single, tmp_path, stage):
    pruned, _ = single
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path / "run", 0.5, progress=StopAt(stage))
    assert not (tmp_path / "run" / "result.json").exists()
    resumed = prune(tmp_path / "run", 0.5, resume=True)
    assert resumed.plan == pruned.plan
    assert resumed.result["model_sha256"] == pruned.result["model_sha256"]


def test_a_size_does_not_depend_on_the_others(single, tmp_path):
    folder = tmp_path / "several"
    with pytest.raises(KeyboardInterrupt):
        prune(folder, [0.8, 0.5], progress=StopAt("tuning to keep 0.5"))
    several = prune(folder, [0.8, 0.5], resume=True)
    names = {"first", "plan-0.8", "last-0.8", "step-0.5-0.7071", "plan-0.5", "last-0.5"}
    assert stages_of(folder) == names
    large, small = several.result["sizes"]
    assert small["model_sha256"] == single[0].result["model_sha256"]
    assert large["tuning"]["steps"] == small["tuning"]["steps"]
    assert not [path for path in (folder / "stages").iterdir() if path.is_dir()]
