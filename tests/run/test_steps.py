"""The steps of a search on fold models: its prior, a given number of heads, rewards for time."""

from __future__ import annotations

import json

import pytest

from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.run import steps
from auber.run.decisions import best_plan
from auber.run.files import read_json
from auber.run.fold_models import FoldModels
from auber.training.latency import Saving
from auber.training.timing import Ratio
from tests.run.test_fold_models import SETTINGS, cut_and_resumed, prune, same_weights, searches
from tests.small import Messages

# The prior

GATES = {
    "search__prior": "voita",
    "search__prior_share": 0.5,
    "reward__head": 0.0,
    "voita__epochs": 1,
    "voita__trials": 3,
}


def stage_of(folder, name):
    return read_json(folder / "stages" / f"{name}.json")


def prior_of(folder):
    return PruningPlan.from_json(stage_of(folder, "prior")["plan"])


@pytest.fixture(scope="module")
def corrected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prior") / "run"
    return prune(folder, **GATES), folder


def test_the_prior_is_the_plan_of_the_ranking(corrected, tmp_path):
    ranked = prune(tmp_path / "voita", "voita", heads=6, **GATES)
    assert prior_of(corrected[1]) == ranked.plan
    assert ranked.plan.num_heads == 6


def test_every_search_starts_from_the_prior(corrected):
    outcome, folder = corrected
    prior = prior_of(folder)
    for layer in range(3):
        stage = stage_of(folder, f"layer-{layer:02}")
        search = stage["search"]
        assert search.get("given", []) == list(prior.heads.get(layer, ()))
        assert search["best_score"] >= search["given_score"]
        assert tuple(stage["removed"]) == outcome.plan.heads.get(layer, ())
        assert len(stage["removed"]) < 4, "one head stays"


def scores_of(folder):
    """Return the ledger: scores by layer and mask."""
    entries = map(json.loads, (folder / "scores.jsonl").read_text().splitlines())
    return {(entry["layer"], tuple(entry["removed"])): entry["score"] for entry in entries}


@pytest.mark.parametrize(
    ("method", "caution"), [("auber", 0.0), ("auber", 1.0), ("greedy", 1.0), ("exhaustive", 0.0)]
)
def test_the_unpruned_score_is_recorded_if_a_search_asks_for_it(method, caution, tmp_path):
    prune(tmp_path / "run", method, reward__caution=caution, **GATES)
    known = scores_of(tmp_path / "run")
    for layer in range(3):
        search = stage_of(tmp_path / "run", f"layer-{layer:02}")["search"]
        assert search["given_score"] == known[layer, tuple(search.get("given", ()))]
        assert search.get("unpruned_score") == known.get((layer, ()))
        assert search["rewards_computed"] == len([mask for of, mask in known if of == layer]), (
            "nothing more is asked"
        )


def test_fold_models_lack_the_decided_heads_and_else_the_prior(corrected, monkeypatch, tmp_path):
    asked, parts = [], FoldModels.make_parts

    def listen(self, train, rows, plan):
        made = parts(self, train, rows, plan)
        asked.append(plan)
        assert {encoder_of(part.model).removed for part in made} == {plan}
        return made

    monkeypatch.setattr(FoldModels, "make_parts", listen)
    outcome = prune(tmp_path / "run", **GATES)
    prior = prior_of(tmp_path / "run")
    expected = [
        PruningPlan({1: prior.heads.get(1, ()), 2: prior.heads.get(2, ())}),
        PruningPlan({0: outcome.plan.heads.get(0, ()), 2: prior.heads.get(2, ())}),
        PruningPlan({0: outcome.plan.heads.get(0, ()), 1: outcome.plan.heads.get(1, ())}),
    ]
    assert asked == expected
    assert outcome.plan == corrected[0].plan


def test_the_prior_is_of_the_layers_that_are_searched(corrected, tmp_path):
    assert 1 in prior_of(corrected[1]).heads
    prune(tmp_path / "run", search__layers="0,2", **GATES)
    assert set(prior_of(tmp_path / "run").heads) == {0, 2}


def test_the_prior_has_the_given_number_of_heads(tmp_path):
    outcome = prune(tmp_path / "run", search__heads=4, reward__caution=1.0, **GATES)
    prior = prior_of(tmp_path / "run")
    assert prior.num_heads == outcome.plan.num_heads == 4
    assert stage_of(tmp_path / "run", "budget")["gain"] >= 0, (
        "the prior is among the plans of this size"
    )


@pytest.mark.parametrize("cut", ["prior", "layer-01", "rewind"])
def test_a_search_with_a_prior_is_resumed(cut, corrected, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, **GATES)
    assert again.plan == corrected[0].plan
    assert same_weights(again.model, corrected[0].model)


