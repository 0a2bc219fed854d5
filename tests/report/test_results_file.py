from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from auber.errors import AuberError, ConfigError, RunError
from auber.report.results_file import read_place, read_results_file, save_results
from tests.report.results import collect, make_result, write_plan, write_run

METHODS = ["auber", "original+tuning"]


@pytest.fixture
def study(tmp_path):
    """A study of two seeds, of which one is done."""
    folder = tmp_path / "study"
    write_plan(folder, ["rte"], METHODS, [0, 1])
    fill(folder, 0)
    return folder


def fill(folder, seed, **changes):
    block = f"rte/seen/seed-{seed}"
    write_run(
        folder,
        f"{block}/start",
        make_result("rte", "original", seed, 0.6, kind="finetune", **changes),
    )
    for method in METHODS:
        write_run(folder, f"{block}/{method}", make_result("rte", method, seed, 0.61, **changes))


def lines_of(file):
    return file.read_text().splitlines()


def test_a_line_a_run(study, tmp_path):
    file = tmp_path / "new" / "r.json"
    saved = save_results(study, file)
    assert (saved.added, saved.present, saved.total) == (3, 0, 3)
    content = json.loads(file.read_text())
    assert (content["format"], content["kind"]) == (1, "runs")
    assert (content["study"]["methods"], content["study"]["seeds"]) == (METHODS, [0, 1])
    assert [run["folder"].rpartition("/")[2] for run in content["runs"]] == ["start", *METHODS]
    for run in content["runs"]:
        assert json.dumps(run, ensure_ascii=False) in [line.rstrip(",") for line in lines_of(file)]
    assert read_results_file(file).kind == "runs"


def test_new_runs_are_added_and_those_not_in_the_folder_stay(study, tmp_path):
    file = tmp_path / "r.json"
    write_run(study, "rte/seen/seed-1/auber", None)
    save_results(study, file)
    before = lines_of(file)
    assert [run["reason"] for run in json.loads(file.read_text())["left_out"]] == ["unfinished"]
    shutil.rmtree(study / "rte")
    fill(study, 1, config={"seed": 1, "agent.episodes": 150, "later": "new"})
    saved = save_results(study, file)
    assert (saved.added, saved.present, saved.total) == (3, 0, 6)
    content = json.loads(file.read_text())
    assert content["left_out"] == [], "it has a result by now"
    assert [run["seed"] for run in content["runs"]] == [0, 0, 0, 1, 1, 1]
    kept = {line.rstrip(",") for line in before if line.startswith('{"folder": "rte/seen/seed-0')}
    assert len(kept) == 3
    assert kept < {line.rstrip(",") for line in lines_of(file)}, (
        "what was there is there byte for byte"
    )
    added = read_place(file).records[3]
    assert content["runs"][3]["settings"] == {"seed": 1, "later": "new"}
    assert content["runs"][3]["lacking"] == ["last.epochs", "random.draw"]
    assert added.config == {"seed": 1, "agent.episodes": 150, "later": "new"}


def test_a_file_is_saved_into_another_like_a_folder(study, tmp_path):
    """A study done block by block on several machines, each of which hands back a file."""
    write_plan(tmp_path / "other", ["rte"], METHODS, [0, 1])
    fill(tmp_path / "other", 1)
    save_results(tmp_path / "other", tmp_path / "part.json")
    fill(study, 1)
    save_results(study, tmp_path / "whole.json")
    shutil.rmtree(study / "rte/seen/seed-1")
    save_results(study, tmp_path / "r.json")
    saved = save_results(tmp_path / "part.json", tmp_path / "r.json")
    assert (saved.added, saved.present, saved.total) == (3, 0, 6)
    assert (tmp_path / "r.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_another_result_of_a_run_is_refused_and_both_are_named(study, tmp_path):
    file = tmp_path / "r.json"
    save_results(study, file)
    before = file.read_bytes()
    shutil.rmtree(study / "rte/seen/seed-0/auber")
    write_run(study, "rte/seen/seed-0/auber", make_result("rte", "auber", 0, 0.63))
    message = (
        r"r.json: rte/seen/seed-0/auber and \S+study: rte/seen/seed-0/auber: two different results "
        r"of mpnet-base, rte, protocol seen, auber, seed 0 \(dev 61.00, 20 heads removed, 12.5 s "
        r"and dev 63.00, .*\); a results file keeps one"
    )
    with pytest.raises(RunError, match=message):
        save_results(study, file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(("start", "starts"), [("weights of rte, 0", 1), ("other weights", 2)])
def test_a_start_that_was_made_again(study, tmp_path, start, starts):
    """Of the same weights it is the same start, whatever it took; of others it is another one."""
    file = tmp_path / "r.json"
    save_results(study, file)
    shutil.rmtree(study / "rte/seen/seed-0/start")
    changes = {"kind": "finetune", "start": start, "cost.seconds": {"total": 99.0}}
    write_run(study, "rte/seen/seed-0/start", make_result("rte", "original", 0, 0.6, **changes))
    save_results(study, file)
    found = [record for record in read_place(file).records if record.is_start]
    assert len(found) == starts
    assert 12.5 in [record.seconds for record in found]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.update(kind="x"), "must hold runs, found results of kind 'x'; leave it"),
        (lambda file: file.update(format=2), "'format' must be 1, found 2; .* save the results ag"),
        (lambda file: file.update(notes=[3]), "'notes.0' must be text, found 3"),
        (lambda file: file.pop("runs"), "lacks 'runs'"),
        (lambda file: file.pop("kind"), r"must be a results file \(a JSON object that names its"),
        (lambda file: file["runs"].append(3), "'runs.3' must be a JSON object, found 3"),
        (lambda file: file["runs"][1].update(dev="x"), "'runs.1.dev' must be a finite"),
        (lambda file: file["runs"][1].pop("origin"), "lacks 'runs.1.origin'"),
        (lambda file: file["left_out"].append({}), "lacks 'left_out.0.folder'"),
        (lambda file: file["study"].update(tasks=["x"]), "study: 'tasks' must be known or rows of"),
    ],
)
def test_a_damaged_file_is_named(study, tmp_path, change, message):
    file = tmp_path / "r.json"
    save_results(study, file)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(AuberError, match=f"r.json: {message}"):
        read_place(file)


