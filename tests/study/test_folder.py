from __future__ import annotations

import json
import os
import platform
import re
import shutil
import threading

import pytest

from auber.errors import RunError
from auber.run.result_record import ResultRecord
from auber.study import folder as study_folder
from auber.study.folder import Clock, State, StudyFolder
from auber.study.plan import Block, StudyRun, read_study, select_runs
from auber.system import records
from auber.system.locks import HeldError, held
from tests.study.tiny import QUICK, tiny_study

BLOCK = Block("agreement", "seen", 0)
START = StudyRun("start", None, from_start=False, is_matched=False)
AUBER = StudyRun("auber", "auber", from_start=True, is_matched=False)


def make_run(folder: StudyFolder, name: str, *, complete: bool) -> None:
    path = folder.run_path(BLOCK, name)
    (path / "model").mkdir(parents=True)
    (path / "run.json").write_text("{}")
    if complete:
        (path / "result.json").write_text("{}")


def pending(folder: StudyFolder, study) -> list[str]:
    return [run.name for _, run in folder.pending(study, select_runs(study))]


def test_a_study_may_grow(tmp_path):
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study(seeds=[1]))
    folder.open(tiny_study(seeds=[0, 2], methods=["auber", "greedy"], draws=3))
    grown = folder.recorded()
    assert grown.seeds == (1, 0, 2)
    assert grown.methods == ("auber", "random", "original", "original+tuning", "greedy")
    assert grown.draws == 3


def test_auber_is_not_added_to_what_was_done_without_it(tmp_path):
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study(methods=["original", "original+tuning"], seeds=[0, 1]))
    make_run(folder, "original", complete=True)
    make_run(folder, "original+tuning", complete=True)
    both = tiny_study(methods=["original+tuning", "auber"])
    alone = folder.run_path(BLOCK, "original+tuning")
    message = (
        f"^{re.escape(str(alone))}: done without 'auber', but its fine-tuning must be the same; "
        "delete its folder to repeat it, or choose another folder for --out to add 'auber'$"
    )
    with pytest.raises(RunError, match=message):
        folder.check(both)
    folder.check(tiny_study(methods=["original+tuning"], seeds=[0, 2]))
    shutil.rmtree(alone)
    folder.open(both)
    make_run(folder, "original+tuning", complete=True)
    folder.open(both)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {**QUICK, "agent.episodes": 9}}, "agent.episodes was 3 and is now 9"),
        (
            {"tasks": {"agreement": {"agent.gamma": 0.5}}},
            "agent.gamma for task agreement was 1.0 and is now 0.5",
        ),
        (
            {"preset": "reference"},
            "reward.fraction was 0.666.* and is now 0.25, search.norm was 'l1' and is now 'l2'",
        ),
        ({"model": "other"}, "model was 'agreement' and is now 'other'"),
    ],
)
def test_another_study_is_refused(tmp_path, changes, message):
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study())
    message = (
        f"study: holds another study: {message}; restore that or choose another folder for --out$"
    )
    with pytest.raises(RunError, match=message):
        folder.open(tiny_study(**changes))


def test_settings_of_a_task_stay_when_other_tasks_join(tmp_path):
    """Both presets agree for all tasks but the older study's."""
    plain = {"search.norm": "l2", "reward.fraction": 0.25, "agent.stop_value": 0.2}
    bert = {"model": "bert-base-cased"}
    folder = StudyFolder(tmp_path)
    folder.open(tiny_study(tasks=["wnli"], preset="reference", settings={}, **bert))
    message = "holds another study: reward.fraction for task wnli was 1.0 and is now 0.25; restore"
    with pytest.raises(RunError, match=message):
        folder.open(tiny_study(tasks=["mrpc"], preset="paper", settings=plain, **bert))


def test_a_foreign_folder_is_refused(tmp_path):
    message = "must be a study's folder, an empty or a new one; choose another folder for --out"
    (tmp_path / "letter.txt").write_text("dear")
    for path in (tmp_path, tmp_path / "letter.txt"):
        with pytest.raises(RunError, match=message):
            StudyFolder(path).open(tiny_study())


