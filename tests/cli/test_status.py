from __future__ import annotations

import json
import os

import psutil
import pytest

import auber
from auber.cli.status import RunReader
from auber.errors import RunError
from auber.system.locks import start_of
from auber.system.progress import Progress
from tests.cli.run_folder import NOW, RESULT, RunFolder
from tests.small import small_config, small_start, small_task


def read(folder):
    return RunReader(folder.path, clock=lambda: NOW + 4).read()


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def searching(folder):
    folder.search_layer_1()
    return folder


def test_waiting_until_the_run_begins(tmp_path):
    reader = RunReader(tmp_path / "run")
    assert reader.read().state == "waiting"
    RunFolder(tmp_path / "run").search_layer_1()
    assert reader.read().state == "running"


def test_a_search(searching):
    status = read(searching)
    assert (status.state, status.seed, status.protocol) == ("running", "7", "heldout")
    assert [(stage.name, stage.state) for stage in status.stages] == [
        ("first", "done"), ("layer-00", "done"), ("layer-01", "current"), ("layer-02", "open"),
        ("last", "open"), ("evaluation", "open"),
    ]  # fmt: skip
    assert (status.stage.done, status.stage.total, status.share) == (3, 12, 0.40625)
    assert status.stage_seconds_left == pytest.approx(20 / 3 * 9 - 4)
    assert status.layers_seconds_left == 30
    assert [(layer.state, layer.removed) for layer in status.layers] == [
        ("decided", (1, 3)), ("searching", ()), ("open", ()),
    ]  # fmt: skip
    assert status.layers[0].gain == 0.125, "of the removed heads, not of the roll-out"
    assert status.numbers == {"rewards_asked": 12, "rewards_computed": 4, "best_score": 0.875}
    assert (status.silent_seconds, status.running_seconds) == (4, 104)
    assert (status.resume, status.result) == (None, None)
    json.dumps(status.to_json())


def test_gains_over_the_plan_that_the_search_began_with(folder):
    folder.start(("first", "prior", "layer-00", "layer-01", "layer-02", "last"))
    folder.finish("first")
    folder.finish("prior", plan={"0": [3], "1": [0, 2]})
    search = {"given": [3], "given_score": 0.5, "unpruned_score": 0.75, "best_score": 0.625}
    folder.finish("layer-00", removed=[1, 3], search={**search, "best": [1, 3]})
    assert read(folder).layers[0].gain == 0.125


def test_a_layer_of_the_first_edition(searching):
    search = {"given": [3], "unpruned_score": 0.5, "best_score": 0.625, "best": [1, 3]}
    searching.finish("layer-00", removed=[1, 3], search=search)
    assert read(searching).layers[0].gain == 0.125


def test_a_ranking_method_decides_all_layers_before_its_tunings(folder):
    folder.start(("first", "plan", "layer-02", "last"))
    folder.finish("first")
    folder.finish("plan", removed={"2": [0, 1]})
    numbers = {"layer-02/tuning/loss": 0.25, "layer-02/tuning/steps_per_second": 4.0}
    folder.event("numbers", step=8, values=numbers)
    folder.progress("layer 2: tuning", 8, 16)
    status = read(folder)
    assert [(layer.state, layer.removed) for layer in status.layers] == [
        ("decided", ()), ("decided", ()), ("decided", (0, 1)),
    ]  # fmt: skip
    assert status.numbers == {"loss": 0.25, "steps_per_second": 4.0}


