from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from auber.errors import ConfigError
from auber.search.registry import METHODS
from auber.study import change_study, make_study, read_study, select_runs
from auber.study.plan import Block
from tests.study.tiny import tiny_study

STUDIES = Path(__file__).parents[2] / "studies"
SMALLEST = {"model": "some-bert", "tasks": ["rte"], "methods": ["auber"], "seeds": [0]}


def test_auber_comes_first_and_the_ranking_methods_are_matched_with_it():
    study = tiny_study(
        methods=["original", "random", "original+tuning", "greedy", "auber"], draws=2
    )
    runs = {run.name: run for run in study.runs(Block("agreement", "seen", 0))}
    assert list(runs) == [
        "start",
        "auber",
        "original",
        "random-0",
        "random-1",
        "original+tuning",
        "greedy",
    ]
    assert {name for name, run in runs.items() if run.is_matched} == {
        "random-0",
        "random-1",
        "original+tuning",
    }
    assert runs["random-1"].needs == ("start", "auber")
    assert runs["original"].needs == ("start",)
    assert runs["start"].needs == ()


def test_under_heldout_the_controls_start_from_the_model():
    study = tiny_study(protocols=["heldout"])
    block = Block("agreement", "heldout", 0)
    runs = {run.name: run for run in study.runs(block)}
    assert runs["original"].needs == ()
    assert runs["original+tuning"].needs == ("auber",)
    assert runs["random-0"].needs == ("start", "auber")
    assert study.config(block, runs["original"]).first.when == "always"
    assert study.config(block, runs["auber"]).first.when == "never"


def test_under_crossfit_all_start_alike_and_who_makes_scouts_is_given_their_origin():
    study = tiny_study(protocols=["crossfit"])
    block = Block("agreement", "crossfit", 0)
    runs = {run.name: run for run in study.runs(block)}
    assert all(run.from_start for name, run in runs.items() if name != "start")
    assert [name for name, run in runs.items() if study.needs_origin(block, run)] == ["auber"]
    assert not any(study.needs_origin(Block("agreement", "seen", 0), run) for run in runs.values())


def test_the_settings_of_a_run():
    study = make_study(
        {
            **SMALLEST,
            "tasks": {"rte": {"agent": {"episodes": 7}}, "mrpc": {}},
            "methods": ["auber", "random"],
            "seeds": [3],
            "preset": "paper",
            "draws": 2,
            "settings": {"agent": {"episodes": 5, "gamma": 0.5}},
        }
    )
    assert study.tasks == ("rte", "mrpc")
    configs = {
        (block.task, run.name): study.config(block, run)
        for block in study.blocks()
        for run in study.runs(block)
    }
    rte, mrpc = configs["rte", "auber"], configs["mrpc", "random-1"]
    assert (rte.agent.episodes, rte.agent.gamma, rte.seed, rte.first.epochs) == (7, 0.5, 3, 4)
    assert (mrpc.agent.episodes, mrpc.random.draw, mrpc.first.epochs) == (5, 1, 3)


