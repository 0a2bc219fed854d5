from __future__ import annotations

import hashlib
import json

import pytest
import torch

from auber.errors import RunError
from auber.plan import PruningPlan
from auber.runs import Run, is_run, read_json, read_result
from tests.models import tiny_model
from tests.small import small_config, small_start

IDENTITY = {"kind": "prune", "model": "tiny"}


def test_a_new_run_writes_what_was_asked(tmp_path):
    run = Run(tmp_path / "a" / "run", IDENTITY, small_config())
    assert not run.resumed
    assert is_run(run.folder)
    assert read_json(run.folder / "run.json") == IDENTITY
    assert "episodes = 6" in (run.folder / "config.toml").read_text()
    assert run.result is None


def test_an_unfinished_run_must_be_resumed(tmp_path):
    Run(tmp_path / "run", IDENTITY, small_config())
    with pytest.raises(
        RunError, match="holds an unfinished run; add --resume to go on with it, or choose another --out"
    ):
        Run(tmp_path / "run", IDENTITY, small_config())
    assert Run(tmp_path / "run", IDENTITY, small_config(), resume=True).resumed


def test_a_run_goes_on_only_as_the_same_run(tmp_path):
    Run(tmp_path / "run", IDENTITY, small_config())
    with pytest.raises(RunError) as caught:
        Run(tmp_path / "run", {**IDENTITY, "model": "other"}, small_config(agent__gamma=0.5), resume=True)
    assert str(caught.value).endswith(
        "run: is another run: agent.gamma was 1.0 and is now 0.5, model was 'tiny' and is now 'other'; "
        "use the same settings or another --out"
    )


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="must be a new or an empty folder; choose another --out"):
        Run(tmp_path, IDENTITY, small_config(), resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_stages_and_their_weights(tmp_path):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    models = {name: tiny_model("bert", seed=seed) for seed, name in enumerate(("first", "layer-00", "layer-01"))}
    run.finish_stage("first", {"digest": "x"}, models["first"])
    run.finish_stage("layer-00", {}, models["layer-00"])
    run.finish_stage("layer-01", {}, models["layer-01"])
    run.finish_stage("layer-02", {"removed": []})
    kept = sorted(path.name for path in (run.folder / "stages").iterdir() if path.is_dir())
    assert kept == ["first", "layer-01"]

    run.close()
    again = Run(tmp_path / "run", IDENTITY, small_config(), resume=True)
    digest = hashlib.sha256((run.folder / "stages" / "first" / "model.safetensors").read_bytes()).hexdigest()
    assert again.stage("first") == {"digest": "x", "weights": True, "model_sha256": digest}
    assert again.stage("last") is None
    loaded = again.load_weights(["first", "layer-00", "layer-01", "layer-02"], tiny_model("bert", seed=9))
    for name, tensor in models["layer-01"].state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_a_result_means_complete(tmp_path):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    with pytest.raises(RunError, match="the run is not finished; continue it with --resume"):
        read_result(run.folder)
    model, tokenizer = small_start()
    run.finish_stage("first", {}, model)
    finished = run.finish(model, tokenizer, PruningPlan(), {"score": 1})
    assert read_result(run.folder) == finished
    assert finished["score"] == 1
    assert not any(path.is_dir() for path in (run.folder / "stages").iterdir())
    with pytest.raises(RunError, match="holds a finished run"):
        Run(tmp_path / "run", IDENTITY, small_config())


def test_a_foreign_folder_is_not_a_run(tmp_path):
    with pytest.raises(RunError, match=r"not a run's folder \(it has no run.json\)"):
        read_result(tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run.json: cannot be read"):
        read_json(tmp_path / "run.json")


def test_events_are_appended_in_order(tmp_path):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    run.log("started")
    run.log("stage", stage="first", steps=3)
    lines = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["started", "stage"]
    assert lines[1]["steps"] == 3


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be created .*; choose another --out"):
        Run(tmp_path / "file" / "run", IDENTITY, small_config())
