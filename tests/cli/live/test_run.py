from __future__ import annotations

import json
from dataclasses import asdict

import pytest

import auber
from auber.cli.live.run import RunWatcher
from auber.cli.live.run_view import RunState
from tests.cli.live.folders import NOW, RESULT, RunFolder
from tests.small import small_config, small_start, small_task


def watch(folder):
    return RunWatcher(folder.path, clock=lambda: NOW + 4)


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def test_before_the_run_there_is_nothing_to_see(tmp_path):
    watcher = RunWatcher(tmp_path / "run")
    assert watcher.look().state is RunState.WAITING
    folder = RunFolder(tmp_path / "run")
    folder.search_layer_1()
    assert watcher.look().state is RunState.RUNNING, "the same watcher sees it come"


def test_the_score_on_dev_is_told_in_points_as_everywhere(folder):
    folder.search_layer_1()
    folder.event("dev_evaluation", score=0.68333, rows=60)
    assert watch(folder).look().events[-1].text == "dev 68.33 points on 60 rows"


def test_a_search_in_the_middle(folder):
    folder.search_layer_1()
    view = watch(folder).look()
    assert view.facts == {
        "kind": "prune",
        "model": "bert-tiny",
        "task": "rte",
        "method": "auber",
        "metric": "accuracy",
        "seed": 7,
        "protocol": "heldout",
    }
    assert [(stage.name, stage.state) for stage in view.stages] == [
        ("first", "done"),
        ("layer-00", "done"),
        ("layer-01", "present"),
        ("layer-02", "open"),
        ("last", "open"),
        ("evaluation", "open"),
    ]
    assert (view.progress.done, view.progress.total, view.progress.note) == (3, 12, "best 0.9")
    assert view.progress.seconds_left == pytest.approx(20 / 3 * 9 - 4), (
        "three of twelve in 20 s, and 4 s ago"
    )
    assert view.progress.finished_share == 0.40625
    assert view.layers_left_seconds == 30
    assert (view.num_layers, view.num_heads) == (3, 4)
    assert [(layer.state, layer.removed) for layer in view.layers] == [
        ("decided", (1, 3)),
        ("searching", ()),
        ("open", ()),
    ]
    assert view.layers[0].gain == 0.125, "of the heads that went, not of the roll-out"
    search = view.search
    assert (search.curve, search.curve_is) == ((1.0, -2.0, 3.0), "return")
    assert (search.given, search.given_score, search.unpruned_score, search.best_score) == (
        (),
        0.75,
        0.75,
        0.875,
    )
    assert (search.rewards_asked, search.rewards_computed) == (12, 4)
    assert search.rewards_per_second == pytest.approx(4 / 10)
    assert view.process.alive is True
    assert view.process.silent_seconds == 4
    assert view.running_seconds == 104
    assert (view.resume, view.result, view.tuning) == (None, None, None)
    assert [event.text for event in view.events][1:] == [
        "first done in 12 s",
        "layer-00 done in 30 s, 2 heads removed",
    ]
    json.dumps(asdict(view))


def test_other_searches_show_their_scores(tmp_path):
    folder = RunFolder(tmp_path / "run", method="greedy")
    folder.start()
    folder.finish("first", seconds=1.0)
    folder.score(0, [], 0.1, key="weights of an earlier start")
    folder.score(0, [], 0.5)
    folder.score(0, [2], 0.75)
    folder.progress("layer 0: searching", 1, 3)
    search = watch(folder).look().search
    assert (search.curve, search.curve_is) == ((0.5, 0.75), "score")
    assert (search.rewards_asked, search.rewards_computed, search.unpruned_score) == (None, 2, 0.5)
    assert search.rewards_per_second == pytest.approx(2 / 20)


