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
from auber.models.plan import PruningPlan
from auber.run.files import is_run, read_json, read_result
from auber.run.folder import Run, require_place
from tests.small import small_config, small_start
from tests.tiny_models import tiny_model

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
        RunError,
        match="holds an unfinished run; add --resume to go on with it, or choose another --out",
    ):
        Run(tmp_path / "run", IDENTITY, small_config())
    assert Run(tmp_path / "run", IDENTITY, small_config(), resume=True).resumed


def test_a_run_goes_on_only_as_the_same_run(tmp_path):
    Run(tmp_path / "run", IDENTITY, small_config())
    with pytest.raises(RunError) as caught:
        Run(
            tmp_path / "run",
            {**IDENTITY, "model": "other"},
            small_config(agent__gamma=0.5),
            resume=True,
        )
    assert str(caught.value).endswith(
        "run: is another run: agent.gamma was 1.0 and is now 0.5, model was 'tiny' and is now 'other'; "
        "use the same settings or another --out"
    )


def test_a_run_of_other_rows_or_weights_is_told_in_words(tmp_path):
    known = {**IDENTITY, "data": "a" * 64, "weights": "b" * 32}
    Run(tmp_path / "run", known, small_config())
    with pytest.raises(
        RunError,
        match=r"run: is another run: its rows were others, its model had other weights; use the",
    ):
        Run(
            tmp_path / "run",
            {**known, "data": "c" * 64, "weights": "d" * 32},
            small_config(),
            resume=True,
        )


@pytest.mark.parametrize(
    ("begun", "asked", "words", "hint"),
    [
        ({"processes": 2}, {}, "processes was 2 and is now 1", "torchrun --nproc-per-node 2"),
        ({}, {"processes": 2}, "processes was 1 and is now 2", "without torchrun"),
        ({"computed_on_threads": 1}, {"computed_on_threads": 2}, "computed_on_threads was 1 and is now 2", "--set threads=1"),
    ],
)  # fmt: skip
def test_a_run_goes_on_only_where_it_computes_alike(tmp_path, begun, asked, words, hint):
    Run(tmp_path / "run", {**IDENTITY, **begun}, small_config())
    message = rf"run: is another run: {words}; use the same settings \({hint}\) or another --out$"
    with pytest.raises(RunError, match=message):
        Run(tmp_path / "run", {**IDENTITY, **asked}, small_config(), resume=True)


