"""Runs in which the heads that stay stand in for those that go."""

from __future__ import annotations

import pytest

import auber
from auber import pipeline
from auber.html import make_page
from auber.html.render import render_html
from auber.mending import learn_mending, remove_mended
from auber.pipeline import CrossedScorer, make_scorer
from auber.seeds import derive
from auber.splits import Splits
from auber.tasks.encoding import encode_split
from auber.tuning import tune
from tests.pipeline.test_crossfit import SETTINGS, TASK, cut_and_resumed, prune, same_weights
from tests.small import cpu, small_config, small_start

CROSSED = {"search__mend": True, "search__rewind": False}
IN_TURN = {"search__mend": True, "protocol": "seen", "reward__measure": "metric", "reward__head": 1.0}


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mended") / "run"
    return prune(folder, **CROSSED), folder


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mended") / "run"
    return prune(folder, **IN_TURN), folder


class ByHand:
    """The start of a run's model, and its tunings."""

    def __init__(self, folder, **changes):
        self.model, tokenizer = small_start()
        self.rows = encode_split(tokenizer, TASK, "train", 24)
        self.splits = Splits.from_json(auber.runs.read_json(folder / "splits.json"))
        self.config = small_config(**{**SETTINGS, **changes})

    @property
    def first_rows(self):
        return self.rows.select(self.splits.first)

    def first(self):
        self._tune(self.splits.first, self.config.first, "first")

    def layer(self, layer):
        self._tune(self.splits.layers[layer].mini_train, self.config.layer, "layer", layer)

    def last(self):
        watch = (self.rows.select(self.splits.last_watch), TASK.metric)
        self._tune(self.splits.last_train, self.config.last, "last", watch=watch)

    def _tune(self, indices, settings, purpose, layer=None, watch=None):
        seed = derive(self.config.seed, f"tuning/{purpose}", layer)
        tune(self.model, self.rows.select(indices), settings, seed=seed, hardware=cpu(), watch=watch)


def test_a_plan_for_all_layers_is_mended_by_what_the_start_computes(crossed):
    outcome, folder = crossed
    hand = ByHand(folder, **CROSSED)
    hand.first()
    remove_mended(hand.model, outcome.plan, learn_mending(hand.model, hand.first_rows))
    for layer in outcome.result["tuned_layers"]:
        hand.layer(layer)
    hand.last()
    assert outcome.plan.num_removed > 2
    assert same_weights(hand.model, outcome.model)


def test_a_rewound_plan_is_mended_by_what_the_origin_computes(tmp_path):
    outcome = prune(tmp_path / "run", search__mend=True)
    hand = ByHand(tmp_path / "run", search__mend=True)
    remove_mended(hand.model, outcome.plan, learn_mending(hand.model, hand.first_rows))
    hand.first()
    for layer in outcome.result["tuned_layers"]:
        hand.layer(layer)
    hand.last()
    assert same_weights(hand.model, outcome.model)


def test_layers_in_turn_are_mended_by_what_the_model_computes_then(in_turn):
    outcome, folder = in_turn
    hand = ByHand(folder, **IN_TURN)
    hand.first()
    for layer in outcome.result["tuned_layers"]:
        removed = {layer: outcome.plan.removed(layer)}
        remove_mended(hand.model, removed, learn_mending(hand.model, hand.first_rows, [layer]))
        hand.layer(layer)
    hand.last()
    assert len(outcome.result["tuned_layers"]) > 1
    assert same_weights(hand.model, outcome.model)


@pytest.mark.parametrize(("settings", "scorer"), [(CROSSED, CrossedScorer), (IN_TURN, make_scorer)])
def test_rewards_are_those_of_mended_models(settings, scorer, monkeypatch, tmp_path):
    seen = []

    def listen(*given):
        parts = given[0] if scorer is CrossedScorer else [given]
        seen.extend(part[-1] for part in parts)
        return scorer(*given)

    monkeypatch.setattr(pipeline, scorer.__name__, listen)
    prune(tmp_path / "run", agent__episodes=1, **settings)
    assert len(seen) == (9 if scorer is CrossedScorer else 3)
    assert all(mending.present == (0, 1, 2, 3) for mending in seen)


@pytest.mark.parametrize("cut", ["layer-00", "layer-02", "tuning-00", "last"])
def test_a_cut_run_of_scouts_ends_like_an_unbroken_one(cut, crossed, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, **CROSSED)
    assert again.plan == crossed[0].plan
    assert same_weights(again.model, crossed[0].model)


@pytest.mark.parametrize("cut", ["layer-01", "last"])
def test_a_cut_run_in_turn_ends_like_an_unbroken_one(cut, in_turn, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, **IN_TURN)
    assert again.plan == in_turn[0].plan
    assert same_weights(again.model, in_turn[0].model)


def test_shards_score_mended_masks_as_one_piece_does(in_turn, tmp_path):
    outcome = prune(tmp_path / "run", reward__shards=2, **IN_TURN)
    assert outcome.plan == in_turn[0].plan
    assert same_weights(outcome.model, in_turn[0].model)


def test_with_a_prior_scouts_are_mended_beside_it(tmp_path):
    settings = {
        **CROSSED,
        "search__prior": "voita",
        "search__prior_share": 0.5,
        "reward__head": 0.0,
        "voita__epochs": 2,
    }
    outcome = prune(tmp_path / "run", reward__caution=10.0, **settings)
    hand = ByHand(tmp_path / "run", **settings)
    hand.first()
    remove_mended(hand.model, outcome.plan, learn_mending(hand.model, hand.first_rows))
    for layer in outcome.result["tuned_layers"]:
        hand.layer(layer)
    hand.last()
    assert outcome.plan.num_removed == 6
    assert same_weights(hand.model, outcome.model)


def test_its_page_says_so(crossed):
    text = render_html(make_page([crossed[1]]))
    assert "Heads that stay stand in for those that go, in every score and in the model." in text


def test_rankings_remove_heads_plainly(tmp_path):
    plain, mended = (prune(tmp_path / f"{mend}", "random", heads=4, search__mend=mend) for mend in (False, True))
    assert same_weights(plain.model, mended.model)
