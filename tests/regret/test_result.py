from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean

import pytest

from auber.config import make_config
from auber.errors import ConfigError
from auber.metrics.statistics import summary
from auber.regret.replay import REWARDS, replay_layer
from auber.regret.result import measure_regret
from auber.system.progress import Progress
from tests.regret.made import make_run

QUICK = {
    "agent.episodes": 12,
    "agent.hidden_size": 8,
    "agent.learning_starts": 8,
    "agent.batch_size": 8,
}


@pytest.fixture(scope="module")
def measured():
    runs = [make_run("b", (3, 1, 2), num_heads=8), make_run("a", (0,))]
    return runs, measure_regret(runs, ["paper", "default"], 3, Progress(), QUICK, "auber regret x")


def test_a_panel_for_each_task_in_order(measured):
    _, result = measured
    assert [panel["task"] for panel in result["panels"]] == ["a", "b"]
    assert [[layer["layer"] for layer in panel["layers"]] for panel in result["panels"]] == [
        [0],
        [1, 2, 3],
    ]
    for panel in result["panels"]:
        assert list(panel["mean"]) == ["paper", "default", "greedy", "random"]
        for layer in panel["layers"]:
            assert list(layer["searches"]) == list(panel["mean"])
    assert result["command"] == "auber regret x"
    assert result["presets"]["default"]["agent.choose"] == "best"
    assert result["presets"]["paper"]["agent.episodes"] == 12
    assert result["panels"][0]["recorded"][0]["command"] == "auber prune --method exhaustive"
    json.dumps(result, allow_nan=False)


def test_the_numbers_are_those_of_the_replays(measured):
    runs, result = measured
    configs = {name: make_config(name, settings=QUICK) for name in ("paper", "default")}
    replays = [
        replay_layer(table, configs, range(3))
        for table in sorted(runs[0].layers, key=lambda each: each.layer)
    ]
    panel = result["panels"][1]
    place = REWARDS.index(100)
    for name in configs:
        plays = [replay.agents[name] for replay in replays]  # by layer, then by seed
        for values, key in (
            ([[play.regret[place] for play in layer] for layer in plays], "100"),
            ([[play.rollout for play in layer] for layer in plays], "rollout"),
            ([[play.choice for play in layer] for layer in plays], "choice"),
        ):
            found = panel["mean"][name][key]
            assert found["mean"] == pytest.approx(fmean(map(fmean, values)), abs=1e-6)
            by_layer, by_seed = (
                [fmean(layer) for layer in values],
                [fmean(seed) for seed in zip(*values, strict=True)],
            )
            for interval, parts in (("over_layers", by_layer), ("over_seeds", by_seed)):
                expected = summary(parts)
                ends = (
                    None
                    if expected.low is None
                    else pytest.approx([expected.low, expected.high], abs=1e-6)
                )
                assert found[interval] == {"n": 3, "interval": ends}
            for layer, plays_of_layer in zip(panel["layers"], values, strict=True):
                assert layer["searches"][name][key]["plays"] == pytest.approx(
                    plays_of_layer, abs=1e-6
                )
                assert layer["searches"][name][key]["mean"] == pytest.approx(
                    fmean(plays_of_layer), abs=1e-6
                )
    greedy = [replay.greedy.regret for replay in replays]
    assert panel["mean"]["greedy"]["regret"] == pytest.approx(
        [fmean(each) for each in zip(*greedy, strict=True)], abs=1e-6
    )
    random = summary([replay.random[place] for replay in replays])
    assert panel["mean"]["random"]["100"]["over_layers"]["interval"] == pytest.approx(
        [random.low, random.high], abs=1e-6
    )
    assert "rollout" not in panel["mean"]["greedy"]
    assert not {"rollout", "choice", "rewards"} & set(panel["mean"]["random"])


def test_the_optimum_is_told(measured):
    runs, result = measured
    table, layer = runs[1].layers[0], result["panels"][0]["layers"][0]
    assert layer["optimum"] == {"removed": list(table.best), "score": table.optimum}
    assert layer["unpruned_score"] == table.unpruned
    first = layer["searches"]["greedy"]["regret"][0]
    assert first == pytest.approx(100 * (table.optimum - table.unpruned), abs=1e-6)


def test_one_layer_and_one_seed_have_no_interval():
    (panel,) = measure_regret([make_run(layers=(1,))], ["paper"], 1, Progress(), QUICK)["panels"]
    found = panel["mean"]["paper"]["50"]
    assert found["over_layers"] == found["over_seeds"] == {"n": 1, "interval": None}


def test_protocols_and_models_are_not_mixed():
    runs = [
        make_run(layers=(1,)),
        replace(make_run(layers=(1,)), protocol="heldout"),
        make_run(layers=(1,), seed=1),
    ]
    panels = measure_regret(
        [*runs, replace(runs[0], model="other")], ["paper"], 1, Progress(), QUICK
    )["panels"]
    names = [
        (panel["model"], panel["protocol"], [layer["seed"] for layer in panel["layers"]])
        for panel in panels
    ]
    assert names == [
        ("made-up", "heldout", [0]),
        ("made-up", "seen", [0, 1]),
        ("other", "seen", [0]),
    ]


def test_progress_hears_of_every_play():
    class Listener(Progress):
        heard = ()

        def plan(self, stages):
            self.heard = (*self.heard, f"plan {stages}")

        def begin(self, stage, total):
            self.heard = (*self.heard, f"{stage}: {total}")

        def step(self, done, note=""):
            self.heard = (*self.heard, done)

    listener = Listener()
    measure_regret([make_run(layers=(0, 2))], ["paper", "default"], 2, listener, QUICK)
    assert listener.heard == (
        "plan 2",
        "toys, layer 0: 4",
        1,
        2,
        3,
        4,
        "toys, layer 2: 4",
        1,
        2,
        3,
        4,
    )


@pytest.mark.parametrize(
    ("presets", "seeds", "message"),
    [
        (
            ["papr"],
            1,
            "Unknown preset 'papr'. Did you mean 'paper'. Known: default, paper, reference",
        ),
        (
            ["paper", "paper"],
            1,
            "--presets must be different presets with commas between, found 'paper,paper'",
        ),
        ([], 1, "--presets must be different presets with commas between, found ''"),
        (["paper"], 0, "--seeds must be at least 1, found 0"),
    ],
)
def test_what_cannot_be_played(presets, seeds, message):
    with pytest.raises(ConfigError, match=message):
        measure_regret([make_run()], presets, seeds, Progress())
