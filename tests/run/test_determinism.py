"""On a CPU the same seed gives the same bytes: in this process, in others, and elsewhere.

On a GPU, gradients of embeddings and attention are added atomically in no fixed order, so that two
tunings may differ in the last bits. What is not tuned is computed alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import auber
from auber.data.generated import make_agreement
from auber.scoring import LayerScorer
from auber.study.folder import StudyFolder
from auber.study.runner import run_study
from auber.training.devices import resolve_hardware
from tests.small import small_config, small_rows, small_start, small_task
from tests.study.tiny import Notes, tiny_model_folder, tiny_study

ROOT = Path(__file__).parents[2]
WORK = "import sys; from tests.run.test_determinism import work; work(sys.argv[1])"

# Keys that record when and where something was computed.
_PASSING = {"seconds", "milliseconds", "reward_seconds", "time", "process", "provenance", "command"}
_LOGS = {"events.jsonl", ".claim"}  # .claim: which process had a block of a study

GPU_BOUND = 0.02  # between the scores of two runs of one seed on a GPU


def work(folder):
    """A pruning and a study in a folder."""
    folder = Path(folder)
    model, tokenizer = small_start()
    config = small_config(first__when="always", agent__episodes=12, agent__stop_value=-1000.0)
    auber.prune(model, tokenizer, task=small_task(), config=config, out=folder / "prune")
    study = tiny_study(tiny_model_folder(folder), methods=["auber", "random"])
    outcomes = run_study(study, StudyFolder(folder / "study"), Notes())
    assert all(outcome.error is None for outcome in outcomes), [
        outcome.error for outcome in outcomes
    ]


def left_in(folder):
    """What a run or a study has left, by file: JSON without what passes, anything else as bytes."""
    return {
        str(path.relative_to(folder)): _content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _LOGS
    }


def _content(path):
    return _lasting(json.loads(path.read_bytes())) if path.suffix == ".json" else path.read_bytes()


def _lasting(value):
    if isinstance(value, dict):
        return {key: _lasting(inner) for key, inner in value.items() if key not in _PASSING}
    return [_lasting(inner) for inner in value] if isinstance(value, list) else value


def differing(first, second):
    assert first.keys() == second.keys()
    return [name for name in first if first[name] != second[name]]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    work(folder)
    left = left_in(folder)
    assert left["prune/result.json"]["heads"]["removed"] > 0
    assert len([name for name in left if name.startswith("study/") and "/result.json" in name]) == 3
    return left


def test_again_in_this_process(here, tmp_path):
    torch.manual_seed(12345)  # nothing depends on what was drawn before
    work(tmp_path)
    assert differing(here, left_in(tmp_path)) == []


def test_in_another_process_from_another_folder_with_other_hashes(here, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    hashes = (
        "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    )  # here they are drawn, or set by the caller
    environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", WORK, str(tmp_path / "work")]
    subprocess.run(command, cwd=elsewhere, env=environment, check=True, timeout=240)
    assert differing(here, left_in(tmp_path / "work")) == []
    assert list(elsewhere.iterdir()) == []


def test_another_seed_gives_something_else(here, tmp_path):
    model, tokenizer = small_start()
    config = small_config(
        first__when="always", agent__episodes=12, agent__stop_value=-1000.0, seed=1
    )
    auber.prune(model, tokenizer, task=small_task(), config=config, out=tmp_path / "prune")
    other = left_in(tmp_path)
    assert {"prune/model/model.safetensors", "prune/splits.json", "prune/scores.jsonl"} <= {
        name for name in other if other[name] != here[name]
    }


def tuned_scores(device, precision, folder):
    """Train and dev score of a run whose heads are given, so that only the tunings can differ."""
    model, tokenizer = small_start(hidden_size=64)
    rates = dict.fromkeys(
        ("first__learning_rate", "layer__learning_rate", "last__learning_rate"), 1e-4
    )
    config = small_config(device=device, precision=precision, first__when="always", **rates)
    task = make_agreement(0, num_train=400, num_dev=400)
    result = auber.prune(
        model, tokenizer, task=task, method="random", heads=4, config=config, out=folder / "run"
    ).result
    return result["plan"], result["train"]["score"], result["dev"]["score"]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_two_runs_on_a_gpu_score_nearly_the_same(precision, tmp_path):
    plan, *first = tuned_scores("cuda", precision, tmp_path / "one")
    again, *second = tuned_scores("cuda", precision, tmp_path / "two")
    assert plan == again
    assert first == pytest.approx(second, abs=GPU_BOUND)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_rewards_the_same_weights_the_same(precision):
    """Without training, no sum is in an unknown order: searches differ only by their tunings."""
    hardware = resolve_hardware(small_config(device="cuda", precision=precision))
    model, masks = small_start()[0].cuda(), [(), (0,), (1, 2), (0, 1, 3)]
    scores = [
        LayerScorer(model, 1, small_rows(60), "accuracy", hardware).score_many(masks)
        for _ in range(3)
    ]
    assert scores[0] == scores[1] == scores[2]