def test_a_search_that_begins_from_a_plan_gains_over_that(folder):
    folder.start(("first", "prior", "layer-00", "layer-01", "layer-02", "last"))
    folder.finish("first", seconds=1.0)
    folder.finish("prior", plan={"0": [3], "1": [0, 2]}, seconds=1.0)
    search = {
        "given": [3],
        "given_score": 0.5,
        "unpruned_score": 0.75,
        "best_score": 0.625,
        "best": [1, 3],
    }
    folder.finish("layer-00", removed=[1, 3], search=search, seconds=1.0)
    folder.progress("layer 1: searching", 1, 3)
    folder.score(1, [0, 2], 0.5)
    folder.score(1, [0], 0.625)
    watcher = watch(folder)
    view = watcher.look()
    assert view.layers[0].gain == 0.125, "not what is lost to the unpruned layer"
    assert (view.search.given, view.search.given_score, view.search.unpruned_score) == (
        (0, 2),
        0.5,
        None,
    )
    folder.score(1, [], 0.75)
    assert watcher.look().search.unpruned_score == 0.75


def test_a_layer_of_an_earlier_version_is_read_too(folder):
    folder.search_layer_1()
    search = {"given": [3], "unpruned_score": 0.5, "best_score": 0.625, "best": [1, 3]}
    folder.finish("layer-00", removed=[1, 3], search=search, seconds=30.0)
    assert watch(folder).look().layers[0].gain == 0.125


def test_a_ranking_method_has_its_heads_before_its_tunings(tmp_path):
    folder = RunFolder(tmp_path / "run", method="random")
    folder.start(("first", "plan", "layer-02", "last"))
    folder.finish("first", seconds=1.0)
    folder.finish("plan", removed={"2": [0, 1]}, seconds=0.1)
    folder.write("plan.json", {"2": [0, 1]})
    folder.event(
        "numbers",
        step=8,
        values={"layer-02/tuning/loss": 0.25, "layer-02/tuning/steps_per_second": 4.0},
    )
    folder.progress("layer 2: tuning", 8, 16)
    view = watch(folder).look()
    assert [(layer.state, layer.removed) for layer in view.layers] == [
        ("decided", ()),
        ("decided", ()),
        ("decided", (0, 1)),
    ]
    assert view.search is None
    assert (view.tuning.step, view.tuning.loss, view.tuning.steps_per_second) == (8, 0.25, 4.0)


CROSSED = (
    "first",
    "scout-0",
    "layer-00",
    "layer-01",
    "layer-02",
    "budget",
    "rewind",
    "tuning-00",
    "last",
)


def cross(folder, present):
    """A run under protocol crossfit whose stages before the present one are done."""
    folder.start(CROSSED)
    for stage in CROSSED[: CROSSED.index(present)]:
        folder.finish(stage, seconds=1.0)


@pytest.mark.parametrize(
    ("stage", "series"),
    [
        ("first", ["first"]),
        ("scout-0", ["scout-0/first", "scout-0/layer-00", "scout-0/last"]),
        ("rewind", ["rewind"]),
        ("tuning-00", ["layer-00"]),
        ("last", ["last"]),
    ],
)
def test_every_tuning_of_scouts_and_after_them_shows_its_loss(folder, stage, series):
    cross(folder, stage)
    folder.event(
        "numbers", NOW - 30, step=9, values={"first/tuning/loss": 0.5, "layer-00/search/loss": 2.0}
    )
    folder.progress("a tuning", 8, 16)
    watcher = watch(folder)
    assert watcher.look().tuning is None, "of the present one nothing was heard"
    for step, name in enumerate(series, 1):
        numbers = {f"{name}/tuning/loss": 0.25 / step, f"{name}/tuning/steps_per_second": 4.0}
        folder.event("numbers", step=step, values=numbers)
        tuning = watcher.look().tuning
        assert (tuning.step, tuning.loss, tuning.steps_per_second) == (step, 0.25 / step, 4.0)
    folder.event("numbers", step=7, values={f"{series[0]}/tuning/loss": 0.125})
    assert watcher.look().tuning.step == 7, "a stage that was cut is done again from its first"


