"""The experiments run from end to end on a small encoder and write what they promise."""

from __future__ import annotations

import json
import sys

import pytest

from auber.config import make_config
from auber.data import load_task
from auber.data.rows import count_labels
from auber.run.pipeline import Pipeline
from auber.search.registry import METHODS
from experiments import cost, develop, page, parts, summary
from tests.docs.standins import make_encoder, make_glue


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    make_encoder(folder / "encoder")
    make_glue(folder / "glue")
    return folder


SHORT = [word for stage in ("first", "layer", "last") for word in ("--set", f"{stage}.epochs=1")]


def run(program, place, monkeypatch, *words):
    out = place / "out.json"
    common = [
        "--model",
        place / "encoder",
        "--task",
        "mrpc",
        "--data",
        place / "glue",
        "--out",
        out,
        *SHORT,
    ]
    monkeypatch.setattr(sys, "argv", ["experiment", *map(str, common), *words])
    program.main()
    text = out.read_text()
    assert str(place) not in text
    return json.loads(text)


def test_develop(place, monkeypatch):
    few = ["--set", "agent.episodes=3", "--set", "reward.folds=2"]
    found = run(develop, place, monkeypatch, *few)
    assert list(found["runs"]) == ["auber", "voita", "original+tuning"]
    removed = [one["num_removed"] for one in found["runs"].values()]
    assert removed[0] == removed[1] > removed[2] == 0
    steps = {one["cost"]["tuning_steps"] for one in found["runs"].values()}
    assert len(steps) == 1, "all get the same tunings"
    assert found["changed"] == {
        "preset": "default",
        **dict(word.split("=") for word in [*SHORT, *few] if "=" in word),
    }
    text = page.render([found])
    assert "### encoder, mrpc, methods\n" in text
    assert f"    {found['command']}    # commit " in text


def test_develop_with_a_number_of_heads(place, monkeypatch):
    found = run(
        develop,
        place,
        monkeypatch,
        "--methods",
        "original+tuning,random,michel",
        "--heads",
        "3",
        "--preset",
        "paper",
    )
    assert [one["num_removed"] for one in found["runs"].values()] == [0, 3, 3]
    assert (
        "--methods original+tuning,random,michel --heads 3 --set first.epochs=1" in found["command"]
    )


def test_a_second_search_decides_for_itself(place, monkeypatch):
    few = [
        "--preset",
        "paper",
        "--set",
        "agent.episodes=2",
        "--set",
        "agent.learning_starts=4",
        "--set",
        "search.layers=0",
    ]
    found = run(develop, place, monkeypatch, "--methods", "auber,greedy", *few)
    assert list(found["runs"]) == ["auber", "greedy"]
    assert found["runs"]["greedy"]["cost"]["rewards_computed"] > 0


def test_development_rows_are_cut_off_train_by_class_and_dev_is_left_out(place):
    task = load_task("mrpc", data=place / "glue")
    cut = develop.developing(task, 0.25, seed=1)
    assert sorted([*cut.train.texts(), *cut.dev.texts()]) == sorted(task.train.texts())
    assert count_labels(cut.train) + count_labels(cut.dev) == count_labels(task.train)
    assert len(cut.dev) == round(len(task.train) / 4)
    assert not {*cut.dev.texts()} & {*task.dev.texts()}
    assert cut.content_hash == develop.developing(task, 0.25, seed=1).content_hash
    assert cut.content_hash != develop.developing(task, 0.25, seed=2).content_hash


def test_cost(place, monkeypatch):
    found = run(cost, place, monkeypatch, *FEW, "--set", "agent.learning_starts=4")
    assert list(found["runs"]) == ["paper", "default"]
    for name, protocol in (("paper", "seen"), ("default", "crossfit")):
        spent = found["runs"][name]["cost"]["seconds"]
        assert found["runs"][name]["protocol"] == protocol
        assert found["runs"][name]["seconds"] >= spent["total"] > 0
    assert "scouts" not in found["runs"]["paper"]["cost"]["seconds"]
    assert "dev" not in json.dumps(found["runs"])
    columns, rows = summary.cost_table([found])
    ratio = found["runs"]["default"]["seconds"] / found["runs"]["paper"]["seconds"]
    assert [row[columns.index("times the first's")] for row in rows] == ["1.00", f"{ratio:.2f}"]
    gates = [run["cost"]["seconds"].get("choosing", 0.0) for run in found["runs"].values()]
    assert gates[0] == 0 < gates[1], "the default begins from gates"
    assert [row[columns.index("gates")] for row in rows] == [f"{seconds:.0f}" for seconds in gates]
    other = run(cost, place, monkeypatch, "--presets", "default", *FEW)
    assert list(other["runs"]) == ["default"]
    text = page.render([found])
    assert "## What it costs\n" in text
    assert f"    {found['command']}    # commit " in text


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_the_short_run_before_a_cost_is_one_that_a_layer_of_any_size_allows(preset):
    config = make_config(preset, settings=cost.SHORT)
    for num_heads in (2, 12, 16):
        METHODS["auber"].check(config, {0: num_heads})


FEW = ["--set", "agent.episodes=3", "--set", "reward.folds=2"]


def test_parts(place, monkeypatch):
    """The scouts are tuned once, and what asks them decides as it would have with scouts of its own."""
    tuned = []
    tune = Pipeline._tune_scout
    monkeypatch.setattr(
        Pipeline,
        "_tune_scout",
        lambda self, scout, fold: (tuned.append(fold), tune(self, scout, fold))[1],
    )
    changes = ["reward.caution=0,reward.measure=metric", "search.prior=none"]
    found = run(
        parts, place, monkeypatch, *FEW, *(word for each in changes for word in ("--without", each))
    )
    assert tuned == [0, 1]
    assert list(found["runs"]) == [summary.WHOLE, *changes, summary.CONTROL]
    steps = [
        found["runs"][name]["cost"]["tuning_steps"] for name in (summary.WHOLE, summary.CONTROL)
    ]
    assert steps[0] == steps[1], "the control gets the tunings of the whole search"
    assert f"--without {changes[0]} --without {changes[1]}" in found["command"]

    alone = run(
        parts,
        place,
        monkeypatch,
        *FEW,
        *(word for item in changes[0].split(",") for word in ("--set", item)),
    )
    assert tuned == [0, 1, 0, 1]
    for number in ("removed", "develop", "train", "loss"):
        assert alone["runs"][summary.WHOLE][number] == found["runs"][changes[0]][number]
    text = page.render([found])
    assert "### encoder, mrpc, without a part\n" in text
    assert f"    {found['command']}    # commit " in text


@pytest.mark.parametrize(
    "change", ["last.learning_rate=1e-4", "search.order=reverse", "max_length=8"]
)
def test_scouts_that_are_tuned_otherwise_are_others(change, place, monkeypatch):
    tuned = []
    tune = Pipeline._tune_scout
    monkeypatch.setattr(
        Pipeline,
        "_tune_scout",
        lambda self, scout, fold: (tuned.append(fold), tune(self, scout, fold))[1],
    )
    run(parts, place, monkeypatch, *FEW, "--without", change)
    assert tuned == [0, 1, 0, 1]
