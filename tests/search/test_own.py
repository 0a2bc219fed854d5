"""A user's own player: what is wrong with one is named, and a good one runs like a method."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

import auber
from auber.errors import ConfigError
from auber.search.methods import LayerChoice
from auber.search.own import check_player, load_method, make_method
from auber.search.registry import get_method
from auber.search.toy import ToyLayer
from auber.study.plan import make_study
from auber.system import seeds
from auber.system.progress import Progress
from tests.search.made import CountingToy
from tests.small import small_config, small_start, small_task

MODULE = """
from auber.search.methods import LayerChoice

class First:
    '''Remove the first head if that gains.'''

    def choose_layer(self, search):
        masks = [(), search.heads[:1]] if len(search.heads) > 1 else [()]
        best = max(zip(search.score_many(masks), masks))[1]
        return LayerChoice(best, len(masks))

class Needy(First):
    def __init__(self, name):
        self.name = name

first, number = First(), 3
"""


class Ten:
    """Score ten random masks; `stops_at` is a layer at which it is interrupted."""

    def __init__(self, stops_at=None):
        self.stops_at = stops_at

    def choose_layer(self, search):
        if search.layer == self.stops_at:
            raise KeyboardInterrupt
        draw = seeds.generator(search.config.seed, "ten", search.layer)
        masks = [search.prior]
        for _ in range(10):
            keep = draw.choice(search.heads)
            removed = [head for head in search.heads if head != keep and draw.random() < 0.5]
            masks.append(tuple(removed))
        scores = search.score_many(masks)
        best = masks[int(np.argmax(scores))]
        details = {"given_score": scores[0], "best": list(best), "best_score": max(scores)}
        return LayerChoice(best, len(masks), details)


class Returns:
    """Return what it was given."""

    def __init__(self, found):
        self.found = found

    def choose_layer(self, search):
        return self.found(search) if callable(self.found) else self.found


def choice(removed=(), asked=1, **details):
    return LayerChoice(removed, asked, details)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((1, 2), "choose_layer must return a LayerChoice, found tuple"),
        (choice([1]), r"removed must be a tuple of ints, found \[1\]"),
        (choice((np.int64(1),)), r"removed must be a tuple of ints, found \(np.int64\(1\),\)"),
        (choice((2, 1)), r"some of the heads \[0, 1, 2, 3\] in ascending order, found \[2, 1\]"),
        (choice((7,)), r"some of the heads \[0, 1, 2, 3\] in ascending order, found \[7\]"),
        (choice((0, 1, 2, 3)), r"one of the heads \[0, 1, 2, 3\] must stay, found all removed"),
        (choice(asked=-1), "rewards_asked must be a whole number from 0, found -1"),
        (choice(asked=1.5), "rewards_asked must be a whole number from 0, found 1.5"),
        (choice(score=1.0), "details may have given_score, best, best_score, curve, found 'score'"),
        (choice(best_score=float("nan")), "details must be JSON"),
        (choice(best={1}), "details must be JSON"),
    ],
)
def test_a_wrong_choice_is_named(found, message):
    search = CountingToy(ToyLayer(4)).search()
    with pytest.raises(ConfigError, match=f"^player tests.*:Returns: layer 0: .*{message}"):
        make_method(Returns(found)).choose_layer(search)


def test_the_checker_accepts_a_player_and_names_what_is_wrong():
    check_player(Ten())
    draw = np.random.default_rng(0)
    restless = Returns(lambda search: choice(search.heads[: draw.integers(len(search.heads))]))
    with pytest.raises(ConfigError, match="must repeat its choice with the same seed, found"):
        check_player(restless)
    with pytest.raises(ConfigError, match=r"one of the heads \[0\] must stay"):
        check_player(Returns(lambda search: choice(search.heads[:1])))


def test_a_class_or_another_object_is_no_player():
    with pytest.raises(ConfigError, match=r"test_own:Ten: must be an object, found the class"):
        make_method(Ten)
    message = r"^player builtins:int: must have a method choose_layer\(search\), which int lacks"
    with pytest.raises(ConfigError, match=message):
        make_method(3)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module `mine` in the working directory, which `sys.path` does not have."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nothing_like_it")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mine", "broken"):
        sys.modules.pop(name, None)


WRONG = [
    ("mine:", "must be MODULE:NAME, such as my_players:MyPlayer"),
    ("a/b:Name", "must be MODULE:NAME, such as my_players:MyPlayer"),
    (
        "missing_module:Name",
        r"module missing_module cannot be imported \(ModuleNotFoundError: No module named "
        r"'missing_module'\); correct the name or the module, or start in its folder",
    ),
    ("broken:Name", r"module broken cannot be imported \(ModuleNotFoundError: .*nothing_like_it"),
    ("mine:Frist", r"module mine has no Frist. Did you mean 'First'\?"),
    ("mine:Needy", r"the class must take no arguments \(.*'name'\); name an object"),
    ("mine:number", r"must have a method choose_layer\(search\), which int lacks"),
]


@pytest.mark.parametrize(("name", "message"), WRONG)
def test_a_wrong_name_is_a_one_line_error(module, name, message, run_auber):
    with pytest.raises(ConfigError, match=f"^player {re.escape(name)}: {message}"):
        get_method(name)
    words = ["prune", "--model", "m", "--task", "rte", "--out", "o", "--player", name]
    code, _, errors = run_auber(*words)
    assert code == 2
    assert len(errors.strip().splitlines()) == 1
    assert re.search(message, errors)


def test_a_player_takes_the_place_of_a_method(module, run_auber):
    words = ["prune", "--model", "m", "--task", "rte", "--out", "o", "--player"]
    code, _, errors = run_auber(*words, "mine:First", "--method", "greedy")
    assert (code, "--player takes the place of --method greedy" in errors) == (2, True)
    code, _, errors = run_auber(*words, "greedy")
    assert (code, "--player must be MODULE:NAME, found 'greedy'" in errors) == (2, True)
    with pytest.raises(ConfigError, match="takes the place of a method, found method='greedy'"):
        auber.prune(*small_start(), task=small_task(), method="greedy", player=Ten())


def test_a_class_and_an_object_are_loaded(module):
    for name in ("mine:First", "mine:first"):
        method = load_method(name)
        toy = CountingToy(ToyLayer(4, bias=0.1, pair=0.0))
        assert method.choose_layer(toy.search()).removed == (0,)
        assert (method.name, method.decides_number) == (name, True)


def read(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("protocol", ["seen", "crossfit"])
def test_a_run_with_a_player_resumes_and_is_reported(tmp_path, run_auber, protocol):
    given = {
        "task": small_task(),
        "config": small_config(first__when="always", protocol=protocol, layer__epochs=1),
    }
    told = Progress()
    whole = auber.prune(
        *small_start(), player=Ten(), out=tmp_path / "whole", progress=told, **given
    )
    assert told.finished == told.planned  # though the player reports no stage
    with pytest.raises(KeyboardInterrupt):
        auber.prune(*small_start(), player=Ten(stops_at=1), out=tmp_path / "run", **given)
    resumed = auber.prune(*small_start(), player=Ten(), out=tmp_path / "run", resume=True, **given)
    assert resumed.result["method"] == "tests.search.test_own:Ten"
    assert read(tmp_path / "run" / "run.json")["method"] == "tests.search.test_own:Ten"
    assert resumed.plan == whole.plan
    assert resumed.result["dev"] == whole.result["dev"]
    assert resumed.result["cost"]["rewards_asked"] >= 33
    with pytest.raises(auber.AuberError, match="method was 'tests.search.test_own:Ten' and is now"):
        auber.prune(*small_start(), method="greedy", out=tmp_path / "run", resume=True, **given)
    code, _, errors = run_auber("report", tmp_path / "run", "--out", tmp_path / "report")
    assert code == 0, errors
    pages = "".join(path.read_text() for path in (tmp_path / "report").rglob("*.html"))
    assert "tests.search.test_own:Ten" in pages


def test_a_study_names_a_player_without_importing_it(module):
    tables = {"model": "agreement", "tasks": ["agreement"], "seeds": [0], "preset": "paper"}
    study = make_study({**tables, "methods": ["auber", "mine:First", "random"]})
    (block,) = study.blocks()
    runs = {run.name: run for run in study.runs(block)}
    assert runs["mine.First"].method == "mine:First"
    assert not runs["mine.First"].is_matched
    assert "mine" not in sys.modules
    with pytest.raises(ConfigError, match="Unknown method 'mine'"):
        make_study({**tables, "methods": ["mine"]})
