from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from auber.errors import ConfigError, TaskError
from auber.study.plan import Block, change_study, make_study, read_study, select_runs
from tests.study.tiny import tiny_study

STUDIES = Path(__file__).parents[2] / "studies"
SMALLEST = {"model": "some-bert", "tasks": ["rte"], "methods": ["auber"], "seeds": [0]}
FILMS = {"train": "a.csv", "dev": "b.csv", "text": "said", "label": "y"}
DIGEST = "9f" * 32


def runs_of(study, protocol="seen"):
    return {run.name: run for run in study.runs(Block("agreement", protocol, 0))}


def test_auber_comes_first_and_the_ranking_methods_are_matched_with_it():
    methods = ["original", "random", "original+tuning", "greedy", "auber"]
    runs = runs_of(tiny_study(methods=methods, draws=2))
    order = ["start", "auber", "original", "random-0", "random-1", "original+tuning", "greedy"]
    assert list(runs) == order
    matched = {name for name, run in runs.items() if run.is_matched}
    assert matched == {"random-0", "random-1", "original+tuning"}
    assert runs["random-1"].needs == ("start", "auber")
    assert runs["original"].needs == ("start",)
    assert runs["start"].needs == ()


def test_to_a_target_size_rankings_need_no_auber():
    methods = ["fisher", "random", "original+tuning"]
    study = tiny_study(methods=methods, settings={"size.keep": 0.5})
    runs = runs_of(study)
    assert list(runs) == ["start", "fisher", "random-0", "original+tuning"]
    assert {run.needs for name, run in runs.items() if name != "start"} == {("start",)}
    block = Block("agreement", "seen", 0)
    shares = {name: study.config(block, run).size.shares for name, run in runs.items()}
    assert shares == {"start": (), "fisher": (0.5,), "random-0": (0.5,), "original+tuning": ()}


def test_under_heldout_the_controls_begin_with_the_model():
    study = tiny_study(protocols=["heldout"])
    block, runs = Block("agreement", "heldout", 0), runs_of(study, "heldout")
    assert runs["original"].needs == ()
    assert runs["original+tuning"].needs == ("auber",)
    assert runs["random-0"].needs == ("start", "auber")
    assert study.config(block, runs["original"]).first.when == "always"
    assert study.config(block, runs["auber"]).first.when == "never"


def test_under_crossfit_a_search_needs_the_pretrained_model():
    study = tiny_study(protocols=["crossfit"])
    block, runs = Block("agreement", "crossfit", 0), runs_of(study, "crossfit")
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
    configs = {
        (block.task, run.name): study.config(block, run) for block, run in select_runs(study)
    }
    rte, mrpc = configs["rte", "auber"], configs["mrpc", "random-1"]
    assert (rte.agent.episodes, rte.agent.gamma, rte.seed, rte.first.epochs) == (7, 0.5, 3, 4)
    assert (mrpc.agent.episodes, mrpc.random.draw, mrpc.first.epochs) == (5, 1, 3)


OWN = {**FILMS, "text": ["q1", "q2"], "labels": "no, yes", "kind": "sequence", "metric": "f1"}


@pytest.mark.parametrize(
    "tables",
    [
        {"settings": {"agent": {"scale_state": True}, "device": "cpu"}, "seeds": [0, 4]},
        {"tasks": {"rte": {"agent": {"stop_value": "none"}}, "cola": {}}, "draws": 2},
        {"tasks": {"films": {**OWN, "first": {"epochs": 2}}, "rte": {}}},
        {"tasks": {"films": {"rows": DIGEST}}, "protocols": ["seen", "heldout"]},
        {"model": "größe \N{HUGGING FACE}"},
    ],
)
def test_a_study_survives_its_file(tmp_path, tables):
    study = make_study({**SMALLEST, **tables})
    (tmp_path / "study.toml").write_text(study.to_toml())
    assert read_study(tmp_path / "study.toml") == study
    assert read_study(tmp_path / "study.toml").to_toml() == study.to_toml()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tasks": ["rta"]},
            "'tasks' must be known or rows of your own. Unknown task 'rta'. Did you mean 'rte'?",
        ),
        ({"tasks": ["rte", "rte"]}, "'tasks' must name each once; rte is repeated"),
        ({"tasks": {"rte": 3}}, "'tasks.rte' must be a table, found 3"),
        ({"methods": ["aubre"]}, "'methods' must be known. Unknown method 'aubre'. Did you mean"),
        (
            {"methods": ["random"]},
            "'random' removes as many heads as 'auber', which is not among the methods; add",
        ),
        ({"seeds": [0, 1, 1]}, "'seeds' must name each once; 1 is repeated"),
        ({"seeds": [-1]}, "'seeds.0' must be at least 0, found -1"),
        ({"protocols": ["held"]}, "'protocols' must be known. Unknown protocol 'held'. Did you"),
        ({"protocol": "seen"}, "unknown key 'protocol'. Did you mean 'protocols'?"),
        ({"preset": "papr"}, "Unknown preset 'papr'. Did you mean 'paper'?"),
        ({"settings": {"agent": {"gama": 1}}}, "settings: Unknown setting 'agent.gama'. Did you"),
        ({"settings": {"seed": 1}}, "settings: seed is set by the study for each run; list it"),
        (
            {"tasks": {"rte": {"first": {"when": "never"}}}},
            "tasks.rte: first.when is set by the study for each run; a study always fine-tunes",
        ),
        ({"model": "agreement"}, "the model 'agreement' reads only the task 'agreement', found"),
        ({"tasks": {"films": {"train": "a"}}}, "'tasks.films' must name both files of your own"),
        (
            {"tasks": {"films": {"texts": "a", "label": "b"}}},
            "'tasks.films' must have texts, or rows with labels, found both texts and label",
        ),
        (
            {"tasks": {"rte": FILMS}},
            "'tasks' must have other names for your own rows than 'rte': 1 to 100 of a-z, A-Z,",
        ),
        (
            {"tasks": {"my films": FILMS}},
            "'tasks' must have other names for your own rows than 'my films': 1 to 100 of a-z,",
        ),
        (
            {"tasks": {"films": {**FILMS, "lable": "y"}}},
            "'tasks.films' has the unknown key 'lable'. Did you mean 'label'?",
        ),
        (
            {"tasks": {"films": {**FILMS, "train": 3}}},
            "'tasks.films.train' must be a printable path",
        ),
        (
            {"tasks": {"films": {**FILMS, "first": {"epoch": 2}}}},
            "settings: Unknown setting 'first.epoch'. Did you mean",
        ),
        (
            {"tasks": {"films": FILMS}, "data": "glue"},
            "data is for known tasks, found only your own rows; leave data out",
        ),
    ],
)
def test_a_mistake_is_named(changes, message):
    with pytest.raises(ConfigError, match=f"^study: {re.escape(message)}"):
        make_study({**SMALLEST, **changes})


