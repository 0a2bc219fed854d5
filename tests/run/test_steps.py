"""The steps of a search on fold models: its prior, a given number of heads, rewards for time."""

from __future__ import annotations

import json

import pytest

import auber
from auber.errors import ConfigError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.run import steps
from auber.run.decisions import best_plan
from auber.run.files import read_json
from auber.run.fold_models import FoldModels
from auber.system.progress import Progress
from auber.training.latency import Saving
from auber.training.timing import Ratio
from tests.run.test_fold_models import (
    SETTINGS,
    TASK,
    cut_and_resumed,
    prune,
    same_weights,
    searches,
)
from tests.small import small_config, small_start, small_task

# The prior

GATES = {
    "search__prior": "voita",
    "search__prior_share": 0.5,
    "reward__head": 0.0,
    "voita__epochs": 2,
}


def stage_of(folder, name):
    return read_json(folder / "stages" / f"{name}.json")


@pytest.fixture(scope="module")
def corrected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prior") / "run"
    return prune(folder, **GATES), folder


def test_the_prior_is_the_plan_of_the_ranking(corrected, tmp_path):
    ranked = prune(tmp_path / "voita", "voita", heads=6, **GATES)
    assert PruningPlan.from_json(stage_of(corrected[1], "prior")["plan"]) == ranked.plan
    assert ranked.plan.num_removed == 6


def test_every_search_starts_from_the_prior(corrected):
    outcome, folder = corrected
    prior = PruningPlan.from_json(stage_of(folder, "prior")["plan"])
    for layer in range(3):
        stage = stage_of(folder, f"layer-{layer:02}")
        search = stage["search"]
        assert search.get("given", []) == list(prior.removed(layer))
        assert search["best_score"] >= search["given_score"]
        assert tuple(stage["removed"]) == outcome.plan.removed(layer)
        assert len(stage["removed"]) < 4, "one head stays"


def scores_of(folder):
    """Return the ledger: scores by layer and mask."""
    entries = map(json.loads, (folder / "scores.jsonl").read_text().splitlines())
    return {(entry["layer"], tuple(entry["removed"])): entry["score"] for entry in entries}


@pytest.mark.parametrize("caution", [0.0, 1.0])
@pytest.mark.parametrize("method", ["auber", "greedy", "exhaustive"])
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


def test_with_much_caution_the_prior_is_not_changed(tmp_path):
    outcome = prune(tmp_path / "run", reward__caution=10.0, **GATES)
    prior = PruningPlan.from_json(stage_of(tmp_path / "run", "prior")["plan"])
    assert outcome.plan == prior
    assert {
        stage_of(tmp_path / "run", f"layer-{layer:02}")["search"]["change_cost"] > 0
        for layer in range(3)
    } == {True}


def test_fold_models_lack_the_decided_heads_and_else_the_prior(corrected, monkeypatch, tmp_path):
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
    assert outcome.plan == corrected[0].plan


def test_the_prior_has_the_given_number_of_heads(tmp_path):
    outcome = prune(tmp_path / "run", search__heads=4, reward__caution=1.0, **GATES)
    prior = PruningPlan.from_json(stage_of(tmp_path / "run", "prior")["plan"])
    assert prior.num_removed == outcome.plan.num_removed == 4
    assert stage_of(tmp_path / "run", "budget")["gain"] >= 0, (
        "the prior is among the plans of this size"
    )


@pytest.mark.parametrize("cut", ["prior", "layer-00", "layer-01", "rewind", "last"])
def test_a_search_with_a_prior_is_resumed(cut, corrected, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, **GATES)
    assert again.plan == corrected[0].plan
    assert same_weights(again.model, corrected[0].model)


def test_a_prior_needs_crossfit(tmp_path):
    message = (
        r"^search.prior must be none under protocol seen, which tunes after each layer "
        r"before the next is decided, found voita; "
        r"set protocol=crossfit$"
    )
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", protocol="seen", **GATES)
    assert not (tmp_path / "run").exists()
    prune(tmp_path / "control", "original+tuning", protocol="seen", **GATES)


def test_the_prior_of_a_pruned_model(tmp_path):
    start, _ = small_start()
    auber.remove_heads(start, {0: [1]})
    outcome = prune(tmp_path / "run", model=start, **GATES)
    prior = PruningPlan.from_json(stage_of(tmp_path / "run", "prior")["plan"])
    assert 1 not in prior.removed(0)
    assert encoder_of(outcome.model).removed.num_removed == outcome.result["heads"]["removed"]


# A given number of heads


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget") / "run"
    return prune(folder, search__heads=5), folder