def test_a_layer_of_a_given_number_of_heads_gains_what_its_share_scored(folder):
    cross(folder, "layer-01")
    sizes = [
        {"removed": [], "score": 0.5, "gain": 0.0},
        {"removed": [2], "score": 0.375, "gain": -12.5},
    ]
    search = {
        "unpruned_score": 0.5,
        "best_score": 0.625,
        "best": [1, 3],
        "rollout": [1, 3],
        "rollout_score": 0.625,
    }
    folder.finish("layer-00", removed=[], search=search, sizes=sizes, seconds=1.0)
    folder.progress("layer 1: searching", 1, 12)
    watcher = watch(folder)
    assert [(layer.state, layer.gain) for layer in watcher.look().layers] == [
        ("searched", None),
        ("searching", None),
        ("open", None),
    ]
    folder.finish("layer-01", removed=[], search=search, sizes=sizes, seconds=1.0)
    folder.finish("layer-02", removed=[], search=search, sizes=sizes, seconds=1.0)
    folder.finish("budget", plan={"0": [2], "2": [1, 3]}, gain=0.0, seconds=0.0)
    folder.write("plan.json", {"0": [2], "2": [1, 3]})
    assert [(layer.state, layer.removed, layer.gain) for layer in watcher.look().layers] == [
        ("decided", (2,), -0.125),
        ("decided", (), 0.0),
        ("decided", (1, 3), 0.125),
    ]


def test_a_layer_that_is_played_again_has_one_curve(folder):
    folder.search_layer_1()
    watcher = watch(folder)
    watcher.look()
    folder.event("resumed", process=1)
    folder.event("numbers", step=1, values={"layer-01/search/return": 5.0})
    assert watcher.look().search.curve == (5.0,)


def test_a_process_that_is_gone_says_how_to_go_on(folder):
    folder.search_layer_1()
    folder.progress(
        "layer 1: searching", 3, 12, started=1.0, command="auber prune --model m --out run"
    )
    view = watch(folder).look()
    assert (view.state, view.is_left) == (RunState.STOPPED, True)
    assert view.resume == "auber prune --model m --out run --resume"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("auber prune --out run --resume", "auber prune --out run --resume"),
        (
            "torchrun --nproc-per-node 2 -m auber study s.toml",
            "torchrun --nproc-per-node 2 -m auber study s.toml",
        ),
        ("auber study s.toml --out o", "auber study s.toml --out o"),
        (None, "the same call with out='{folder}', resume=True"),
    ],
)
def test_how_to_go_on_depends_on_who_began(folder, command, words):
    folder.search_layer_1()
    folder.progress("layer 1: searching", 3, 12, started=1.0, command=command)
    assert watch(folder).look().resume == words.format(folder=folder.path)


@pytest.mark.parametrize(
    "command", ["auber prune --out runs/mine", "auber prune --out runs/mine --resume"]
)
def test_a_command_goes_on_from_the_folder_it_was_typed_in(folder, tmp_path, command, monkeypatch):
    (tmp_path / "my work").mkdir()
    folder.search_layer_1()
    folder.progress(
        "layer 1: searching", 3, 12, started=1.0, command=command, folder=str(tmp_path / "my work")
    )
    words = "auber prune --out runs/mine --resume"
    assert watch(folder).look().resume == f"cd '{tmp_path}/my work' && {words}"
    monkeypatch.chdir(tmp_path / "my work")
    assert watch(folder).look().resume == words
    folder.progress("layer 1: searching", 3, 12, started=1.0, command=command, folder=None)
    assert watch(folder).look().resume == words, "an earlier version did not say where"


def test_the_command_that_goes_on_is_the_one_that_was_typed(tmp_path):
    """With its folders, while the run is unfinished; what is kept of it in the result has none."""
    from auber.system.progress import Progress

    class Stopper(Progress):
        def begin(self, stage, total):
            if stage == "layer 1: searching":
                raise KeyboardInterrupt

    out = tmp_path / "runs" / "mine"
    command = f"auber prune --model {tmp_path}/enc --out {out}"

    def prune(**changes):
        model, tokenizer = small_start()
        return auber.prune(
            model,
            tokenizer,
            task=small_task(),
            config=small_config(),
            out=out,
            command=command,
            **changes,
        )

    with pytest.raises(KeyboardInterrupt):
        prune(progress=Stopper())
    assert RunWatcher(out).look().resume == f"{command} --resume"
    assert prune(resume=True).result["command"] == "auber prune --model enc --out mine"
    assert not [path for path in out.rglob("*.json*") if str(tmp_path) in path.read_text()]