def test_a_given_number_of_heads_is_shared_after_all_searches(folder):
    folder.start(("first", "layer-00", "layer-01", "layer-02", "budget", "last"))
    folder.finish("first")
    sizes = [
        {"removed": [], "score": 0.5, "gain": 0.0},
        {"removed": [2], "score": 0.375, "gain": -12.5},
    ]
    search = {"unpruned_score": 0.5, "best_score": 0.625, "best": [1, 3]}
    folder.finish("layer-00", removed=[], search=search, sizes=sizes)
    folder.progress("layer 1: searching", 1, 12)
    reader = RunReader(folder.path)
    assert [(layer.state, layer.gain) for layer in reader.read().layers] == [
        ("searched", None), ("searching", None), ("open", None),
    ]  # fmt: skip
    folder.finish("layer-01", removed=[], search=search, sizes=sizes)
    folder.finish("layer-02", removed=[], search=search, sizes=sizes)
    folder.finish("budget", plan={"0": [2], "2": [1, 3]}, gain=0.0)
    assert [(layer.state, layer.removed, layer.gain) for layer in reader.read().layers] == [
        ("decided", (2,), -0.125), ("decided", (), 0.0), ("decided", (1, 3), 0.125),
    ]  # fmt: skip


def test_a_stage_may_have_several_tunings(folder):
    folder.start(("first", "scout-0", "layer-00", "last"))
    folder.finish("first")
    folder.event("numbers", NOW - 30, step=9, values={"scout-0/first/tuning/loss": 0.5})
    folder.progress("a tuning", 8, 16)
    assert read(folder).numbers == {}, "reported before the stage began"
    for step, name in enumerate(("first", "layer-00", "last", "first"), 1):
        folder.event("numbers", step=step, values={f"scout-0/{name}/tuning/loss": 0.25 / step})
        assert read(folder).numbers == {"loss": 0.25 / step}


@pytest.mark.parametrize(
    ("command", "resume"),
    [
        ("auber prune --model m --out run", "auber prune --model m --out run --resume"),
        ("auber prune --out run --resume", "auber prune --out run --resume"),
        ("auber study s.toml --out o", "auber study s.toml --out o"),
        (
            "torchrun --nproc-per-node 2 -m auber study s.toml",
            "torchrun --nproc-per-node 2 -m auber study s.toml",
        ),
        (None, "the same call with out='{folder}', resume=True"),
    ],
)
def test_how_a_stopped_run_resumes(searching, command, resume):
    searching.progress("layer 1: searching", 3, 12, started=1.0, command=command)
    status = read(searching)
    assert (status.state, status.resume) == ("stopped", resume.format(folder=searching.path))
    assert status.stage_seconds_left is None


def test_a_command_of_another_folder(searching, tmp_path, monkeypatch):
    place = tmp_path / "my work"
    place.mkdir()
    command = "auber prune --out runs/mine"
    searching.progress("layer", 3, 12, started=1.0, command=command, folder=str(place))
    assert read(searching).resume == f"cd '{place}' && {command} --resume"
    monkeypatch.chdir(place)
    assert read(searching).resume == f"{command} --resume"


def test_the_resume_command_is_the_typed_one_and_the_result_names_no_folder(tmp_path):
    class Stopper(Progress):
        def begin(self, stage, total):
            if stage == "layer 1: searching":
                raise KeyboardInterrupt

    out = tmp_path / "runs" / "mine"
    command = f"auber prune --model {tmp_path}/enc --out {out}"

    def prune(**changes):
        model, tokenizer = small_start()
        settings = {"task": small_task(), "config": small_config(), "out": out, "command": command}
        return auber.prune(model, tokenizer, **settings, **changes)

    with pytest.raises(KeyboardInterrupt):
        prune(progress=Stopper())
    assert RunReader(out).read().resume == f"{command} --resume"
    assert prune(resume=True).result["command"] == "auber prune --model enc --out mine"
    assert not [path for path in out.rglob("*.json*") if str(tmp_path) in path.read_text()]


def test_an_error_stops_a_run_whose_process_lives_on(searching):
    searching.event("stopped", error="ValueError: no luck")
    status = read(searching)
    assert (status.state, status.error) == ("stopped", "ValueError: no luck")
    searching.event("resumed", process=1)
    assert read(searching).state == "running"


def test_a_process_on_another_machine_cannot_be_checked(searching):
    searching.progress("layer 1: searching", 3, 12, host="elsewhere.example")
    assert read(searching).state == "elsewhere"


