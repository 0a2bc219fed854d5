from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from auber.cli.status import read_status
from auber.errors import RunError
from auber.study.folder import StudyFolder
from auber.study.plan import Block, select_runs
from auber.study.runner import run_study
from tests.cli.run_folder import NOW, RESULT, RunFolder
from tests.study.tiny import Notes, tiny_model_folder, tiny_study

BLOCK = Block("agreement", "seen", 1)


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    monkeypatch.setattr("auber.cli.status.time", SimpleNamespace(time=lambda: NOW + 4))


def read(folder):
    return read_status(folder.path)


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def searching(folder):
    folder.search_layer_1()
    return folder


def test_a_search(searching):
    status = read(searching)
    assert (status.state, status.seed, status.protocol) == ("running", "7", "heldout")
    assert status.stages == {
        "first": 12.0, "layer-00": 30.0, "layer-01": None, "layer-02": None, "last": None,
        "evaluation": None,
    }  # fmt: skip
    assert (status.progress.stage.done, status.progress.share) == (3, 0.40625)
    assert status.stage_seconds_left == pytest.approx(20 / 3 * 9 - 4)
    assert status.seconds_left == 94 - 4
    assert [(layer.state, layer.removed) for layer in status.layers] == [
        ("decided", (1, 3)), ("searching", ()), ("open", ()),
    ]  # fmt: skip
    assert status.layers[0].gain == 0.125, "of the removed heads, not of the roll-out"
    assert status.numbers == {"rewards_asked": 12, "rewards_computed": 4, "best_score": 0.875}
    assert status.silent_seconds == 4
    assert (status.resume, status.result) == (None, None)
    json.dumps(status.to_json())


def test_a_ranking_method_decides_all_layers_before_its_tunings(folder):
    folder.start(("first", "plan", "layer-02", "last"))
    folder.finish("first")
    folder.finish("plan", removed={"2": [0, 1]})
    assert [(layer.state, layer.removed) for layer in read(folder).layers] == [
        ("decided", ()), ("decided", ()), ("decided", (0, 1)),
    ]  # fmt: skip


def test_a_given_number_of_heads_is_shared_after_all_searches(folder):
    folder.start(("first", "layer-00", "layer-01", "layer-02", "budget", "last"))
    folder.finish("first")
    sizes = [
        {"removed": [], "score": 0.5, "gain": 0.0},
        {"removed": [2], "score": 0.375, "gain": -12.5},
    ]
    search = {"unpruned_score": 0.5, "best_score": 0.625, "best": [1, 3]}
    folder.finish("layer-00", removed=[], search=search, sizes=sizes)
    assert [layer.state for layer in read(folder).layers] == ["searched", "searching", "open"]
    folder.finish("layer-01", removed=[], search=search, sizes=sizes)
    folder.finish("layer-02", removed=[], search=search, sizes=sizes)
    folder.finish("budget", plan={"0": [2], "2": [1, 3]}, gain=0.0)
    assert [(layer.state, layer.removed, layer.gain) for layer in read(folder).layers] == [
        ("decided", (2,), -0.125), ("decided", (), 0.0), ("decided", (1, 3), 0.125),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "resume"),
    [
        ("auber prune --model m --out run", "auber prune --model m --out run --resume"),
        ("auber prune --out run --resume", "auber prune --out run --resume"),
        ("auber study s.toml --out o", "auber study s.toml --out o"),
        (
            "torchrun --nproc-per-node 2 -m auber study s",
            "torchrun --nproc-per-node 2 -m auber study s",
        ),
        (None, "the same call with out='{folder}', resume=True"),
    ],
)
def test_how_a_stopped_run_resumes(searching, command, resume):
    searching.progress("layer 1: searching", 3, 12, started=1.0, command=command)
    status = read(searching)
    assert (status.state, status.resume) == ("stopped", resume.format(folder=searching.path))
    assert status.stage_seconds_left is None
    place = {"command": "auber prune --out o", "folder": "/my work"}
    searching.progress("layer 1: searching", 3, 12, started=1.0, **place)
    assert read(searching).resume == "cd '/my work' && auber prune --out o --resume"


def test_an_error_stops_a_run_whose_process_lives_on(searching):
    searching.event("stopped", error="ValueError: no luck")
    status = read(searching)
    assert (status.state, status.error) == ("stopped", "ValueError: no luck")
    searching.event("resumed", process=1)
    assert read(searching).state == "running"
    searching.progress("layer 1: searching", 3, 12, host="elsewhere.example")
    assert read(searching).state == "elsewhere", "it cannot be checked"