def test_an_error_stops_a_run_even_in_a_session_that_lives_on(folder):
    folder.search_layer_1()
    folder.event("stopped", error="ValueError: no luck")
    view = watch(folder).look()
    assert (view.state, view.error) == (RunState.STOPPED, "ValueError: no luck")
    assert view.progress.seconds_left is None, "nobody works on what is left"
    folder.event("resumed", process=1)
    assert watch(folder).look().state is RunState.RUNNING


def test_another_machine_cannot_be_asked(folder):
    folder.search_layer_1()
    folder.progress("layer 1: searching", 3, 12, host="elsewhere.example")
    view = watch(folder).look()
    assert (view.state, view.is_left, view.process.host) == (
        RunState.ELSEWHERE,
        False,
        "elsewhere.example",
    )


def test_after_the_run(folder):
    folder.search_layer_1()
    (folder.path / "progress.json").unlink()
    folder.write("result.json", RESULT)
    view = watch(folder).look()
    assert (view.state, view.is_over) == (RunState.COMPLETE, True)
    assert {stage.state for stage in view.stages} == {"done"}
    assert (view.result["dev"], view.result["heads_removed"], view.result["seconds"]) == (
        0.75,
        2,
        61.0,
    )
    assert [layer.removed for layer in view.layers] == [(1, 3), (), ()]


def test_a_run_that_takes_anothers_place_is_seen_anew(folder, tmp_path):
    folder.search_layer_1()
    watcher = watch(folder)
    watcher.look()
    folder.path.rename(tmp_path / "old")
    again = RunFolder(folder.path, method="greedy")
    again.start()
    watcher.look()
    view = watcher.look()
    assert view.facts["method"] == "greedy"
    assert [stage.state for stage in view.stages][:2] == ["present", "open"]


def test_a_real_run_with_scouts_shows_all_its_tunings(tmp_path):
    """Also what each layer gained, which is what the page of the run says."""
    from auber.report.html.model import read_runs
    from auber.system.progress import Progress

    watcher, seen = RunWatcher(tmp_path / "run"), {}

    class Looker(Progress):
        def step(self, done, note=""):
            view = watcher.look()
            if view.tuning is not None:
                seen.setdefault(
                    next(stage.name for stage in view.stages if stage.state == "present"),
                    view.tuning,
                )

    model, tokenizer = small_start()
    config = small_config(
        first__when="always", protocol="crossfit", search__heads=5, last__epochs=3
    )
    outcome = auber.prune(
        model, tokenizer, task=small_task(), config=config, out=tmp_path / "run", progress=Looker()
    )
    tunings = [f"tuning-{layer:02}" for layer in outcome.plan]
    assert set(seen) <= {"first", "scout-0", "scout-1", "scout-2", "rewind", *tunings, "last"}
    assert {"first", "scout-0", "rewind", "last"} <= set(seen)
    (page,) = read_runs([tmp_path / "run"])
    gains = {layer: search.chosen - search.begun for layer, search in page.searched}
    assert {layer.layer: layer.gain for layer in watcher.look().layers} == pytest.approx(gains)


def test_a_real_run_at_every_step(tmp_path):
    """What is seen while a run goes on fits what comes out, and looking changes nothing in the folder."""
    from auber.system.progress import Progress

    watcher, seen = RunWatcher(tmp_path / "run"), []

    class Looker(Progress):
        def step(self, done, note=""):
            before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
            seen.append(watcher.look())
            assert before == {
                path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")
            }

    model, tokenizer = small_start()
    config = small_config(first__when="always")
    outcome = auber.prune(
        model,
        tokenizer,
        task=small_task(),
        config=config,
        out=tmp_path / "run",
        progress=Looker(),
        command="auber prune",
    )
    assert {view.state for view in seen} == {RunState.RUNNING}
    present = list(
        dict.fromkeys(
            stage.name for view in seen for stage in view.stages if stage.state == "present"
        )
    )
    assert present == ["first", "layer-00", "layer-01", "layer-02", "last", "evaluation"]
    searched = {view.search.layer for view in seen if view.search is not None}
    assert searched == {0, 1, 2}
    end = watcher.look()
    assert end.state is RunState.COMPLETE
    assert {layer.layer: layer.removed for layer in end.layers if layer.removed} == dict(
        outcome.plan
    )
    assert end.result["dev"] == outcome.result["dev"]["score"]