def test_all_mistakes_are_named_at_once():
    message = "^study: lacks 'model'; .*Unknown task 'y'.*; lacks 'methods'; .*; unknown key 'x'"
    with pytest.raises(ConfigError, match=message):
        make_study({"x": 1, "tasks": ["y"]})


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "x.toml").write_text("model = ")
    for name, message in (
        ("x", "cannot be read as TOML"),
        ("none", "no such file; correct the path$"),
    ):
        with pytest.raises(ConfigError, match=f"{name}.toml: {message}"):
            read_study(tmp_path / f"{name}.toml")


def test_rows_known_by_their_digest_alone_cannot_be_read():
    study = make_study({**SMALLEST, "tasks": {"films": {"rows": DIGEST}}})
    with pytest.raises(TaskError, match="^tasks.films: only the digest of its rows is known; name"):
        study.load_task("films")


def test_the_command_line_goes_before_the_file():
    study = change_study(make_study(SMALLEST), seeds="4, 5", model="other", data=Path("glue"))
    assert (study.seeds, study.model, study.data) == ((4, 5), "other", Path("glue"))
    for seeds in ("1,1", "1,x", "-1", ""):
        message = f"^--seeds must be different whole numbers such as 0,1,2, found '{seeds}'$"
        with pytest.raises(ConfigError, match=message):
            change_study(study, seeds=seeds)


@pytest.mark.parametrize("name", ["tiny-\udce9", "two\nlines", ""])
def test_a_model_whose_name_cannot_be_recorded(name):
    shown = re.escape(repr(name))
    message = rf"^study: the model's name must be 1 to 1000 printable characters, found {shown}; "
    with pytest.raises(ConfigError, match=message):
        change_study(make_study(SMALLEST), model=name)


def test_some_blocks():
    changes = {"tasks": ["rte", "cola"], "seeds": [0, 1], "protocols": ["seen", "heldout"]}
    study = make_study({**SMALLEST, **changes})

    def blocks(*only):
        return list(dict.fromkeys(block for block, _ in select_runs(study, only)))

    assert len(blocks()) == 8
    assert blocks("task=rte, seed=1,protocol=seen") == [Block("rte", "seen", 1)]
    assert len(blocks("seed=0,seed=1,task=cola")) == 4
    assert blocks("task=rte", "seed=0", "protocol=heldout") == [Block("rte", "heldout", 0)]
    for only, message in (
        ("task=rt", "--only: Unknown task 'rt'. Did you mean 'rte'? Known: cola, rte"),
        ("seed=2", "--only: Unknown seed '2'. Known: 0, 1"),
        ("method=michel", "--only: Unknown method 'michel'. Known: auber"),
        ("tsk=rte", "--only: Unknown key 'tsk'. Did you mean 'task'? Known: method, protocol, se"),
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
    ],
)
def test_some_methods_come_with_the_runs_that_they_need(only, protocol, names):
    methods = ["random", "auber", "auber-l2", "original", "original+tuning"]
    study = make_study(
        {**SMALLEST, "methods": methods, "draws": 2, "protocols": ["seen", "heldout"]}
    )
    found = select_runs(study, [only, f"protocol={protocol}"])
    assert [run.name for _, run in found] == names


@pytest.mark.parametrize(
    "path", sorted({*STUDIES.glob("*.toml")} - {STUDIES / "sizes.toml"}), ids=lambda path: path.stem
)
def test_the_studies_of_this_project(path):
    assert read_study(path).blocks()
    assert tomllib.loads(path.read_text())["settings"]["threads"] == 1, "any engine can do them"
