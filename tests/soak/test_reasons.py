"""Why a drill failed is told while what it left is still there."""

from __future__ import annotations

import pytest

from auber.study import State, StudyFolder, run_study
from tests.soak import __main__ as soak
from tests.soak import standins
from tests.soak.reasons import describe_failure, keep_failure
from tests.study.tiny import Notes, tiny_model_folder


@standins.known()
def failed_study(folder):
    """A study of three runs, the last of which fails, in a folder."""
    study = standins.make_short_study(tiny_model_folder(folder), 3)
    place = StudyFolder(folder / "study")
    place.open(study)
    (block,) = study.blocks()
    place.run_path(block, "sleep-1").mkdir(parents=True)
    (place.run_path(block, "sleep-1") / "letter.txt").write_text("dear")
    outcomes = run_study(study, place, Notes())
    assert [outcome.state for outcome in outcomes] == [State.COMPLETE, State.COMPLETE, State.FAILED]


def test_the_runs_tell_why(tmp_path):
    failed_study(tmp_path)
    try:
        raise AssertionError("1 runs have no result")
    except AssertionError as error:
        text = describe_failure("study_here", error, tmp_path)
    assert text.startswith("=== study_here failed\nTraceback ")
    assert "AssertionError: 1 runs have no result\n1 runs below" in text
    assert "--- study/soak/seen/seed-0/sleep-1.failed.json\n" in text
    assert "must be a new or an empty folder; choose another --out" in text
    assert "--- study/soak/seen/seed-0/sleep-1.failed.txt\nTraceback " in text


def test_what_is_kept_is_added_to(tmp_path):
    out = tmp_path / "new" / "soak.json"
    for text in ("one\n", "two\n"):
        kept = keep_failure(out, text)
    assert kept == tmp_path / "new" / "soak.failures.txt"
    assert kept.read_text() == "one\ntwo\n"


def test_the_drills_keep_it(tmp_path, monkeypatch, capsys):
    def break_off(folder, runs):
        (folder / "a.failed.json").write_text('{"error": "no luck"}')
        raise AssertionError(f"{runs} runs")

    monkeypatch.setattr(soak, "ON_LOAD", (soak.partial(break_off, runs=7),))
    monkeypatch.setattr(
        "sys.argv", ["soak", "--out", str(tmp_path / "soak.json"), "--only", "break_off"]
    )
    with pytest.raises(SystemExit, match="1 drills failed"):
        soak.main()
    kept = (tmp_path / "soak.failures.txt").read_text()
    assert "AssertionError: 7 runs" in kept
    assert '{"error": "no luck"}' in kept
    assert kept in capsys.readouterr().err