def test_the_given_number_of_heads_goes(sized):
    outcome, folder = sized
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
def test_a_search_of_a_given_size_is_resumed(cut, sized, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, search__heads=5)
    assert again.plan == sized[0].plan
    assert same_weights(again.model, sized[0].model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"search__heads": 10},
            r"^search.heads must be from 0 to 9 \(one head stays in each of the layers "
            r"searched\), found 10$",
        ),
        (
            {"search__heads": 4, "search__layers": "1"},
            r"^search.heads must be from 0 to 3 \(one head stays in each of the layers "
            r"searched\), found 4$",
        ),
        (
            {"search__heads": 4, "protocol": "seen"},
            "^search.heads must be 0 under protocol seen, which tunes after each layer "
            "before the next is decided, found 4; "
            "set protocol=crossfit$",
        ),
    ],
)
def test_numbers_of_heads_that_are_impossible(changes, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_ranking_is_matched_with_a_search_of_a_given_size(sized, tmp_path):
    found = prune(tmp_path / "michel", "michel", heads_from=sized[1], search__heads=5)
    assert found.plan.num_removed == 5
    assert found.result["tuned_layers"] == sized[0].result["tuned_layers"]


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (11, "^search.heads must be from 0 to 9 "),
        (
            0,
            "^--heads must be at least 1 for a search, found 0; leave it out, and the "
            "rewards decide$",
        ),
    ],
)
def test_numbers_of_heads_that_a_search_refuses(heads, message, tmp_path):
    model, tokenizer = small_start()
    config = small_config(**{**SETTINGS, "first__when": "always"})
    with pytest.raises(ConfigError, match=message):
        auber.prune(
            model, tokenizer, task=small_task(), config=config, heads=heads, out=tmp_path / "run"
        )


def test_heads_sets_the_number_of_a_search(sized, tmp_path):
    model, tokenizer = small_start()
    config = small_config(**{**SETTINGS, "first__when": "always"})
    found = auber.prune(model, tokenizer, task=TASK, config=config, heads=5, out=tmp_path / "run")
    assert found.result["config"]["search.heads"] == 5
    assert found.plan == sized[0].plan


def test_another_number_of_heads_is_reported(tmp_path):
    said = []

    class Notes(Progress):
        def say(self, text):
            said.append(text)

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
    ) in said


@pytest.mark.parametrize("method", ["greedy", "exhaustive"])
def test_other_searches_remove_the_given_number(method, tmp_path):
    assert prune(tmp_path / "run", method, search__heads=9, reward__head=0.0).plan.num_removed == 9


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
    assert timed.plan.num_removed > 0
    ours, theirs = searches(tmp_path / "timed"), searches(tmp_path / "paid")
    assert [search["time_pay"] for search in ours] == pytest.approx([1.0] * 3)
    assert [search["best_score"] for search in ours] == [search["best_score"] for search in theirs]
    stage = read_json(tmp_path / "timed" / "stages" / "timing.json")
    assert stage["timing"] == clock.found.to_json()
    assert timed.result["cost"]["seconds"]["timing"] == stage["seconds"]
    assert "timing" not in paid.result["cost"]["seconds"]


def test_time_within_the_noise_is_not_rewarded(monkeypatch, tmp_path):
    Clock(monkeypatch, percent=0.0)
    timed = prune(tmp_path / "timed", **PAID)
    free = prune(tmp_path / "free", reward__head=0.0)
    assert timed.plan == free.plan
    assert not any("time_pay" in search for search in searches(tmp_path / "timed"))


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


def test_without_a_measurement_nothing_is_rewarded(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, percent=2.0)
    clock.found = None
    prune(tmp_path / "run", **PAID)
    assert len(clock.asked) == 1
    assert not any("time_pay" in search for search in searches(tmp_path / "run"))
    assert read_json(tmp_path / "run" / "stages" / "timing.json")["timing"] is None


@pytest.mark.parametrize("method", ["original+tuning", "michel"])
def test_only_searches_measure_time(monkeypatch, tmp_path, method):
    clock = Clock(monkeypatch, percent=2.0)
    prune(tmp_path / "run", method, heads=None if method == "original+tuning" else 3, **PAID)
    assert clock.asked == []


def test_a_real_measurement(tmp_path):
    outcome = prune(tmp_path / "run", **PAID)
    stage = read_json(tmp_path / "run" / "stages" / "timing.json")
    assert stage["timing"]["heads"] == 6
    assert (
        stage["timing"]["ratio"]["low"]
        <= stage["timing"]["ratio"]["median"]
        <= stage["timing"]["ratio"]["high"]
    )
    assert outcome.result["config"]["reward.latency"] == 0.5


def test_a_group_of_processes_measures_no_time(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = (
        "^reward.latency must be 0 in a group of 2 processes, each of which measures another "
        "time, found 0.5; start one process, "
        "or give reward.head$"
    )
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", **PAID)
    assert not (tmp_path / "run").exists()