def test_the_state_of_a_run(tmp_path):
    folder, study = StudyFolder(tmp_path), tiny_study(methods=["auber"])
    assert folder.state(BLOCK, "auber") is State.MISSING
    assert pending(folder, study) == ["start", "auber"]
    make_run(folder, "start", complete=True)
    make_run(folder, "auber", complete=False)
    assert folder.state(BLOCK, "auber") is State.UNFINISHED
    assert pending(folder, study) == ["auber"]
    (folder.run_path(BLOCK, "start") / "model").rmdir()
    assert pending(folder, study) == ["start", "auber"], "its weights are needed"
    (folder.run_path(BLOCK, "auber") / "result.json").write_text("{}")
    assert pending(folder, study) == []


def test_a_failure_is_recorded_beside_the_runs(tmp_path):
    folder = StudyFolder(tmp_path)
    block = tmp_path / "agreement" / "seen" / "seed-0"
    try:
        raise ValueError("no good\nat all")
    except ValueError as error:
        folder.record_failure(BLOCK, "auber", error)
    folder.record_failure(BLOCK, "random-0", "no auber", skipped=True)
    assert folder.state(BLOCK, "auber") is State.FAILED
    assert folder.state(BLOCK, "random-0") is State.SKIPPED
    assert json.loads((block / "auber.failed.json").read_text()) == {
        "error": "ValueError: no good",
        "skipped": False,
    }
    assert "raise ValueError" in (block / "auber.failed.txt").read_text()
    assert folder.failure(BLOCK, "random-0").error == "no auber"
    folder.clear_failure(BLOCK, AUBER)
    assert folder.state(BLOCK, "auber") is State.MISSING
    assert [path.name for path in block.iterdir()] == ["random-0.failed.json"]


def test_the_lock_of_a_lost_node_is_dropped(tmp_path):
    folder = StudyFolder(tmp_path)
    path = folder.run_path(BLOCK, "auber")
    path.mkdir(parents=True)
    for host, is_kept in ((platform.node(), True), ("lost-node", False)):
        (path / ".lock").write_text(json.dumps({"process": 1, "started": 1.0, "host": host}))
        assert folder.prepare(BLOCK, AUBER) == path
        assert (path / ".lock").exists() is is_kept


@pytest.mark.parametrize("asked", [["auber"], ["auber", "original"]])
def test_weights_go_when_no_run_needs_them(tmp_path, asked):
    """Those of the first run stay for runs that any call asked for."""
    folder = StudyFolder(tmp_path)
    folder.open(tiny_study(methods=["auber", "original"]))
    folder.open(tiny_study(methods=asked))
    names = ("start", "auber", "original")
    for name in names:
        make_run(folder, name, complete=name != "original")
    folder.delete_weights(BLOCK)
    assert [folder.has_weights(BLOCK, name) for name in names] == [True, False, True]
    (folder.run_path(BLOCK, "original") / "result.json").write_text("{}")
    folder.delete_weights(BLOCK)
    assert not any(folder.has_weights(BLOCK, name) for name in names)


def test_a_block_is_claimed_once(tmp_path):
    folder = StudyFolder(tmp_path)
    with folder.claim(BLOCK):
        with pytest.raises(HeldError) as caught, StudyFolder(tmp_path).claim(BLOCK):
            pass
        assert caught.value.reason.startswith(f"in use by process {os.getpid()} on ")
    with folder.claim(BLOCK):
        pass
    assert list(folder.block_path(BLOCK).iterdir()) == []


def test_a_block_that_cannot_be_made(tmp_path):
    (tmp_path / "agreement").write_text("")
    with pytest.raises(RunError, match="seed-0: cannot be created .*; make room there or make the"):
        StudyFolder(tmp_path).claim(BLOCK).__enter__()