def test_a_study_survives_its_file(tmp_path):
    study = make_study(
        {
            **SMALLEST,
            "tasks": {"rte": {"agent": {"stop_value": "none"}}, "cola": {}},
            "seeds": [0, 4],
            "protocols": ["seen", "heldout"],
            "draws": 2,
            "settings": {"agent": {"scale_state": True}, "device": "cpu"},
        }
    )
    (tmp_path / "study.toml").write_text(study.to_toml())
    assert read_study(tmp_path / "study.toml") == study
    assert read_study(tmp_path / "study.toml").to_toml() == study.to_toml()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tasks": ["rta"]},
            "study: Unknown task 'rta'. Did you mean 'rte'? Known: agreement, cola, mrpc, rte, wnli",
        ),
        ({"tasks": "rte"}, "study: tasks must be a list of names, found 'rte'"),
        ({"tasks": {"rte": 3}}, "study: tasks.rte must be a table of settings, found 3"),
        (
            {"methods": ["aubre"]},
            "study: Unknown method 'aubre'. Did you mean 'auber'? Known: auber, ",
        ),
        ({"methods": []}, "study: methods must name at least one"),
        (
            {"methods": ["random"]},
            "study: 'random' removes as many heads as auber does, which is not among the methods",
        ),
        (
            {"seeds": [0, 1, 1]},
            "study: seeds: each may be listed once, 1 is there more often; remove the repeats",
        ),
        ({"seeds": [-1]}, "study: seeds must be a list of whole numbers from 0, found [-1]"),
        (
            {"protocols": ["held"]},
            "study: Unknown protocol 'held'. Did you mean 'heldout'? Known: crossfit, heldout, seen",
        ),
        (
            {"protocol": "seen"},
            "study: Unknown key 'protocol'. Did you mean 'protocols'? Known: data, draws, ",
        ),
        ({"preset": "papr"}, "study: Unknown preset 'papr'. Did you mean 'paper'?"),
        ({"draws": 0}, "study: draws must be a whole number from 1, found 0"),
        ({"keep_weights": "no"}, "study: keep_weights must be true or false, found 'no'"),
        ({"settings": 3}, "study: settings must be a table of settings, found 3"),
        (
            {"settings": {"agent": {"gama": 1}}},
            "study: settings: Unknown setting 'agent.gama'. Did you mean",
        ),
        (
            {"settings": {"seed": 1}},
            "study: settings: seed is set by the study for each run; list it under seeds",
        ),
        (
            {"tasks": {"rte": {"first": {"when": "never"}}}},
            "study: tasks.rte: first.when is set by the study",
        ),
        ({"model": 3}, "study: model must be text, found 3"),
        (
            {"model": "agreement"},
            "study: the model 'agreement' knows the words of the task 'agreement' alone, found",
        ),
    ],
)
def test_a_mistake_is_named(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        make_study({**SMALLEST, **changes})


def test_all_mistakes_are_named_at_once():
    with pytest.raises(
        ConfigError, match="^study: Unknown key 'x'.*; model is missing; .*; Unknown task 'y'"
    ):
        make_study({"x": 1, "tasks": ["y"]})
    with pytest.raises(
        ConfigError,
        match="^study: model is missing; tasks is missing; methods is missing; seeds is missing$",
    ):
        make_study({})


def test_a_file_that_is_no_toml(tmp_path):
    (tmp_path / "x.toml").write_text("model = ")
    with pytest.raises(ConfigError, match="x.toml: cannot be read as a study"):
        read_study(tmp_path / "x.toml")
    with pytest.raises(
        ConfigError,
        match=r"none.toml: no such file; correct the path, 'auber study --help' shows what",
    ):
        read_study(tmp_path / "none.toml")


def test_the_command_line_goes_before_the_file():
    study = change_study(make_study(SMALLEST), seeds="4,5", model="other", data=Path("glue"))
    assert (study.seeds, study.model, study.data) == ((4, 5), "other", Path("glue"))
    with pytest.raises(
        ConfigError, match="^--seeds: seeds: each may be listed once, 1 is there more often"
    ):
        change_study(study, seeds="1,1")
    with pytest.raises(ConfigError, match="^--seeds: seeds must be a list of whole numbers from 0"):
        change_study(study, seeds="1,x")


@pytest.mark.parametrize("name", ["tiny-\udce9", "two\nlines", ""])
def test_a_model_whose_name_cannot_be_written_down(tmp_path, name):
    shown = re.escape(repr(name))
    message = rf"^study: the model's name must be 1 to 1000 printable characters, found {shown}; rename it or choose another$"
    with pytest.raises(ConfigError, match=message):
        change_study(make_study(SMALLEST), model=name)
    if name:  # and where it is the name of the folder that a link leads to
        (tmp_path / name).mkdir()
        (tmp_path / "link").symlink_to(name)
        with pytest.raises(ConfigError, match=message):
            change_study(make_study(SMALLEST), model=str(tmp_path / "link"))


def test_some_blocks():
    study = make_study(
        {**SMALLEST, "tasks": ["rte", "cola"], "seeds": [0, 1], "protocols": ["seen", "heldout"]}
    )
    assert len(select_runs(study).blocks) == 8
    assert select_runs(study, ["task=rte, seed=1,protocol=seen"]).blocks == (
        Block("rte", "seen", 1),
    )
    assert len(select_runs(study, ["seed=0,seed=1,task=cola"]).blocks) == 4
    assert select_runs(study, ["task=rte", "seed=0", "protocol=heldout"]).blocks == (
        Block("rte", "heldout", 0),
    )
    for only, message in (
        ("task=rt", "--only: Unknown task 'rt'. Did you mean 'rte'? Known: cola, rte"),
        ("seed=2", "--only: Unknown seed '2'. Known: 0, 1"),
        ("method=michel", "--only: Unknown method 'michel'. Known: auber"),
        (
            "tsk=rte",
            "--only: Unknown key 'tsk'. Did you mean 'task'? Known: method, protocol, seed, task",
        ),
        ("rte", "--only takes key=value such as task=rte,seed=1, found 'rte'"),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            select_runs(study, [only])


@pytest.mark.parametrize(
    ("only", "protocol", "names"),
    [
        ("method=auber-l2", "seen", ["start", "auber-l2"]),
        ("method=random", "seen", ["start", "auber", "random-0", "random-1"]),
        ("method=original+tuning", "heldout", ["start", "auber", "original+tuning"]),
        ("method=original", "heldout", ["original"]),
        (
            "seed=0",
            "seen",
            ["start", "auber", "random-0", "random-1", "auber-l2", "original", "original+tuning"],
        ),
    ],
)
def test_some_methods_come_with_the_runs_they_need(only, protocol, names):
    methods = ["random", "auber", "auber-l2", "original", "original+tuning"]
    study = make_study(
        {**SMALLEST, "methods": methods, "draws": 2, "protocols": ["seen", "heldout"]}
    )
    selection = select_runs(study, [only, f"protocol={protocol}"])
    (block,) = selection.blocks
    assert [run.name for run in selection.runs(study, block)] == names


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_studies_that_come_along(path):
    study = read_study(path)
    assert study.blocks()
    assert tomllib.loads(path.read_text())["settings"]["threads"] == 1, "every engine takes them"


def test_the_quick_study_has_every_method():
    quick = read_study(STUDIES / "quick.toml")
    assert set(quick.methods) == set(METHODS)
    assert (quick.preset, quick.protocols, len(quick.seeds)) == ("default", ("seen",), 2)


def test_the_study_of_the_default_preset_has_every_competitor():
    study = read_study(STUDIES / "default.toml")
    assert (study.preset, study.protocols, study.seeds) == (
        "default",
        ("crossfit",),
        (0, 1, 2, 3, 4),
    )
    assert set(study.tasks) == {"mrpc", "cola", "rte", "wnli"}
    assert set(study.methods) == {
        "auber",
        "random",
        "confidence",
        "michel",
        "voita",
        "original+tuning",
    }


def test_the_paper_s_tables():
    table2, table3, heldout = (
        read_study(STUDIES / f"{name}.toml") for name in ("table2", "table3", "heldout")
    )
    for study in (table2, table3, heldout):
        assert set(study.tasks) == {"mrpc", "cola", "rte", "wnli"}
        assert (study.model, study.preset, study.seeds) == ("bert-base-cased", "paper", (0, 1, 2))
        assert {"auber", "original", "original+tuning"} <= set(study.methods)
    assert {"random", "confidence", "michel", "voita"} <= set(table2.methods)
    assert {"auber-query", "auber-key", "auber-l2", "auber-reverse"} <= set(table3.methods)
    assert (heldout.protocols, table2.protocols, heldout.keep_weights) == (
        ("heldout",),
        ("seen",),
        False,
    )