def test_file_and_folder_are_the_same_collection(study, tmp_path):
    file = tmp_path / "r.json"
    write_run(study, "rte/seen/seed-1/auber", None)
    failure = json.dumps({"error": "no room", "skipped": False})
    (study / "rte/seen/seed-1/michel.failed.json").write_text(failure)
    save_results(study, file)
    found = collect(file)
    folder = collect(study)
    assert (found.runs, found.left_out) == (folder.runs, folder.left_out)
    assert found.wanted == folder.wanted
    assert (len(found.runs), len(found.records)) == (2, 3)
    assert (len(found.left_out), len(found.wanted)) == (2, 4)
    before = file.read_bytes()
    saved = save_results(study, file)
    assert (saved.added, saved.present) == (0, 3)
    assert file.read_bytes() == before
    # The first edition knew of no fold models.
    file.write_text(file.read_text().replace(', "scout_steps": 0', ""))
    assert collect(file) == found


def refused(place, file, message, **changes):
    with pytest.raises(RunError, match=message):
        save_results(place, file, **changes)


def test_a_study_may_grow_but_not_change(study, tmp_path):
    file = tmp_path / "r.json"
    save_results(study, file)
    refused(
        study,
        file,
        "another study than .*: model was 'mpnet-base' and is now 'other'; save it into",
        model="other",
    )
    write_plan(study, ["rte"], [*METHODS, "auber-l2"], [0, 1, 2])
    save_results(study, file)
    content = json.loads(file.read_text())["study"]
    assert (content["methods"], content["seeds"]) == ([*METHODS, "auber-l2"], [0, 1, 2])
    write_plan(study, ["rte"], METHODS, [0], settings={"agent": {"episodes": 7}})
    refused(study, file, "another study than .*: agent.episodes was 150 and is now 7")


def test_what_does_not_fit_one_file_is_refused(study, tmp_path):
    file = tmp_path / "r.json"
    refused(tmp_path, file, "of one study, found those in study below it; save them one by one")
    write_run(study, "x", make_result("rte", "auber", 5, 0.6, model="bert"))
    found = "--model-name renames one model, found bert, mpnet-base; save their runs from"
    refused(study, file, found, model="m")
    write_run(tmp_path / "runs", "a", make_result("rte", "auber", 0, 0.6))
    save_results(tmp_path / "runs", file)
    assert json.loads(file.read_text())["study"] is None
    assert collect(file).wanted == set()
    write_plan(tmp_path / "runs", ["rte"], METHODS, [0])
    message = r"r.json: holds runs of no study, \S+runs those of a study; save them into another"
    refused(tmp_path / "runs", file, message)
    message = r"r.json/r.json: cannot be written \(.*\); choose another --save"
    refused(study, file / "r.json", message)


@pytest.mark.parametrize("starts", [0, 1])
def test_a_file_without_a_run_is_refused(study, tmp_path, starts):
    file = tmp_path / "r.json"
    save_results(study, file)
    content = json.loads(file.read_text())
    content["runs"] = [run for run in content["runs"] if run["kind"] == "finetune"][:starts]
    file.write_text(json.dumps(content))
    message = f"r.json: no finished run in it, found {starts} fine-tuned starts; save a folder"
    refused(file, tmp_path / "new.json", message)


def test_notes_are_kept_once_each_and_travel_with_the_file(study, tmp_path):
    file, other = tmp_path / "r.json", tmp_path / "other.json"
    save_results(study, file)
    assert "notes" not in json.loads(file.read_text())
    save_results(study, file, notes=["Two blocks shared the GPU.", " so it goes "])
    save_results(study, file, notes=["Two blocks shared the GPU."])
    assert read_place(file).notes == ("Two blocks shared the GPU.", "so it goes")
    save_results(file, other, notes=["Later."])
    assert read_place(other).notes == ("Two blocks shared the GPU.", "so it goes", "Later.")


@pytest.mark.parametrize("note", ["  ", "two\nlines", "bell\a"])
def test_a_note_is_one_printable_line(study, tmp_path, note):
    message = "^--note must be a sentence of printable text on one line, found "
    with pytest.raises(ConfigError, match=message):
        save_results(study, tmp_path / "r.json", notes=[note])
    assert not (tmp_path / "r.json").exists()


def test_a_report_imports_no_engine(study, tmp_path):
    save_results(study, tmp_path / "r.json")
    code = (
        "import sys\n"
        "from auber.report.page import make_page, write_page\n"
        "from pathlib import Path\n"
        f"write_page(make_page([{str(tmp_path / 'r.json')!r}]), Path({str(tmp_path / 'out')!r}))\n"
        "print([m for m in ('torch', 'transformers', 'auber.run.pipeline') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