def test_studies_that_grow_at_once_lose_nothing(tmp_path):
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study(seeds=[0]))
    barrier = threading.Barrier(6)

    def grow(seed):
        barrier.wait()
        StudyFolder(folder.path).open(tiny_study(seeds=[seed]))

    threads = [threading.Thread(target=grow, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_study(folder.path / "study.toml").seeds) == list(range(7))
    assert [path.name for path in folder.path.iterdir()] == ["study.toml"]


def test_a_process_that_holds_the_record_for_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(study_folder, "_RECORDED_WITHIN", 0.1)
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study(seeds=[0]))
    with held(folder.path, ".recording"):
        folder.open(tiny_study(seeds=[0]))  # nothing to write
        with pytest.raises(HeldError, match=f"study: in use by process {os.getpid()} on "):
            folder.open(tiny_study(seeds=[1]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read .*; it is damaged: delete .*start to repeat the run$"),
        ('{"metric": 3}', "lacks 'dev'; .*'metric' must be text, found 3; "),
    ],
)
def test_a_damaged_result(tmp_path, content, message):
    folder = StudyFolder(tmp_path)
    make_run(folder, "start", complete=True)
    (folder.run_path(BLOCK, "start") / "result.json").write_text(content)
    with pytest.raises(RunError, match=f"result.json: {message}"):
        folder.result(BLOCK, "start")


def test_a_file_that_another_process_deletes_meanwhile_is_none(tmp_path, monkeypatch):
    folder, read = StudyFolder(tmp_path), records.read
    make_run(folder, "start", complete=True)
    folder.record_failure(BLOCK, "auber", "no good")

    def delete_and_read(cls, path, remedy):
        if cls is ResultRecord:
            folder.prepare(BLOCK, START)
        else:
            folder.clear_failure(BLOCK, AUBER)
        return read(cls, path, remedy)

    monkeypatch.setattr(records, "read", delete_and_read)
    assert folder.failure(BLOCK, "auber") is None
    assert folder.result(BLOCK, "start") is None


def test_a_kill_while_deleting_leaves_no_half_of_anything(tmp_path, monkeypatch):
    folder, study = StudyFolder(tmp_path), tiny_study(methods=["original"])
    folder.open(study)
    delete = shutil.rmtree

    def killed(path, **options):
        if path.exists():
            raise KeyboardInterrupt

    for name in ("start", "original"):
        make_run(folder, name, complete=True)
    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.prepare(BLOCK, START)
    assert folder.state(BLOCK, "start") is State.MISSING
    with pytest.raises(KeyboardInterrupt):
        folder.delete_weights(BLOCK)
    assert folder.state(BLOCK, "original") is State.COMPLETE
    assert not folder.has_weights(BLOCK, "original"), "half of a model is none"
    assert not any((path / "run.json").exists() for path in folder.block_path(BLOCK).glob(".*"))
    monkeypatch.setattr(shutil, "rmtree", delete)
    make_run(folder, "start", complete=True)
    folder.prepare(BLOCK, START)
    assert [path.name for path in folder.block_path(BLOCK).iterdir()] == ["original"]


def run_of(method: str | None) -> StudyRun:
    return StudyRun(method or "start", method, from_start=method is not None, is_matched=False)


def test_a_run_is_expected_to_take_as_long_as_its_kind():
    clock = Clock()
    clock.add("rte", "auber", 10)
    clock.add("rte", "auber", 20)
    clock.add("cola", "auber", 60)
    assert clock.expect("rte", "auber") == 15
    assert clock.expect("mrpc", "auber") == 30, "its method on any task"
    assert clock.expect("rte", None) is None
    open_runs = [(Block("rte", "seen", 1), run_of(name)) for name in ("auber", None)]
    assert clock.estimate(open_runs) == (15, 1)
    assert clock.guess(open_runs) == 15 + 30
    assert clock.guess([]) is None
    assert Clock().guess(open_runs) is None
