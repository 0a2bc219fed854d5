from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from rich.console import Console

from auber.cli.study_status import StudyReader
from auber.cli.watch import draw
from auber.study import StudyFolder, run_study, select_runs
from auber.study.plan import Block
from tests.cli.run_folder import NOW, RunFolder
from tests.study.tiny import Notes, tiny_model_folder, tiny_study

BLOCK = Block("agreement", "seen", 1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a study of which seed 0 is done."""
    place = tmp_path_factory.mktemp("study")
    study = tiny_study(tiny_model_folder(place), methods=["original"], seeds=[0, 1])
    selection = select_runs(study, ["seed=0"])
    run_study(study, StudyFolder(place / "study"), Notes(), selection=selection)
    return place / "study"


@pytest.fixture
def folder(finished, tmp_path):
    return StudyFolder(shutil.copytree(finished, tmp_path / "study"))


def read(folder):
    return StudyReader(folder.path, clock=lambda: NOW).read()


def drawn(status, width=300):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(draw(status, console))
    return [line.rstrip() for line in capture.get().splitlines()]


def states(status):
    found = [cell.state for cell in status.cells]
    return [found[:2], found[2:]]


def fail(folder):
    folder.record_failure(BLOCK, "start", ValueError("no luck"))
    folder.record_skip(BLOCK, "original", "start")


def test_a_study_between_two_calls(folder):
    status = read(folder)
    assert states(status) == [["complete", "complete"], ["missing", "missing"]]
    assert (status.settled, status.total, status.state) == (2, 4, "stopped")
    assert status.seconds_left > 0
    assert status.cells[0].dev is not None
    lines = drawn(status)
    assert "agreement seen seed 0  ✓      ✓" in lines
    assert "agreement seen seed 1  ·      ·" in lines
    same = f"the same 'auber study ... --out {folder.path}' goes on from here"
    assert f"nobody is at work; {same}" in lines
    json.dumps(status.to_json())


def test_a_current_run(folder):
    run = RunFolder(folder.run_path(BLOCK, "start"))
    run.start()
    run.progress("first tuning", 5, 10)
    status = read(folder)
    assert (states(status)[1], status.state) == (["running", "missing"], "running")
    (line,) = [line for line in drawn(status) if line.startswith("▶ agreement/seen/seed-1/start")]
    assert "first tuning 5/10" in line


def test_between_two_runs_the_claim_names_the_process(folder):
    with folder.claim(BLOCK):
        claim = folder.block_path(BLOCK) / ".claim"
        content = claim.read_text()
        assert read(folder).state == "running"
    for process, host, state in (
        (2147483647, None, "stopped"),
        (1, "elsewhere.example", "elsewhere"),
    ):
        changes = {"process": process, **({"host": host} if host else {})}
        claim.write_text(json.dumps({**json.loads(content), **changes}))
        assert read(folder).state == state
    claim.write_text("")
    assert read(folder).state == "stopped"


def test_a_run_on_another_machine(folder):
    run = RunFolder(folder.run_path(BLOCK, "start"))
    run.start()
    run.progress("first tuning", 5, 10, host="elsewhere.example")
    assert read(folder).state == "elsewhere"


def test_failed_runs(folder):
    fail(folder)
    status = read(folder)
    assert (states(status)[1], status.state) == (["failed", "skipped"], "failed")
    lines = drawn(status)
    assert "agreement seen seed 1 start: ValueError: no luck" in lines
    again = f"the same 'auber study ... --out {folder.path}' tries them again"
    assert f"all runs are settled, 1 failed and 1 skipped; {again}" in lines
    assert lines[-1] == "✓ 2 complete  ✗ 1 failed  ○ 1 skipped"


@pytest.mark.parametrize("option", [[], ["--once"], ["--json"]])
def test_a_failed_study_is_exit_code_1(folder, run_auber, option):
    fail(folder)
    assert run_auber("watch", folder.path, *option)[0] == 1


def test_a_complete_study(folder, run_auber):
    shutil.copytree(folder.block_path(replace(BLOCK, seed=0)), folder.block_path(BLOCK))
    status = read(folder)
    assert status.state == "complete"
    assert f"all runs are settled; next: auber report {folder.path}" in drawn(status)
    assert run_auber("watch", folder.path)[0] == 0


@pytest.mark.parametrize("width", [30, 80])
def test_no_line_is_wider_than_the_terminal(folder, width):
    assert max(map(len, drawn(read(folder), width))) <= width
