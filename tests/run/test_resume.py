"""A killed run (SIGKILL) is resumed to the plan, scores and weights of an unbroken one."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

import auber
from auber.errors import CheckpointError
from auber.scoring import LayerScorer
from tests.small import small_config, small_start, small_task

CONFIG = small_config(first__when="always", first__epochs=12, agent__episodes=40, layer__epochs=2)


def prune_slowly(folder: Path) -> None:
    """Prune with slow scores, so that the process can be killed in the middle."""
    torch.set_num_threads(1)
    score_many = LayerScorer.score_many
    LayerScorer.score_many = lambda *arguments: (time.sleep(0.05), score_many(*arguments))[1]
    go_on(folder, resume=False)


def go_on(folder, *, resume):
    model, tokenizer = small_start()
    return auber.prune(
        model, tokenizer, task=small_task(), config=CONFIG, out=folder, resume=resume
    )


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    return folder, go_on(folder, resume=False)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def in_the_first_tuning(folder: Path) -> bool:
    return (folder / "splits.json").exists()


def in_the_search(folder: Path) -> bool:
    return len(lines_of(folder / "scores.jsonl")) >= 4


def between_layers(folder: Path) -> bool:
    return (folder / "stages" / "layer-00.json").exists()


def run_until(moment, folder: Path, starter) -> None:
    """Start the run in a process of its own and kill it at a moment."""
    process = starter.Process(target=prune_slowly, args=(folder,))
    process.start()
    deadline = time.monotonic() + 120
    while not moment(folder):
        assert process.is_alive(), "the run ended before the moment came"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("moment", "stage_done", "stage_cut"),
    [
        (in_the_first_tuning, None, "first"),
        (in_the_search, "first", "layer-00"),
        (between_layers, "layer-00", "layer-01"),
    ],
    ids=["first tuning", "search", "between layers"],
)
def test_a_killed_run_ends_like_an_unbroken_one(
    moment, stage_done, stage_cut, unbroken, starter, tmp_path
):
    folder = tmp_path / "run"
    run_until(moment, folder, starter)
    assert not (folder / "result.json").exists()
    assert not (folder / "stages" / f"{stage_cut}.json").exists()
    if stage_done:
        assert (folder / "stages" / f"{stage_done}.json").exists()
    scored_before = len(lines_of(folder / "scores.jsonl"))

    resumed = go_on(folder, resume=True)

    whole_folder, whole = unbroken
    assert resumed.plan == whole.plan
    for key in ("dev", "train", "plan", "tuned_layers", "start", "heads"):
        assert resumed.result[key] == whole.result[key], key
    for key in ("rewards_asked", "rewards_computed", "tuning_steps"):
        assert resumed.result["cost"][key] == whole.result["cost"][key], key
    state = whole.model.state_dict()
    assert all(
        torch.equal(tensor, state[name]) for name, tensor in resumed.model.state_dict().items()
    )
    scores = [
        sorted(map(json.dumps, map(json.loads, lines_of(f / "scores.jsonl"))))
        for f in (folder, whole_folder)
    ]
    assert scores[0] == scores[1], "every mask is scored once, and to the same number"
    assert len(scores[0]) >= scored_before


def test_a_finished_run_with_other_weights_than_it_wrote_is_said(unbroken, tmp_path):
    whole_folder, _ = unbroken
    folder = tmp_path / "run"
    shutil.copytree(whole_folder, folder)
    weights = folder / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    message = (
        r"model.safetensors: must be the file the run wrote \(sha256 .* found another .*: it is "
        r"damaged or was changed$"
    )
    with pytest.raises(CheckpointError, match=message):
        go_on(folder, resume=True)
    with pytest.raises(CheckpointError, match=message):
        auber.prune(folder, task=small_task(), config=CONFIG, out=tmp_path / "next")
    assert not (tmp_path / "next").exists()
