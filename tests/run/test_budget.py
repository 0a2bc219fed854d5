"""The best plan of a given size."""

from __future__ import annotations

import shutil
from typing import ClassVar

import pytest

import auber
from auber.errors import ConfigError, RunError
from auber.report.html import make_page
from auber.report.html.page import render_page
from auber.report.layers import read_runs
from auber.run.decisions import best_plan
from auber.run.files import read_json
from auber.system.progress import Progress
from tests.run.test_fold_models import SETTINGS, TASK, cut_and_resumed, prune, same_weights
from tests.small import small_config, small_start, small_task


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget") / "run"
    return prune(folder, search__heads=5), folder


def test_as_many_heads_go_as_are_asked_for(run):
    outcome, folder = run
    assert outcome.plan.num_removed == outcome.result["heads"]["removed"] == 5
    assert outcome.result["tuned_layers"] == list(outcome.plan)
    known = {}
    for layer in range(3):
        stage = read_json(folder / "stages" / f"layer-{layer:02}.json")
        assert stage["removed"] == []
        assert stage["search"]["present"] == [0, 1, 2, 3]
        known[layer] = {
            len(each["removed"]): (tuple(each["removed"]), each["gain"]) for each in stage["sizes"]
        }
        unpruned = stage["search"]["unpruned_score"]
        assert stage["sizes"][0] == {"removed": [], "score": unpruned, "gain": 0.0}
        for each in stage["sizes"]:
            paid = SETTINGS["reward__head"] * len(each["removed"])
            assert each["gain"] == pytest.approx(100 * (each["score"] - unpruned) + paid)
    assert outcome.plan == best_plan(5, known)[0]


@pytest.mark.parametrize("cut", ["layer-01", "budget", "rewind", "last"])
def test_a_run_that_was_cut_ends_like_an_unbroken_one(cut, run, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, search__heads=5)
    assert again.plan == run[0].plan
    assert same_weights(again.model, run[0].model)


def test_its_page_is_drawn(run):
    text = render_page(make_page([run[1]]))
    assert "5 of 12" in text
    assert "The number of heads was given" in text
    for untrue in ("were removed before this run", "had scored a better mask"):
        assert untrue not in text
    (view,) = read_runs([run[1]])
    for layer in view.layers:
        assert layer.removed == run[0].plan.removed(layer.index)
        sizes = read_json(run[1] / "stages" / f"layer-{layer.index:02}.json")["sizes"]
        assert layer.chosen in [
            each["score"] for each in sizes if len(each["removed"]) == len(layer.removed)
        ]


def test_a_damaged_record_of_it(run, tmp_path):
    shutil.copytree(run[1], tmp_path / "run")
    (tmp_path / "run" / "stages" / "budget.json").write_text('{"seconds": 1.0}')
    with pytest.raises(
        RunError,
        match=r"budget.json: lacks 'plan'; it is damaged or of another version: make the run again$",
    ):
        make_page([tmp_path / "run"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"search__heads": 10},
            r"^search.heads must be from 0 to 9 \(one head stays in each of the layers searched\), found 10$",
        ),
        (
            {"search__heads": 4, "search__layers": "1"},
            r"^search.heads must be from 0 to 3 \(one head stays in each of the layers searched\), found 4$",
        ),
        (
            {"search__heads": 4, "protocol": "seen"},
            "^search.heads must be 0 under protocol seen, which tunes after each layer before the next is decided, found 4; "
            "set protocol=crossfit$",
        ),
    ],
)
def test_numbers_that_cannot_be(changes, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_rankings_are_matched_with_it_and_know_no_budget(run, tmp_path):
    found = prune(tmp_path / "michel", "michel", heads_from=run[1], search__heads=5)
    assert found.plan.num_removed == 5
    assert found.result["tuned_layers"] == run[0].result["tuned_layers"]


def test_where_to_say_how_many(tmp_path):
    message = "^method 'auber' decides itself how many heads to remove; leave out --heads, or set protocol=crossfit$"
    model, tokenizer = small_start()
    with pytest.raises(ConfigError, match=message):
        auber.prune(
            model,
            tokenizer,
            task=small_task(),
            heads=5,
            config=small_config(),
            out=tmp_path / "run",
        )


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (11, "^search.heads must be from 0 to 9 "),
        (
            0,
            "^--heads must be at least 1 for a search, found 0; leave it out, and the rewards decide$",
        ),
    ],
)
def test_numbers_that_cannot_be_given_for_a_search(heads, message, tmp_path):
    model, tokenizer = small_start()
    config = small_config(**{**SETTINGS, "first__when": "always"})
    with pytest.raises(ConfigError, match=message):
        auber.prune(
            model, tokenizer, task=small_task(), config=config, heads=heads, out=tmp_path / "run"
        )


def test_the_number_may_be_given_beside_the_settings(run, tmp_path):
    model, tokenizer = small_start()
    config = small_config(**{**SETTINGS, "first__when": "always"})
    found = auber.prune(model, tokenizer, task=TASK, config=config, heads=5, out=tmp_path / "run")
    assert found.result["config"]["search.heads"] == 5
    assert found.plan == run[0].plan


def test_that_another_number_goes_is_said(tmp_path):
    class Notes(Progress):
        said: ClassVar[list[str]] = []

        def say(self, text):
            self.said.append(text)

    model, tokenizer = small_start()
    config = small_config(**{**SETTINGS, "first__when": "always", "agent__episodes": 0})
    found = auber.prune(
        model, tokenizer, task=TASK, config=config, heads=5, out=tmp_path / "run", progress=Notes()
    )
    number = found.plan.num_removed
    assert number < 5, "the one game after none that teach has seen few masks"
    assert (
        "search.heads asks for 5 heads, and the nearest sum of the scored masks is "
        f"{number}; raise agent.episodes to score more"
    ) in Notes.said


@pytest.mark.parametrize("method", ["greedy", "exhaustive"])
def test_other_searches_meet_a_number_too(method, tmp_path):
    """Also one that is more than gains."""
    assert prune(tmp_path / "run", method, search__heads=9, reward__head=0.0).plan.num_removed == 9