def test_of_threads_the_number_that_computes_counts(tmp_path):
    """As many as torch found at first may be named later, where it finds another number."""
    known = {**IDENTITY, "computed_on_threads": 1}
    Run(tmp_path / "run", known, small_config(threads=0))
    assert Run(tmp_path / "run", known, small_config(threads=1), resume=True).resumed


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="must be a new or an empty folder; choose another --out"):
        Run(tmp_path, IDENTITY, small_config(), resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_stages_and_their_weights(tmp_path):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    models = {
        name: tiny_model("bert", seed=seed)
        for seed, name in enumerate(("first", "layer-00", "layer-01"))
    }
    run.finish_stage("first", {"digest": "x"}, models["first"])
    run.finish_stage("layer-00", {}, models["layer-00"])
    run.finish_stage("layer-01", {}, models["layer-01"])
    run.finish_stage("layer-02", {"removed": []})
    kept = sorted(path.name for path in (run.folder / "stages").iterdir() if path.is_dir())
    assert kept == ["first", "layer-01"]

    run.close()
    again = Run(tmp_path / "run", IDENTITY, small_config(), resume=True)
    digest = hashlib.sha256(
        (run.folder / "stages" / "first" / "model.safetensors").read_bytes()
    ).hexdigest()
    assert again.stage("first") == {"digest": "x", "weights": True, "model_sha256": digest}
    assert again.stage("last") is None
    loaded = again.load_weights(
        ["first", "layer-00", "layer-01", "layer-02"], tiny_model("bert", seed=9)
    )
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


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(
        RunError,
        match=r"xxx: cannot be a run's folder \(File name too long\); choose another --out$",
    ):
        require_place(tmp_path / ("x" * 300), resume=False)


def test_a_name_that_tokenizers_cannot_be_written_under(tmp_path):
    """Said before anything is computed."""
    place = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(
        RunError, match=r"caf\\udce9: must have a name in UTF-8, .*; choose another --out$"
    ):
        require_place(place, resume=False)


def test_a_run_killed_while_it_was_made_is_made_anew(tmp_path):
    (tmp_path / "run" / "stages").mkdir(parents=True)
    (tmp_path / "run" / ".run.json.77").write_text("{")
    (tmp_path / "run" / "config.toml").write_text("")
    run = Run(tmp_path / "run", IDENTITY, small_config())
    assert not run.resumed
    assert not (run.folder / ".run.json.77").exists()
    assert "episodes = 6" in (run.folder / "config.toml").read_text()


@pytest.mark.parametrize("name", [".hidden", ".model.json", "stages.txt"])
def test_nothing_of_somebody_elses_is_taken_for_a_run_cut_short(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(RunError, match="must be a new or an empty folder"):
        Run(tmp_path, IDENTITY, small_config())
    assert (tmp_path / name).read_text() == "precious"


def test_what_a_killed_process_left_half_written_goes(tmp_path):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    run.close()
    (run.folder / ".model.ab12cd_9").mkdir()
    (run.folder / "stages" / ".first.ab12cd_9").mkdir()
    (run.folder / ".progress.json.77").write_text("{")
    (run.folder / "events.jsonl").write_text('{"event": "started"}\n{"eve')
    again = Run(tmp_path / "run", IDENTITY, small_config(), resume=True)
    again.log("resumed")
    assert [
        json.loads(line)["event"] for line in (run.folder / "events.jsonl").read_text().splitlines()
    ] == [
        "started",
        "resumed",
    ]
    again.close()
    assert sorted(path.name for path in run.folder.rglob(".*")) == []


def test_what_a_process_killed_after_the_result_left_goes(tmp_path):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    run.finish(*small_start(), PruningPlan(), {"score": 1})
    run.close()
    (run.folder / "stages" / "last").mkdir()
    for name in (".lock", "progress.json"):
        (run.folder / name).write_text("")
    again = Run(tmp_path / "run", IDENTITY, small_config(), resume=True)
    assert again.result is not None
    assert not any(
        (run.folder / name).exists() for name in (".lock", "progress.json", "stages/last")
    )


def test_other_versions_are_refused_unless_allowed(tmp_path, caplog):
    old, new = (
        {"auber": "0.1.0", "torch": "2.9.0", "numpy": "2.0.0"},
        {"auber": "0.2.0", "torch": "2.9.0", "numpy": "2.4"},
    )
    Run(tmp_path / "run", IDENTITY, small_config(), versions=old).finish_stage("first", {})
    with pytest.raises(RunError) as caught:
        Run(tmp_path / "run", IDENTITY, small_config(), resume=True, versions=new)
    assert str(caught.value).endswith(
        "run: was begun with other versions: auber was 0.1.0 and is now 0.2.0; install those to end in the numbers of an "
        "unbroken run, or add --allow-upgrade to go on with these"
    )
    run = Run(
        tmp_path / "run", IDENTITY, small_config(), resume=True, versions=new, allow_upgrade=True
    )
    assert run.upgrades == [{"changed": {"auber": ["0.1.0", "0.2.0"]}, "after": ["first"]}]
    assert "goes on with other versions (auber was 0.1.0 and is now 0.2.0)" in caplog.text
    run.close()
    again = Run(tmp_path / "run", IDENTITY, small_config(), resume=True, versions=new)
    assert again.upgrades == run.upgrades, "it is asked once, and remembered"


def test_weights_that_are_not_those_that_were_written(tmp_path):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    for name in ("first", "layer-00"):
        run.finish_stage(name, {}, tiny_model("bert"))
        weights = run.folder / "stages" / name / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    other = (
        re.escape(f"{weights}: must be the file the run wrote (sha256 ")
        + ".* found another .*: it is damaged or was changed"
    )
    with pytest.raises(
        RunError, match=f"^stage layer-00: {other}; put a copy of it back, or delete every file of "
    ):
        run.load_weights(["first", "layer-00"], tiny_model("bert"))
    with pytest.raises(
        RunError, match="^stage first: .*; put a copy of it back, or start anew with another --out$"
    ):
        run.load_weights(["first"], tiny_model("bert"))
    weights.unlink()
    with pytest.raises(
        RunError,
        match="model.safetensors: cannot be read \\(No such file or directory\\); put a copy",
    ):
        run.load_weights(["first", "layer-00"], tiny_model("bert"))


@pytest.mark.parametrize("tuned", [True, False])
def test_the_way_out_of_damaged_weights_leads_back_to_what_is_there(tmp_path, tuned):
    """To the first tuning, or to a start that needed none; a complete run has given the first's weights up."""
    run = Run(tmp_path / "run", IDENTITY, small_config())
    run.finish_stage("first", {}, tiny_model("bert") if tuned else None)
    run.finish_stage("layer-00", {}, tiny_model("bert"))
    (run.folder / "stages" / "layer-00" / "model.safetensors").unlink()
    with pytest.raises(
        RunError,
        match=r"; put a copy of it back, or delete every file of .* but first.json and first/",
    ):
        run.load_weights(["first", "layer-00"], tiny_model("bert"))
    if tuned:
        shutil.rmtree(run.folder / "stages" / "first")
        with pytest.raises(
            RunError, match="; put a copy of it back, or start anew with another --out$"
        ):
            run.load_weights(["first", "layer-00"], tiny_model("bert"))


def test_a_disk_that_takes_nothing_more(tmp_path, monkeypatch):
    run = Run(tmp_path / "run", IDENTITY, small_config())
    run.finish_stage("first", {})
    run.ledger.add("k", 0, {(1,): 0.5})
    kept = "the finished stages (first) and 1 scores are kept: make room there or make the folder writable, then go on with --resume"
    with pytest.raises(RunError) as caught, run.writing():
        raise OSError(28, "No space left on device", "/there")
    assert str(caught.value) == f"/there: cannot be written (No space left on device); {kept}"
    with pytest.raises(FileNotFoundError), run.writing():
        raise FileNotFoundError(2, "a bug")

    def refuse(*_):
        raise CheckpointError("no") from OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", refuse)
    with pytest.raises(RunError) as caught:
        run.finish_stage("last", {}, tiny_model("bert"))
    place = run.folder / "stages" / "last"
    assert str(caught.value) == f"{place}: cannot be written (No space left on device); {kept}"
    run.close()