def test_a_complete_run(searching):
    (searching.path / "progress.json").unlink()
    searching.write("result.json", RESULT)
    status = read(searching)
    assert (status.state, status.result.dev.score) == ("complete", 0.75)
    assert [layer.removed for layer in status.layers] == [(1, 3), (), ()]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("result.json", json.dumps({**RESULT, "gap": "wide"}), "'gap' must be a finite number"),
        ("result.json", "[" * 100_000, "cannot be read"),
        ("progress.json", '{"time": "now"}', "'time' must be"),
        ("run.json", '{"kind": 3}', "'kind' must be text"),
        ("stages/first.json", "{}", "lacks 'seconds'"),
    ],
)
def test_a_damaged_file_is_named(searching, name, text, message):
    (searching.path / name).write_text(text)
    with pytest.raises(RunError, match=f"{name}: .*{message}"):
        read(searching)


def test_a_line_is_read_when_it_is_complete(searching):
    before = read(searching)
    event = json.dumps({"time": NOW, "event": "stopped", "error": "no \x1b luck"})
    with (searching.path / "events.jsonl").open("a") as file:
        file.write('nonsense\n3\n{"time": 1, "event": "planned", "layers": 1e9}\n')
        file.write(event)
        file.flush()
        assert read(searching) == before, "damaged lines are skipped"
        file.write("\n")
    assert read(searching).error == "no \\x1b luck"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a study of which seed 0 is done."""
    place = tmp_path_factory.mktemp("study")
    study = tiny_study(tiny_model_folder(place), methods=["original"], seeds=[0, 1])
    runs = select_runs(study, ["seed=0"])
    run_study(study, StudyFolder(place / "study"), Notes(), runs=runs)
    return place / "study"


@pytest.fixture
def study(finished, tmp_path):
    return StudyFolder(shutil.copytree(finished, tmp_path / "study"))


def states(study):
    status = read_status(study.path)
    found = [cell["state"] for cell in status.cells]
    assert found[:2] == ["complete", "complete"]
    return status.state, found[2:]


def test_a_study_between_two_calls(study, run_auber):
    status = read_status(study.path)
    assert states(study) == ("stopped", ["missing", "missing"])
    assert status.seconds_left > 0
    assert json.loads(json.dumps(status.to_json()))["cells"][0]["dev"] is not None
    code, out, _ = run_auber("watch", study.path, "--once")
    assert code == 1
    assert "2 of 4 runs finished" in out
    assert "agreement seen seed 0  complete: start, original" in out
    same = f"the same 'auber study ... --out {study.path}' continues it"
    assert f"not running; {same}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("process", "state"), [({}, "running"), ({"host": "elsewhere.example"}, "elsewhere")]
)
def test_a_current_run_of_a_study(study, run_auber, process, state):
    run = RunFolder(study.run_path(BLOCK, "start"))
    run.start()
    run.progress("first tuning", 5, 10, **process)
    assert states(study) == (state, [state, "missing"])
    code, out, _ = run_auber("watch", study.path, "--once")
    assert (code, f"{state}: start (first tuning 5/10 best 0.9)" in out) == (0, True)


def test_between_two_runs_the_claim_names_the_process(study):
    with study.claim(BLOCK):
        claim = study.block_path(BLOCK) / ".claim"
        content = claim.read_text()
        assert states(study)[0] == "running"
    for process, host, state in (
        (2147483647, None, "stopped"),
        (1, "elsewhere.example", "elsewhere"),
    ):
        changes = {"process": process, **({"host": host} if host else {})}
        claim.write_text(json.dumps({**json.loads(content), **changes}))
        assert states(study)[0] == state
    claim.write_text("")
    assert states(study)[0] == "stopped"


def test_failed_runs_of_a_study(study, run_auber):
    study.record_failure(BLOCK, "start", ValueError("no luck"))
    study.record_failure(BLOCK, "original", "no start", skipped=True)
    assert states(study) == ("failed", ["failed", "skipped"])
    code, out, _ = run_auber("watch", study.path)
    assert code == 1
    assert "agreement seen seed 1 start: ValueError: no luck" in out
    again = f"the same 'auber study ... --out {study.path}' retries them"
    assert f"all runs have ended, 1 failed and 1 skipped; {again}" in " ".join(out.split())
    assert run_auber("watch", study.path, "--json")[0] == 1


def test_a_complete_study(study, run_auber):
    shutil.copytree(study.block_path(replace(BLOCK, seed=0)), study.block_path(BLOCK))
    assert states(study) == ("complete", ["complete", "complete"])
    code, out, _ = run_auber("watch", study.path)
    assert code == 0
    assert f"all runs are complete; next: auber report {study.path}" in " ".join(out.split())
