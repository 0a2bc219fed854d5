"""A search that begins from the gates' plan, and corrects it."""

from __future__ import annotations

import json

import pytest

import auber
from auber.cli.status import RunReader
from auber.errors import ConfigError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.report.html import make_page
from auber.report.html.page import render_page
from auber.report.layers import read_runs
from auber.run.files import read_json
from auber.run.fold_models import FoldModels
from tests.run.test_fold_models import cut_and_resumed, prune, same_weights
from tests.small import small_start

GATES = {
    "search__prior": "voita",
    "search__prior_share": 0.5,
    "reward__head": 0.0,
    "voita__epochs": 2,
}


def stage_of(folder, name):
    return read_json(folder / "stages" / f"{name}.json")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prior") / "run"
    return prune(folder, **GATES), folder


def test_it_is_the_plan_of_the_ranking(run, tmp_path):
    """The same start and rows: the gates are those of method voita at as many heads."""
    ranked = prune(tmp_path / "voita", "voita", heads=6, **GATES)
    assert PruningPlan.from_json(stage_of(run[1], "prior")["plan"]) == ranked.plan
    assert ranked.plan.num_removed == 6


def test_every_search_begins_from_it_and_stays_where_it_does_not_gain(run):
    outcome, folder = run
    prior = PruningPlan.from_json(stage_of(folder, "prior")["plan"])
    for layer in range(3):
        stage = stage_of(folder, f"layer-{layer:02}")
        search = stage["search"]
        assert search.get("given", []) == list(prior.removed(layer))
        assert search["best_score"] >= search["given_score"]
        assert tuple(stage["removed"]) == outcome.plan.removed(layer)
        assert len(stage["removed"]) < 4, "one head stays"


def scores_of(folder):
    """The ledger: scores by layer and mask."""
    entries = map(json.loads, (folder / "scores.jsonl").read_text().splitlines())
    return {(entry["layer"], tuple(entry["removed"])): entry["score"] for entry in entries}


@pytest.mark.parametrize("caution", [0.0, 1.0])
@pytest.mark.parametrize("method", ["auber", "greedy", "exhaustive"])
def test_what_is_called_unpruned_is_the_layer_with_all_heads_where_anybody_asked_for_it(
    method, caution, tmp_path
):
    prune(tmp_path / "run", method, reward__caution=caution, **GATES)
    known = scores_of(tmp_path / "run")
    for layer in range(3):
        search = stage_of(tmp_path / "run", f"layer-{layer:02}")["search"]
        assert search["given_score"] == known[layer, tuple(search.get("given", ()))]
        assert search.get("unpruned_score") == known.get((layer, ()))
        assert search["rewards_computed"] == len([mask for of, mask in known if of == layer]), (
            "nothing more is asked"
        )


def test_who_watches_sees_the_same_gain_as_the_page(run):
    (page,) = read_runs([run[1]])
    gains = {layer.index: layer.chosen - layer.begun for layer in page.layers}
    assert {
        layer: status.gain for layer, status in enumerate(RunReader(run[1]).read().layers)
    } == pytest.approx(gains)


def test_with_much_caution_it_is_carried_out_as_it_is(tmp_path):
    outcome = prune(tmp_path / "run", reward__caution=10.0, **GATES)
    prior = PruningPlan.from_json(stage_of(tmp_path / "run", "prior")["plan"])
    assert outcome.plan == prior
    assert {
        stage_of(tmp_path / "run", f"layer-{layer:02}")["search"]["change_cost"] > 0
        for layer in range(3)
    } == {True}


def test_the_scouts_are_asked_beside_what_is_decided_and_else_beside_it(run, monkeypatch, tmp_path):
    asked, parts = [], FoldModels.make_parts

    def listen(self, train, rows, plan):
        made = parts(self, train, rows, plan)
        asked.append(plan)
        assert {encoder_of(part.model).removed for part in made} == {plan}
        return made

    monkeypatch.setattr(FoldModels, "make_parts", listen)
    outcome = prune(tmp_path / "run", **GATES)
    prior = PruningPlan.from_json(stage_of(tmp_path / "run", "prior")["plan"])
    expected = [
        PruningPlan({1: prior.removed(1), 2: prior.removed(2)}),
        PruningPlan({0: outcome.plan.removed(0), 2: prior.removed(2)}),
        PruningPlan({0: outcome.plan.removed(0), 1: outcome.plan.removed(1)}),
    ]
    assert asked == expected
    assert outcome.plan == run[0].plan


@pytest.mark.parametrize("method", ["greedy", "exhaustive"])
def test_other_searches_correct_it_too(method, tmp_path):
    outcome = prune(tmp_path / "run", method, **GATES)
    for layer in range(3):
        search = stage_of(tmp_path / "run", f"layer-{layer:02}")["search"]
        assert search["best_score"] >= search["given_score"]
        assert tuple(search["best"]) == outcome.plan.removed(layer)


def test_a_number_of_heads_is_that_of_the_prior_and_of_what_comes_out(tmp_path):
    outcome = prune(tmp_path / "run", search__heads=4, reward__caution=1.0, **GATES)
    prior = PruningPlan.from_json(stage_of(tmp_path / "run", "prior")["plan"])
    assert prior.num_removed == outcome.plan.num_removed == 4
    assert stage_of(tmp_path / "run", "budget")["gain"] >= 0, (
        "the prior is among the plans of this size"
    )


@pytest.mark.parametrize("cut", ["prior", "layer-00", "layer-01", "rewind", "last"])
def test_a_run_that_was_cut_ends_like_an_unbroken_one(cut, run, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, **GATES)
    assert again.plan == run[0].plan
    assert same_weights(again.model, run[0].model)


def test_its_page_tells_what_it_began_from(run):
    text = render_page(make_page([run[1]]))
    assert "The searches started from a plan without 6 heads and changed " in text
    assert "in points over the plan the search started from" in text
    assert "unpruned" not in text


def test_a_protocol_that_tunes_between_layers(tmp_path):
    message = (
        r"^search.prior must be none under protocol seen, which tunes after each layer before the next is decided, found voita; "
        r"set protocol=crossfit$"
    )
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", protocol="seen", **GATES)
    assert not (tmp_path / "run").exists()
    prune(tmp_path / "control", "original+tuning", protocol="seen", **GATES)


def test_a_start_that_has_lost_heads(tmp_path):
    start, _ = small_start()
    auber.remove_heads(start, {0: [1]})
    outcome = prune(tmp_path / "run", model=start, **GATES)
    prior = PruningPlan.from_json(stage_of(tmp_path / "run", "prior")["plan"])
    assert 1 not in prior.removed(0)
    assert encoder_of(outcome.model).removed.num_removed == outcome.result["heads"]["removed"]
