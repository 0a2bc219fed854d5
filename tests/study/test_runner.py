"""A study in this process: its results, and what happens when a run fails or the process dies."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import time
from pathlib import Path

import pytest
import torch

import auber
from auber import api
from auber.data.generated import make_agreement
from auber.errors import AuberError
from auber.scoring import LayerScorer
from auber.study.folder import State, StudyFolder
from auber.study.plan import Block, select_runs
from auber.study.runner import run_study
from tests.small import small_start
from tests.splits import read_splits
from tests.study.tiny import QUICK, Notes, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)
NAMES = ("start", "auber", "random-0", "original", "original+tuning")

pytestmark = pytest.mark.usefixtures("young_garbage")  # a study collects after each run


def states(study, folder, block=BLOCK) -> dict[str, str]:
    return {run.name: str(folder.state(block, run)) for run in study.runs(block)}


def results(study, folder, block=BLOCK):
    return {run.name: folder.result(block, run) for run in study.runs(block)}


def test_every_run_is_an_ordinary_run_from_one_fine_tuned_model(unbroken):
    study, path, notes = unbroken
    for block in study.blocks():
        found = results(study, StudyFolder(path), block)
        assert {result.start for result in found.values()} == {found["start"].start}
        assert {result.seed for result in found.values()} == {block.seed}
        assert found["start"].kind == "finetune"
        assert found["auber"].heads.removed == found["random-0"].heads.removed > 0
        for name in ("random-0", "original+tuning"):
            assert found[name].tuned_layers == found["auber"].tuned_layers
        assert (found["auber"].command, found["auber"].model) == ("auber study tiny.toml", "tiny")
    ended = [(outcome.block.seed, outcome.run, str(outcome.state)) for outcome in notes.ended]
    assert ended == [(seed, name, "complete") for seed in (0, 1) for name in NAMES]


def test_a_failed_run_skips_those_that_need_it_and_is_tried_again(
    model, unbroken, tmp_path, monkeypatch
):
    prune = api.prune

    def fail_once(*arguments, method, **options):
        if method == "auber":
            raise MemoryError("no room")
        return prune(*arguments, method=method, **options)

    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    with monkeypatch.context() as broken:
        broken.setattr(api, "prune", fail_once)
        outcomes = run_study(study, folder, Notes())
    ends = ("complete", "failed", "skipped", "complete", "skipped")
    assert states(study, folder) == dict(zip(NAMES, ends, strict=True))
    errors = [outcome.error for outcome in outcomes]
    assert errors[1:3] == ["MemoryError: no room", "left out: 'auber' has no result"]
    assert "fail_once" in (folder.block_path(BLOCK) / "auber.failed.txt").read_text()

    outcomes = run_study(study, folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert not list(folder.path.rglob("*.failed.*"))
    assert results_of(study, folder.path) == results_of(study, unbroken[1])


def test_under_heldout_the_controls_are_fine_tuned_on_the_reward_rows_too(model, tmp_path):
    study = tiny_study(model, protocols=["heldout"], methods=["original"])
    folder = StudyFolder(tmp_path / "study")
    run_study(study, folder, Notes())
    (block,) = study.blocks()
    splits, found = read_splits(folder.run_path(block, "original")), results(study, folder, block)
    assert len(splits.original_first) > len(splits.first)
    assert found["start"].cost.tuning_steps == -(-len(splits.first) // 100)
    assert found["original"].cost.tuning_steps == -(-len(splits.original_first) // 100)
    assert found["start"].start != found["original"].start


def test_under_crossfit_fold_models_begin_with_the_pretrained_model(model, tmp_path):
    settings = {**QUICK, "reward.head": 1.0, "agent.choose": "best"}
    study = tiny_study(model, protocols=["crossfit"], settings=settings)
    folder = StudyFolder(tmp_path / "study")
    outcomes = run_study(study, folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    (block,) = study.blocks()
    found = results(study, folder, block)
    assert {result.start for result in found.values()} == {found["start"].start}
    steps = {name: result.cost.tuning_steps for name, result in found.items()}
    assert found["auber"].tuned_layers
    # The first tuning of the pruned model is part of the run; that of the others is the start's.
    assert steps["auber"] - steps["start"] == steps["random-0"] == steps["original+tuning"] > 0
    assert found["auber"].cost.scout_steps > 3 * -(-400 // 100)
    identities = {
        name: json.loads((folder.run_path(block, name) / "run.json").read_text())
        for name in ("start", "auber")
    }
    assert identities["auber"]["origin"] == identities["start"]["weights"]


def test_a_repeated_start_with_other_bits_is_refused(model, tmp_path, monkeypatch):
    """On a GPU the bits may differ; here another learning rate makes them differ."""
    folder = StudyFolder(tmp_path / "study")
    run_study(tiny_study(model, methods=["auber"], keep_weights=False), folder, Notes())
    finetune = api.finetune

    def other_bits(*arguments, config, **options):
        return finetune(*arguments, config=config.replace({"first.learning_rate": 2e-3}), **options)

    monkeypatch.setattr(api, "finetune", other_bits)
    study = tiny_study(model, methods=["auber", "auber-l2", "random"], keep_weights=False)
    run_study(study, folder, Notes())
    later = dict.fromkeys(("auber-l2", "random-0"), "failed")
    assert states(study, folder) == {"start": "complete", "auber": "complete", **later}
    for name in later:
        assert folder.failure(BLOCK, name).error == (
            f"RunError: {folder.block_path(BLOCK)}: the model was fine-tuned again, because its "
            "weights had been deleted, and differs from the one that auber began with, so the runs "
            "cannot be compared; delete this folder to repeat the block"
        )


def test_some_methods_first_and_the_rest_later(model, unbroken, tmp_path):
    _, whole, _ = unbroken
    study, folder = tiny_study(model, keep_weights=False), StudyFolder(tmp_path / "study")
    folder.open(study)
    folder.record_failure(BLOCK, "original", "no room")
    outcomes = run_study(study, folder, Notes(), runs=select_runs(study, ["method=random"]))
    assert [outcome.run for outcome in outcomes] == ["start", "auber", "random-0"]
    assert states(study, folder)["original"] == "failed", "it was not tried again"
    assert folder.has_weights(BLOCK, "start"), "other runs need them"
    assert not folder.has_weights(BLOCK, "auber")

    notes = Notes()
    run_study(study, folder, notes)
    assert [outcome.run for outcome in notes.ended] == ["original", "original+tuning"]
    assert not list(folder.path.rglob("*.safetensors"))
    assert results_of(study, folder.path) == results_of(study, whole)


def test_claims_of_other_processes(model, tmp_path):
    study, notes = tiny_study(model, methods=["original"]), Notes()
    folder = StudyFolder(tmp_path / "study")
    folder.open(study)
    claim = folder.block_path(BLOCK) / ".claim"
    with folder.claim(BLOCK):
        content = json.loads(claim.read_text())
        outcomes = run_study(study, folder, notes)
    assert {outcome.state for outcome in outcomes} == {State.MISSING}
    holder = rf"process {os.getpid()} on {re.escape(platform.node())} \(since \d+-\d\d-\d\d .*\)"
    assert re.fullmatch(rf"{BLOCK}: in use by {holder}; skipped", notes.said[0])

    claim.write_text(json.dumps({**content, "process": 77, "host": "lost-node"}))
    assert {outcome.state for outcome in run_study(study, folder, notes)} == {State.MISSING}
    assert notes.said[1].startswith(f"{BLOCK}: locked by process 77 on lost-node (since ")
    assert f": make sure that it has, delete {claim}, and start again" in notes.said[1]

    claim.write_text(json.dumps({**content, "process": 2**31 - 1}))  # killed, on this machine
    assert {outcome.state for outcome in run_study(study, folder, notes)} == {State.COMPLETE}
    assert not claim.exists()


def study_slowly(model: Path, folder: Path) -> None:
    """Do a study slowly enough to be killed in a search."""
    torch.set_num_threads(1)
    score_many = LayerScorer.score_many
    LayerScorer.score_many = lambda *arguments: (time.sleep(0.2), score_many(*arguments))[1]
    run_study(tiny_study(model), StudyFolder(folder), Notes())


def test_a_killed_study_goes_on_to_the_same_results(model, unbroken, starter, tmp_path):
    _, whole, _ = unbroken
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    process = starter.Process(target=study_slowly, args=(model, folder.path))
    process.start()
    ledger = folder.run_path(BLOCK, "auber") / "scores.jsonl"
    deadline = time.monotonic() + 120
    while not ledger.is_file() or ledger.read_text().count("\n") < 2:
        assert process.is_alive(), "the study ended before it could be killed"
        assert time.monotonic() < deadline, "the search never began"
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert states(study, folder)["start"] == "complete"
    assert states(study, folder)["auber"] == "unfinished"

    outcomes = run_study(study, folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert results_of(study, folder.path) == results_of(study, whole)


def test_texts_without_labels(tmp_path):
    """No model is fine-tuned first, and the record says that the rows have no labels."""
    auber.save(*small_start(num_labels=1), tmp_path / "model")
    texts, sentences = tmp_path / "texts.jsonl", make_agreement(0, 120, 24).train.first
    texts.write_text("".join(f"{json.dumps({'text': text})}\n" for text in sentences))
    study = tiny_study(
        tmp_path / "model",
        tasks={"films": {"texts": str(texts)}},
        methods=["auber", "random", "original+tuning"],
    )
    folder = StudyFolder(tmp_path / "study")
    (block,) = study.blocks()
    assert [run.name for run in study.runs(block)] == ["auber", "random-0", "original+tuning"]
    run_study(study, folder, Notes())
    recorded = folder.recorded()
    assert recorded.tasks["films"].is_answered
    assert [run.name for run in recorded.runs(block)] == ["auber", "random-0", "original+tuning"]
    for run in study.runs(block):
        assert folder.result(block, run).answered
    run_study(study, folder, Notes())  # nothing is left to do, and the rows are the same
    texts.write_text(texts.read_text() + '{"text": "another text"}')
    with pytest.raises(AuberError, match="task films has other rows than it had"):
        run_study(study, folder, Notes())
