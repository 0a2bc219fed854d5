from __future__ import annotations

import json
import os
import platform
import re
import shutil
import threading

import pytest

from auber.errors import RunError
from auber.run import files as run_files
from auber.study import StudyFolder, read_study
from auber.study.folder import State
from auber.study.plan import Block, StudyRun
from auber.system.locks import HeldError, held
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


@pytest.mark.parametrize("name", ["bert-\N{HUGGING FACE}", 'a "quoted" \\ name', "größe"])
def test_any_name_of_a_model_is_read_back(tmp_path, name):
    (tmp_path / name).mkdir()
    folder, study = StudyFolder(tmp_path / "study"), tiny_study(tmp_path / name)
    folder.open(study)
    assert read_study(folder.path / "study.toml").model == name
    folder.open(study)


def test_a_study_may_grow(tmp_path):
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study(seeds=[1]))
    folder.open(tiny_study(seeds=[0, 2], methods=["auber", "greedy"], draws=3))
    grown = read_study(folder.path / "study.toml")
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
        f"^{re.escape(str(alone))}: done without 'auber', whose tunings it has to share to be compared with it; delete the folder of "
        "each such run to do it anew, or choose another --out to add 'auber'$"
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
    with pytest.raises(
        RunError, match=f"study: holds another study: {message}; use what it had or another"
    ):
        folder.open(tiny_study(**changes))


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(
        RunError, match="must be a new or an empty folder or a study's; choose another --out"
    ):
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
    assert [run.name for run in folder.pending(study, BLOCK)] == ["start", "auber"], (
        "its weights are wanted"
    )
    (folder.run_path(BLOCK, "auber") / "result.json").write_text("{}")
    assert folder.pending(study, BLOCK) == []


def test_a_failure_lies_beside_the_results(tmp_path):
    folder = StudyFolder(tmp_path)
    try:
        raise ValueError("no good\nat all")
    except ValueError as error:
        folder.record_failure(BLOCK, "auber", error)
    folder.record_skip(BLOCK, "random-0", "auber")
    assert (folder.state(BLOCK, "auber"), folder.state(BLOCK, "random-0")) == (
        State.FAILED,
        State.SKIPPED,
    )
    record = json.loads(
        (tmp_path / "agreement" / "seen" / "seed-0" / "auber.failed.json").read_text()
    )
    assert record == {
        "task": "agreement",
        "protocol": "seen",
        "seed": 0,
        "run": "auber",
        "error": "ValueError: no good",
        "skipped": False,
    }
    assert (
        "raise ValueError"
        in (tmp_path / "agreement" / "seen" / "seed-0" / "auber.failed.txt").read_text()
    )
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
        assert (path / ".lock").exists() is is_kept, (
            "a process of this machine is seen to be gone, or not"
        )


