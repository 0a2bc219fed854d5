from __future__ import annotations

import json
import os
import platform

import pytest

from auber.errors import RunError
from auber.study import StudyFolder, read_study
from auber.study.folder import State
from auber.study.plan import Block, StudyRun
from tests.study.tiny import QUICK, tiny_study

BLOCK = Block("agreement", "seen", 0)
AUBER = StudyRun("auber", "auber", from_start=True, is_matched=False)


def make_run(folder: StudyFolder, name: str, *, complete: bool) -> None:
    path = folder.run_path(BLOCK, name)
    (path / "model").mkdir(parents=True)
    (path / "run.json").write_text("{}")
    if complete:
        (path / "result.json").write_text("{}")


def test_the_folder_records_its_study(tmp_path):
    folder, study = StudyFolder(tmp_path / "new" / "study"), tiny_study()
    folder.open(study)
    assert read_study(folder.path / "study.toml") == study
    folder.check(study)


def test_a_study_may_grow(tmp_path):
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study(seeds=[1]))
    folder.open(tiny_study(seeds=[0, 2], methods=["auber", "greedy"], draws=3))
    grown = read_study(folder.path / "study.toml")
    assert grown.seeds == (1, 0, 2)
    assert grown.methods == ("auber", "random", "original", "original+tuning", "greedy")
    assert grown.draws == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {**QUICK, "agent.episodes": 9}}, "agent.episodes was 3 and is now 9"),
        (
            {"tasks": {"agreement": {"agent.gamma": 0.5}}},
            "agent.gamma for task agreement was 1.0 and is now 0.5",
        ),
        ({"preset": "reference"}, "reward.fraction was 0.666.* and is now 0.25, search.norm was 'l1' and is now 'l2'"),
        ({"model": "other"}, "model was 'agreement' and is now 'other'"),
    ],
)
def test_another_study_is_refused(tmp_path, changes, message):
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study())
    with pytest.raises(RunError, match=f"study: holds another study: {message}; use the same settings or another"):
        folder.open(tiny_study(**changes))


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="must be a new or an empty folder or a study's; choose another --out"):
        StudyFolder(tmp_path).open(tiny_study())
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file: must be a new or an empty folder"):
        StudyFolder(tmp_path / "file").open(tiny_study())


def test_the_state_is_what_lies_there(tmp_path):
    folder, study = StudyFolder(tmp_path), tiny_study(methods=["auber"])
    assert folder.state(BLOCK, "auber") is State.MISSING
    assert [run.name for run in folder.pending(study, BLOCK)] == ["start", "auber"]
    make_run(folder, "start", complete=True)
    make_run(folder, "auber", complete=False)
    assert folder.state(BLOCK, "auber") is State.UNFINISHED
    assert [run.name for run in folder.pending(study, BLOCK)] == ["auber"]
    (folder.run_path(BLOCK, "start") / "model").rmdir()
    assert [run.name for run in folder.pending(study, BLOCK)] == ["start", "auber"], "its weights are wanted"
    (folder.run_path(BLOCK, "auber") / "result.json").write_text("{}")
    assert folder.pending(study, BLOCK) == []


def test_a_failure_lies_beside_the_results(tmp_path):
    folder = StudyFolder(tmp_path)
    try:
        raise ValueError("no good\nat all")
    except ValueError as error:
        folder.record_failure(BLOCK, "auber", error)
    folder.record_skip(BLOCK, "random-0", "auber")
    assert (folder.state(BLOCK, "auber"), folder.state(BLOCK, "random-0")) == (State.FAILED, State.SKIPPED)
    record = json.loads((tmp_path / "agreement" / "seen" / "seed-0" / "auber.failed.json").read_text())
    assert record == {
        "task": "agreement",
        "protocol": "seen",
        "seed": 0,
        "run": "auber",
        "error": "ValueError: no good",
        "skipped": False,
    }
    assert "raise ValueError" in (tmp_path / "agreement" / "seen" / "seed-0" / "auber.failed.txt").read_text()
    assert folder.failure(BLOCK, "random-0").error == "left out: 'auber' has no result"
    folder.forget_failures(BLOCK, [AUBER])
    assert folder.state(BLOCK, "auber") is State.MISSING
    assert [path.name for path in folder.block_path(BLOCK).iterdir()] == ["random-0.failed.json"]


def test_the_lock_of_a_node_that_was_lost_is_not_waited_for(tmp_path):
    folder = StudyFolder(tmp_path)
    path = folder.run_path(BLOCK, "auber")
    path.mkdir(parents=True)
    for host, is_kept in ((platform.node(), True), ("lost-node", False)):
        (path / ".lock").write_text(json.dumps({"process": 1, "started": 1.0, "host": host}))
        assert folder.prepare(BLOCK, AUBER) == path
        assert (path / ".lock").exists() is is_kept, "a process of this machine is seen to be gone, or not"


def test_weights_go_when_results_are_there(tmp_path):
    folder, study = StudyFolder(tmp_path), tiny_study(methods=["auber", "original"])
    make_run(folder, "start", complete=True)
    make_run(folder, "auber", complete=True)
    make_run(folder, "original", complete=False)
    folder.drop_weights(study, BLOCK)
    assert [folder.has_weights(BLOCK, name) for name in ("start", "auber", "original")] == [True, False, True]
    (folder.run_path(BLOCK, "original") / "result.json").write_text("{}")
    folder.drop_weights(study, BLOCK)
    assert not any(folder.has_weights(BLOCK, name) for name in ("start", "auber", "original"))


def test_a_block_is_claimed_once(tmp_path):
    folder = StudyFolder(tmp_path)
    with folder.claim(BLOCK) as first:
        assert first
        assert (folder.block_path(BLOCK) / ".claim").read_text() == f"{os.getpid()}\n"
        with StudyFolder(tmp_path).claim(BLOCK) as second:
            assert not second
    with folder.claim(BLOCK) as again:
        assert again
