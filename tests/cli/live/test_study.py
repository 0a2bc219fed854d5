from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

import pytest

from auber.cli.live.drawing import ASCII, Sheet
from auber.cli.live.study import StudyWatcher
from auber.cli.live.study_drawing import draw_study
from auber.study import StudyFolder, run_study
from auber.study.plan import Block
from tests.cli.live.folders import NOW, RunFolder
from tests.study.tiny import Notes, tiny_model_folder, tiny_study

BLOCK = Block("agreement", "seen", 1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study of which seed 0 is done: its folder."""
    place = tmp_path_factory.mktemp("study")
    study = tiny_study(tiny_model_folder(place), methods=["original"], seeds=[0, 1])
    from auber.study import select_runs

    run_study(study, StudyFolder(place / "study"), Notes(), runs=select_runs(study, ["seed=0"]))
    return place / "study"


@pytest.fixture
def folder(finished, tmp_path):
    """A copy to go on in."""
    import shutil

    return StudyFolder(shutil.copytree(finished, tmp_path / "study"))


def look(folder):
    return StudyWatcher(folder.path, clock=lambda: NOW).look()


def drawn(view, width=100, height=None):
    return [line.plain for line in draw_study(view, Sheet(width, height, ASCII))]


def states(view):
    return [[cell.state for cell in block.cells] for block in view.blocks]


def test_a_study_between_two_calls(folder):
    view = look(folder)
    assert states(view) == [["complete", "complete"], ["missing", "missing"]]
    assert (view.settled, view.total, view.someone_at_work, view.is_left) == (2, 4, False, True)
    assert view.seconds_left > 0
    assert view.blocks[0].cells[0].dev is not None
    lines = drawn(view)
    assert "agreement seen seed 0  +      +" in lines
    assert "agreement seen seed 1  .      ." in lines
    assert any(
        line.startswith("nobody is at work; the same 'auber study ... --out ") for line in lines
    )
    json.dumps(asdict(view))


def test_a_run_at_work(folder):
    run = RunFolder(folder.run_path(BLOCK, "start"))
    run.start()
    run.progress("first tuning", 5, 10)
    view = look(folder)
    assert states(view)[1] == ["running", "missing"]
    assert (view.someone_at_work, view.is_left) == (True, False)
    assert any(
        "> agreement/seen/seed-1/start  " in line and "first tuning 5/10" in line
        for line in drawn(view)
    )


def test_between_two_runs_the_claim_shows_who_is_at_work(folder):
    with folder.claim(BLOCK):
        claim = folder.block_path(BLOCK) / ".claim"
        content = claim.read_text()
        assert look(folder).someone_at_work is True
    claim.write_text(content.replace(f'"process": {os.getpid()}', '"process": 2147483647'))
    assert look(folder).someone_at_work is False, "it was killed"
    claim.write_text(json.dumps({**json.loads(content), "host": "elsewhere.example"}))
    assert look(folder).someone_at_work is None
    claim.write_text("")
    assert look(folder).someone_at_work is False


def test_a_run_on_another_machine_leaves_the_question_open(folder):
    run = RunFolder(folder.run_path(BLOCK, "start"))
    run.start()
    run.progress("first tuning", 5, 10, host="elsewhere.example")
    view = look(folder)
    assert (view.someone_at_work, view.is_left) == (None, False)


def test_failures_are_told_and_a_study_of_settled_runs_is_over(folder):
    folder.record_failure(BLOCK, "start", ValueError("no luck"))
    folder.record_skip(BLOCK, "original", "start")
    view = look(folder)
    assert states(view)[1] == ["failed", "skipped"]
    assert view.is_over
    lines = drawn(view)
    assert "agreement seen seed 1 start: ValueError: no luck" in lines
    assert not view.is_complete
    told = f"all runs are settled, 1 failed and 1 skipped; the same 'auber study ... --out {folder.path}' tries them again"
    assert told[:100] in lines
    assert lines[-1] == "+ 2 complete  x 1 failed  ~ 1 skipped"


def test_a_study_with_all_its_results_is_complete(folder, run_auber):
    import shutil

    shutil.copytree(folder.block_path(replace(BLOCK, seed=0)), folder.block_path(BLOCK))
    view = look(folder)
    assert (view.is_over, view.is_complete) == (True, True)
    assert f"all runs are settled; next: auber report {folder.path}"[:100] in drawn(view)
    assert run_auber("watch", folder.path)[0] == 0


@pytest.mark.parametrize("option", [[], ["--once"], ["--json"]])
def test_a_study_that_ended_with_failures_is_exit_code_1(folder, run_auber, option):
    folder.record_failure(BLOCK, "start", ValueError("no luck"))
    folder.record_skip(BLOCK, "original", "start")
    assert run_auber("watch", folder.path, *option)[0] == 1


@pytest.mark.parametrize(("width", "height"), [(30, 6), (40, 24), (80, 24)])
def test_no_terminal_is_too_small(folder, width, height):
    lines = drawn(look(folder), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_names_that_do_not_fit_are_numbered(folder):
    lines = drawn(look(folder), 36)
    assert "1 start  2 original" in lines