def test_a_smaller_study_leaves_the_start_to_the_runs_of_the_larger_one(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.open(tiny_study(methods=["auber", "original"]))
    folder.open(tiny_study(methods=["auber"]))
    for name in ("start", "auber"):
        make_run(folder, name, complete=True)
    folder.drop_weights(BLOCK)
    assert [folder.has_weights(BLOCK, name) for name in ("start", "auber")] == [True, False]


def test_settings_of_a_task_stay_when_other_tasks_join(tmp_path):
    """Both presets agree where no task is named, and on the task that is new, but not on the older one's."""
    plain = {"search.norm": "l2", "reward.fraction": 0.25, "agent.stop_value": 0.2}
    folder = StudyFolder(tmp_path)
    folder.open(
        tiny_study(tasks=["wnli"], model="bert-base-cased", preset="reference", settings={})
    )
    other = tiny_study(tasks=["mrpc"], model="bert-base-cased", preset="paper", settings=plain)
    message = r"holds another study: reward.fraction for task wnli was 1.0 and is now 0.25; use what it had or another"
    with pytest.raises(RunError, match=message):
        folder.open(other)


def test_weights_go_when_results_are_there(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.open(tiny_study(methods=["auber", "original"]))
    make_run(folder, "start", complete=True)
    make_run(folder, "auber", complete=True)
    make_run(folder, "original", complete=False)
    folder.drop_weights(BLOCK)
    assert [folder.has_weights(BLOCK, name) for name in ("start", "auber", "original")] == [
        True,
        False,
        True,
    ]
    (folder.run_path(BLOCK, "original") / "result.json").write_text("{}")
    folder.drop_weights(BLOCK)
    assert not any(folder.has_weights(BLOCK, name) for name in ("start", "auber", "original"))


def test_a_block_is_claimed_once(tmp_path):
    folder = StudyFolder(tmp_path)
    with folder.claim(BLOCK):
        with pytest.raises(HeldError) as caught, StudyFolder(tmp_path).claim(BLOCK):
            pass
        assert caught.value.reason.startswith(f"process {os.getpid()} on {platform.node()} (since ")
        assert caught.value.reason.endswith(") is at work in it")
    with folder.claim(BLOCK):
        pass
    assert list(folder.block_path(BLOCK).iterdir()) == []


def test_a_block_that_cannot_be_made(tmp_path):
    (tmp_path / "agreement").write_text("")
    with pytest.raises(
        RunError, match="seed-0: cannot be created .*; make room there or make the folder writable"
    ):
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


def test_whoever_writes_the_record_for_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("auber.study.folder._RECORDED_WITHIN", 0.1)
    folder = StudyFolder(tmp_path / "study")
    folder.open(tiny_study(seeds=[0]))
    with held(folder.path, ".recording"):
        folder.open(tiny_study(seeds=[0]))  # nothing is to be written
        with pytest.raises(HeldError, match=f"study: process {os.getpid()} on .* is at work in it"):
            folder.open(tiny_study(seeds=[1]))


RESULT = {
    "metric": "accuracy",
    "dev": {"score": 0.5},
    "train": {"score": 1},
    "heads": {"removed": 1, "total": 4},
    "cost": {"seconds": {"total": 1.5}},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"dev": []},
            "'dev.score' must be a finite number, found None; it is damaged, delete .*start to make",
        ),
        (
            {"cost": {"seconds": {"total": "long"}}},
            "'cost.seconds.total' must be a finite number, found 'long'",
        ),
        ({"train": {"score": float("nan")}}, "'train.score' must be a finite number, found nan"),
        ({"metric": None}, "'metric' must be a name"),
    ],
)
def test_a_result_that_is_damaged(tmp_path, changes, message):
    folder = StudyFolder(tmp_path)
    make_run(folder, "start", complete=True)
    path = folder.run_path(BLOCK, "start") / "result.json"
    path.write_text(json.dumps(RESULT))
    assert folder.result(BLOCK, "start") == RESULT
    path.write_text(json.dumps({**RESULT, **changes}))
    with pytest.raises(RunError, match=f"result.json: {message}"):
        folder.result(BLOCK, "start")


# --- what other processes do between two looks ------------------------------------------------------------------------


def test_a_failure_that_is_being_forgotten_is_none(tmp_path, monkeypatch):
    folder = StudyFolder(tmp_path)
    folder.record_failure(BLOCK, "auber", "no good")
    read = run_files.read_json

    def forget_and_read(path):
        StudyFolder(tmp_path).forget_failures(BLOCK, [AUBER])
        return read(path)

    monkeypatch.setattr(run_files, "read_json", forget_and_read)
    assert folder.failure(BLOCK, "auber") is None


def test_a_result_that_is_being_made_again_is_none(tmp_path, monkeypatch):
    folder = StudyFolder(tmp_path)
    make_run(folder, "start", complete=True)
    (folder.run_path(BLOCK, "start") / "result.json").write_text("{")
    with pytest.raises(RunError, match="result.json: cannot be read"):
        folder.result(BLOCK, "start")
    read = run_files.read_json

    def drop_and_read(path):
        StudyFolder(tmp_path).prepare(
            BLOCK, StudyRun("start", None, from_start=False, is_matched=False)
        )
        return read(path)

    monkeypatch.setattr(run_files, "read_json", drop_and_read)
    assert folder.result(BLOCK, "start") is None


def test_a_kill_in_the_middle_of_deleting_leaves_no_half_of_anything(tmp_path, monkeypatch):
    folder, study = StudyFolder(tmp_path), tiny_study(methods=["original"])
    folder.open(study)
    start, delete = study.runs(BLOCK)[0], shutil.rmtree

    def killed(path, **options):
        if path.exists():
            raise KeyboardInterrupt

    for name in ("start", "original"):
        make_run(folder, name, complete=True)
    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.prepare(BLOCK, start)
    assert folder.state(BLOCK, "start") is State.MISSING
    with pytest.raises(KeyboardInterrupt):
        folder.drop_weights(BLOCK)
    assert folder.state(BLOCK, "original") is State.COMPLETE
    assert not folder.has_weights(BLOCK, "original"), "half of a model is none"
    assert not any((path / "run.json").exists() for path in folder.block_path(BLOCK).glob(".*"))
    monkeypatch.setattr(shutil, "rmtree", delete)
    make_run(folder, "start", complete=True)
    folder.prepare(BLOCK, start)
    assert [path.name for path in folder.block_path(BLOCK).iterdir()] == ["original"]
