"""Write a run's folder and resume in it: what is refused, what is cleaned up, what is kept."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil

import pytest
import torch

from auber.errors import CheckpointError, RunError
from auber.models import checkpoint
from auber.run.files import is_run, read_json, read_result
from auber.run.folder import Run
from auber.run.records import RunIdentity
from auber.run.resuming import check_place
from tests.small import small_config, small_start
from tests.tiny_models import tiny_model

IDENTITY = {"kind": "prune", "model": "tiny", "task": "t", "method": "auber"}
DONE = {"seconds": 1.0}
FIRST = {**DONE, "digest": "x"}
LAYER = {**DONE, "removed": []}


def open_run(folder, *, resume=False, config=None, **identity):
    identity = RunIdentity(**{**IDENTITY, **identity})
    return Run(folder, identity, config or small_config(), resume=resume)


def test_a_new_run_writes_what_it_is(tmp_path):
    run = open_run(tmp_path / "a" / "run", source=str(tmp_path / "model"))
    assert not run.resumed
    assert is_run(run.folder)
    assert read_json(run.folder / "run.json") == {**IDENTITY, "source": "../../model"}
    assert "episodes = 6" in (run.folder / "config.toml").read_text()
    assert not run.is_complete


def test_an_unfinished_run_must_be_resumed(tmp_path):
    open_run(tmp_path / "run")
    message = (
        "holds an unfinished run; add --resume to continue it, or choose another folder for --out"
    )
    with pytest.raises(RunError, match=message):
        open_run(tmp_path / "run")
    assert open_run(tmp_path / "run", resume=True).resumed


def test_a_measured_number_stays_when_a_run_is_resumed(tmp_path):
    run = open_run(tmp_path / "run")
    assert [run.settle("plans", lambda: 7), run.settle("others", lambda: 3)] == [7, 3]
    run.close()
    resumed = open_run(tmp_path / "run", resume=True)
    assert resumed.settle("plans", lambda: 8) == 7
    (run.folder / "settled.json").write_text('{"numbers": {"plans": -1}}')
    with pytest.raises(
        RunError, match=r"settled.json: 'numbers.plans' must .* put it back, or del"
    ):
        resumed.settle("plans", lambda: 8)


@pytest.mark.parametrize(
    ("begun", "asked", "words"),
    [
        (
            {},
            {"model": "other", "config": small_config(agent__gamma=0.5)},
            "agent.gamma was 1.0 and is now 0.5, model was 'tiny' and is now 'other'; use the "
            "same settings or another folder for --out",
        ),
        (
            {"data": "a" * 64, "weights": "b" * 32},
            {"data": "c" * 64, "weights": "d" * 32},
            "its rows were others, its model had other weights; use the same settings or .*",
        ),
        (
            {"processes": 2},
            {},
            r"processes was 2 and is now 1; .* \(torchrun --nproc-per-node 2\) or .*",
        ),
        ({}, {"processes": 2}, r"processes was 1 and is now 2; .* \(without torchrun\) or .*"),
        (
            {"computed_on_threads": 1},
            {"computed_on_threads": 2},
            r"computed_on_threads was 1 and is now 2; .* \(--set threads=1\) or .*",
        ),
    ],
)
def test_a_run_is_resumed_only_as_the_same_run(tmp_path, begun, asked, words):
    open_run(tmp_path / "run", **begun)
    with pytest.raises(RunError, match=f"run: holds another run: {words}$"):
        open_run(tmp_path / "run", resume=True, **asked)


def test_the_resolved_number_of_threads_counts(tmp_path):
    open_run(tmp_path / "run", config=small_config(threads=0), computed_on_threads=1)
    again = {"config": small_config(threads=1), "computed_on_threads": 1}
    assert open_run(tmp_path / "run", resume=True, **again).resumed


def test_other_versions_are_refused_unless_allowed(tmp_path, caplog):
    old = {"auber": "0.1.0", "torch": "2.9.0", "numpy": "2.0.0"}
    new = {"auber": "0.2.0", "torch": "2.9.0", "numpy": "2.4"}
    open_run(tmp_path / "run", versions=old).finish_stage("first", FIRST)
    with pytest.raises(RunError) as caught:
        open_run(tmp_path / "run", resume=True, versions=new)
    assert str(caught.value).endswith(
        "run: was begun with other versions: auber was 0.1.0 and is now 0.2.0; install those to "
        "get the numbers of an unbroken run, or add --allow-upgrade to go on with these"
    )
    run = open_run(tmp_path / "run", resume="upgrade", versions=new)
    (upgrade,) = run.upgrades
    assert (upgrade.changed, upgrade.after) == ({"auber": ("0.1.0", "0.2.0")}, ("first",))
    assert "goes on with other versions (auber was 0.1.0 and is now 0.2.0)" in caplog.text
    run.close()
    again = open_run(tmp_path / "run", resume=True, versions=new)
    assert again.upgrades == run.upgrades, "the upgrade is recorded, and need not be allowed again"


@pytest.mark.parametrize("name", ["thesis.txt", ".hidden", ".model.json", "stages.txt"])
def test_a_folder_with_other_files_is_not_touched(tmp_path, name):
    (tmp_path / name).write_text("precious")
    for resume in (False, True):
        with pytest.raises(
            RunError, match="must be a new or an empty folder; choose another folder for --out"
        ):
            open_run(tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


def test_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be created .*; choose another folder for --out"):
        open_run(tmp_path / "file" / "run")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "x" * 300,
            r"xxx: cannot be a run's folder \(File name too long\); choose another folder ",
        ),
        (
            os.fsdecode(b"caf\xe9"),
            r"caf\\udce9: must have a name in UTF-8, .*; choose another folder for --out$",
        ),
    ],
)
def test_a_name_that_no_folder_can_have(tmp_path, name, message):
    with pytest.raises(RunError, match=message):
        check_place(tmp_path / name, resume=False)


def test_a_run_killed_while_it_was_created_is_created_again(tmp_path):
    (tmp_path / "run" / "stages").mkdir(parents=True)
    (tmp_path / "run" / ".run.json.77").write_text("{")
    (tmp_path / "run" / "config.toml").write_text("")
    run = open_run(tmp_path / "run")
    assert not run.resumed
    assert not (run.folder / ".run.json.77").exists()
    assert "episodes = 6" in (run.folder / "config.toml").read_text()


def test_stages_and_their_weights(tmp_path):
    run = open_run(tmp_path / "run")
    names = ["first", "layer-00", "layer-01", "layer-02"]
    models = [tiny_model("bert", seed=seed) for seed in range(3)]
    for name, model in zip(names, [*models, None], strict=True):
        run.finish_stage(name, {**FIRST, **LAYER}, model)
    kept = sorted(path.name for path in (run.folder / "stages").iterdir() if path.is_dir())
    assert kept == ["first", "layer-01"]

    run.close()
    again = open_run(tmp_path / "run", resume=True)
    weights = run.folder / "stages" / "first" / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    first = again.stage("first")
    assert (first.digest, first.weights, first.model_sha256) == ("x", True, digest)
    assert again.stage("last") is None
    loaded = again.load_weights(names, tiny_model("bert", seed=9))
    for name, tensor in models[-1].state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_a_result_means_complete(tmp_path):
    run = open_run(tmp_path / "run")
    with pytest.raises(RunError, match="the run is not finished; continue it with --resume"):
        read_result(run.folder)
    model, tokenizer = small_start()
    run.finish_stage("first", FIRST, model)
    finished = run.finish([model], tokenizer, {"plan": {}, "score": 1})
    assert read_result(run.folder) == finished
    assert finished["score"] == 1
    assert not any(path.is_dir() for path in (run.folder / "stages").iterdir())
    with pytest.raises(RunError, match="holds a finished run"):
        open_run(tmp_path / "run")


def test_what_a_killed_process_left_half_written_goes(tmp_path):
    run = open_run(tmp_path / "run")
    run.close()
    (run.folder / ".model.ab12cd_9").mkdir()
    (run.folder / "stages" / ".first.ab12cd_9").mkdir()
    (run.folder / ".progress.json.77").write_text("{")
    (run.folder / "events.jsonl").write_text('{"event": "started"}\n{"eve')
    again = open_run(tmp_path / "run", resume=True)
    again.log("resumed")
    assert [
        json.loads(line)["event"] for line in (run.folder / "events.jsonl").read_text().splitlines()
    ] == ["started", "resumed"]
    again.close()
    assert sorted(path.name for path in run.folder.rglob(".*")) == []


def test_what_a_process_killed_after_the_result_left_goes(tmp_path):
    run = open_run(tmp_path / "run")
    model, tokenizer = small_start()
    run.finish([model], tokenizer, {"plan": {}, "score": 1})
    run.close()
    (run.folder / "stages" / "last").mkdir()
    for name in (".lock", "progress.json"):
        (run.folder / name).write_text("")
    again = open_run(tmp_path / "run", resume=True)
    assert again.is_complete
    assert not any(
        (run.folder / name).exists() for name in (".lock", "progress.json", "stages/last")
    )


def test_weights_that_are_not_those_that_were_written(tmp_path):
    run = open_run(tmp_path / "run")
    for name in ("first", "layer-00"):
        run.finish_stage(name, {**FIRST, **LAYER}, tiny_model("bert"))
        weights = run.folder / "stages" / name / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    back = "put a copy of it back, or delete every file of .* but first.json and first/"
    anew = "put a copy of it back, or start anew with another folder for --out$"
    other = re.escape(f"{weights}: must be the file the run wrote (sha256 ")
    for names, message in (
        (["first", "layer-00"], f"^stage layer-00: {other}.* found another .*; {back}"),
        (["first"], f"^stage first: .*; {anew}"),
    ):
        with pytest.raises(RunError, match=message):
            run.load_weights(names, tiny_model("bert"))
    weights.unlink()
    with pytest.raises(RunError, match=rf"cannot be read \(No such file or directory\); {back}"):
        run.load_weights(["first", "layer-00"], tiny_model("bert"))
    shutil.rmtree(run.folder / "stages" / "first")
    with pytest.raises(RunError, match=anew):
        run.load_weights(["first", "layer-00"], tiny_model("bert"))


def test_a_disk_that_takes_nothing_more(tmp_path, monkeypatch):
    run = open_run(tmp_path / "run")
    run.finish_stage("first", FIRST)
    run.ledger.add("k", 0, {(1,): 0.5})
    kept = (
        "the finished stages (first) and 1 scores are kept: make room there or make the folder "
        "writable, then go on with --resume"
    )
    with pytest.raises(RunError) as caught, run.writing():
        raise OSError(28, "No space left on device", "/there")
    assert str(caught.value) == f"/there: cannot be written (No space left on device); {kept}"
    with pytest.raises(FileNotFoundError), run.writing():
        raise FileNotFoundError(2, "a bug")

    def refuse(*_):
        raise CheckpointError("no") from OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", refuse)
    with pytest.raises(RunError) as caught:
        run.finish_stage("last", LAYER, tiny_model("bert"))
    place = run.folder / "stages" / "last"
    assert str(caught.value) == f"{place}: cannot be written (No space left on device); {kept}"
    run.close()