# A given number of heads


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget") / "run"
    return prune(folder, search__heads=5), folder


def test_the_given_number_of_heads_goes(sized):
    outcome, folder = sized
    assert outcome.plan.num_heads == outcome.result["heads"]["removed"] == 5
    assert outcome.result["tuned_layers"] == list(outcome.plan.heads)
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


@pytest.mark.parametrize("cut", ["layer-01", "budget"])
def test_a_search_of_a_given_size_is_resumed(cut, sized, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, search__heads=5)
    assert again.plan == sized[0].plan
    assert same_weights(again.model, sized[0].model)


def test_heads_sets_the_number_of_a_search(sized, tmp_path):
    found = prune(tmp_path / "run", heads=5)
    assert found.result["config"]["search.heads"] == 5
    assert found.plan == sized[0].plan


def test_another_number_of_heads_is_reported(tmp_path):
    messages = Messages()
    found = prune(tmp_path / "run", heads=5, agent__episodes=0, progress=messages)
    number = found.plan.num_heads
    assert number < 5, "the one game after none that teach has seen few masks"
    assert (
        f"{number} heads are removed, the nearest number to 5 that the scored masks allow; raise "
        "agent.episodes to score more"
    ) in messages.said


def test_other_searches_remove_the_given_number(tmp_path):
    found = prune(tmp_path / "run", "greedy", search__heads=9, reward__head=0.0)
    assert found.plan.num_heads == 9


# Rewards for time

PAID = {"reward__head": 0.0, "reward__latency": 0.5, "reward__latency_rows": 3}
SEEN = {"protocol": "seen", "reward__measure": "metric"}


class Clock:
    """A measurement with a given result."""

    def __init__(self, monkeypatch, percent):
        self.asked = []
        saved = percent * 6 / 100  # of the time of six heads
        ratio = Ratio(1 / (1 - saved), 1.01, 2.0) if percent else Ratio(1.0, 0.9, 1.1)
        self.found = Saving(6, 3, 24, ratio)
        monkeypatch.setattr(steps, "measure_saving", self)

    def __call__(self, model, hardware, rows, length, on_round):
        self.asked.append((rows, length))
        return self.found


@pytest.mark.parametrize("protocol", [{}, SEEN], ids=["crossfit", "seen"])
def test_a_head_is_rewarded_for_the_time_it_saves(monkeypatch, tmp_path, protocol):
    clock = Clock(monkeypatch, percent=2.0)
    timed = prune(tmp_path / "timed", **{**PAID, **protocol})
    paid = prune(
        tmp_path / "paid", **{**PAID, **protocol, "reward__latency": 0.0, "reward__head": 1.0}
    )
    assert clock.asked == [(3, 24)], "nothing is measured where it is worth nothing"
    assert timed.plan == paid.plan
    assert timed.plan.num_heads > 0
    ours, theirs = searches(tmp_path / "timed"), searches(tmp_path / "paid")
    assert [search["time_pay"] for search in ours] == pytest.approx([1.0] * 3)
    assert [search["best_score"] for search in ours] == [search["best_score"] for search in theirs]
    stage = read_json(tmp_path / "timed" / "stages" / "timing.json")
    assert stage["timing"] == clock.found.to_json()
    assert timed.result["cost"]["seconds"]["timing"] == stage["seconds"]
    assert "timing" not in paid.result["cost"]["seconds"]


@pytest.mark.parametrize("percent", [0.0, None])
def test_time_within_the_noise_or_unmeasured_is_not_rewarded(monkeypatch, tmp_path, percent):
    clock = Clock(monkeypatch, percent=percent or 0.0)
    if percent is None:
        clock.found = None
    prune(tmp_path / "run", **PAID)
    assert len(clock.asked) == 1
    assert not any("time_pay" in search for search in searches(tmp_path / "run"))
    timing = read_json(tmp_path / "run" / "stages" / "timing.json")["timing"]
    assert (timing is None) is (percent is None)


@pytest.mark.parametrize("cut", ["timing", "layer-01"])
def test_a_resumed_run_uses_the_measured_time(monkeypatch, tmp_path, cut):
    whole = Clock(monkeypatch, percent=2.0)
    unbroken = prune(tmp_path / "unbroken", **PAID)
    assert len(whole.asked) == 1
    clock = Clock(monkeypatch, percent=2.0)
    resumed = cut_and_resumed(monkeypatch, tmp_path / "cut", cut, **PAID)
    assert len(clock.asked) == (2 if cut == "timing" else 1), (
        "what was written is not measured again"
    )
    assert resumed.plan == unbroken.plan