@pytest.mark.parametrize(
    ("started", "after_boot", "state"),
    [(3600, 0, "running"), (0, 3600, "running"), (3600, 3600, "stopped")],
)
def test_a_process_is_the_same_after_the_clock_was_set(searching, started, after_boot, state):
    now = start_of(psutil.Process())
    times = {"started": now[0] - started, "after_boot": now[1] + after_boot}
    searching.progress("layer 1: searching", 3, 12, id=os.getpid(), **times)
    assert read(searching).state == state


def test_a_complete_run(searching):
    (searching.path / "progress.json").unlink()
    searching.write("result.json", RESULT)
    status = read(searching)
    assert status.state == "complete"
    assert {stage.state for stage in status.stages} == {"done"}
    assert status.result.dev.score == 0.75
    assert [layer.removed for layer in status.layers] == [(1, 3), (), ()]


def test_a_new_run_in_the_same_place(searching, tmp_path):
    reader = RunReader(searching.path)
    reader.read()
    searching.path.rename(tmp_path / "old")
    RunFolder(searching.path, method="greedy").start()
    reader.read()
    status = reader.read()
    assert status.run.method == "greedy"
    assert [stage.state for stage in status.stages][:2] == ["current", "open"]


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


def test_damaged_lines_are_skipped(searching):
    before = read(searching)
    with (searching.path / "events.jsonl").open("a") as file:
        file.write('nonsense\n3\n{"time": 1, "event": "planned", "layers": 1e9}\n{"torn')
    assert read(searching) == before


def test_a_line_is_read_when_it_is_complete(searching):
    reader = RunReader(searching.path)
    before = reader.read()
    event = json.dumps({"time": NOW, "event": "said", "text": "careful: a \x1b word"})
    with (searching.path / "events.jsonl").open("a") as file:
        file.write(event)
        file.flush()
        assert reader.read().messages == before.messages
        file.write("\n")
    assert reader.read().messages == ((NOW, "careful: a \\x1b word"),)
    assert reader.read().messages == ((NOW, "careful: a \\x1b word"),)


def test_a_real_run_at_every_step(tmp_path):
    """The status fits the result, and reading it changes nothing."""
    reader, seen = RunReader(tmp_path / "run"), []

    def files():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}

    class Looker(Progress):
        def step(self, done, note=""):
            before = files()
            seen.append(reader.read())
            assert files() == before

    model, tokenizer = small_start()
    config = small_config(first__when="always")
    outcome = auber.prune(
        model, tokenizer, task=small_task(), config=config, out=tmp_path / "run", progress=Looker()
    )
    assert {status.state for status in seen} == {"running"}
    current = [stage.name for status in seen for stage in status.stages if stage.state == "current"]
    assert list(dict.fromkeys(current)) == [
        "first", "layer-00", "layer-01", "layer-02", "last", "evaluation",
    ]  # fmt: skip
    assert any("best_score" in status.numbers for status in seen)
    end = reader.read()
    assert end.state == "complete"
    removed = {layer: status.removed for layer, status in enumerate(end.layers) if status.removed}
    assert removed == dict(outcome.plan)
    assert end.result.dev.score == outcome.result["dev"]["score"]


def test_a_real_run_under_crossfit_shows_all_its_tunings(tmp_path):
    reader, seen = RunReader(tmp_path / "run"), set()

    class Looker(Progress):
        def step(self, done, note=""):
            status = reader.read()
            if "loss" in status.numbers and "epsilon" not in status.numbers:
                seen.update(stage.name for stage in status.stages if stage.state == "current")

    model, tokenizer = small_start()
    settings = {"protocol": "crossfit", "search__heads": 5, "last__epochs": 3}
    config = small_config(first__when="always", **settings)
    outcome = auber.prune(
        model, tokenizer, task=small_task(), config=config, out=tmp_path / "run", progress=Looker()
    )
    tunings = [f"tuning-{layer:02}" for layer in outcome.plan]
    assert {"first", "scout-0", "rewind", "last"} <= seen
    assert seen <= {"first", "scout-0", "scout-1", "scout-2", "rewind", *tunings, "last"}
    assert [layer.gain for layer in reader.read().layers].count(None) == 0
