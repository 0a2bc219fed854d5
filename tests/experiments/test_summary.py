"""The tables of the experiments' files."""

from __future__ import annotations

from experiments import summary


def run(develop, fold=None, heads=0):
    found = {
        "develop": [develop, develop, -60.0, develop],
        "train": [90.0] * 3,
        "num_removed": heads,
        "seconds": 5.0,
    }
    return found if fold is None else {**found, "out_of_fold": [fold, fold, -60.0, -50.0 + fold]}


def test_the_choice_out_of_fold_is_judged_on_develop():
    runs = {
        "original+tuning": run(60.0, 61.0),
        "4 heads": run(59.0, 62.0, 4),
        "30 heads": run(63.0, 60.0, 30),
    }
    _, rows = summary.path_table([{"runs": runs}, {"runs": runs}])
    assert [row[:3] for row in rows] == [
        ["4 heads", "2", "-1.00"],
        ["30 heads", "2", "+3.00"],
        ["the best by metric out of fold", "2", "-1.00"],
        ["the best by calibrated log-likelihood out of fold", "2", "-1.00"],
    ]
    assert [row[-1] for row in rows] == ["4", "30", "4", "4"]


def test_of_equals_out_of_fold_nothing_is_removed():
    runs = {"original+tuning": run(60.0, 61.0), "4 heads": run(59.0, 61.0, 4)}
    _, rows = summary.path_table([{"runs": runs}])
    assert rows[1][:3] == ["the best by metric out of fold", "1", "+0.00"]


def test_selectors_of_several_numbers_stand_beside_the_gates_of_theirs():
    runs = {"original+tuning": run(60.0)}
    for size, gates, mine in ((2, 59.0, 59.5), (5, 57.0, 59.0)):
        runs |= {
            f"voita-unwound, {size}": run(gates, heads=size),
            f"corrected-unwound, {size}": run(mine, heads=size),
        }
    result = {
        "runs": runs,
        "task": "rte",
        "seed": 0,
        "command": "python -m experiments.selectors --heads 2,5",
    }
    columns, rows = summary.selectors_table([result])
    ahead = {row[0]: row[columns.index("develop metric against the gates")] for row in rows}
    assert ahead == {
        "voita-unwound, 2": "", "corrected-unwound, 2": "+0.50", "voita-unwound, 5": "", "corrected-unwound, 5": "+2.00",
    }  # fmt: skip


def test_searches_by_scouts_stand_beside_the_same_of_seen_rows_where_one_run_has_both():
    def result(model, given, own):
        runs = {"original+tuning": run(60.0), "search": run(59.0 + given), "seen": run(59.0)}
        runs |= {"search, own size": run(58.0 + own), "seen, own size": run(58.0)}
        return {
            "model": model,
            "runs": runs,
            "task": "rte",
            "seed": 0,
            "command": "selectors --heads 48",
        }

    alone = result("small", 9.0, 9.0)
    del alone["runs"]["seen"], alone["runs"]["seen, own size"]
    _, rows = summary.asked_table([result("small", 1.0, -1.0), alone, result("large", 3.0, 1.0)])
    assert [row[:4] for row in rows] == [
        ["small", "of the given size", "1", "1"],
        ["small", "of its own size", "1", "0"],
        ["large", "of the given size", "1", "1"],
        ["large", "of its own size", "1", "1"],
        ["small and large", "of the given size", "2", "2"],
        ["small and large", "of its own size", "2", "1"],
    ]
    assert [row[4].partition(" ")[0] for row in rows] == [
        "+1.00",
        "-1.00",
        "+3.00",
        "+1.00",
        "+2.00",
        "+0.00",
    ]


def whole_run(develop, train=90.0, heads=10):
    return {
        "develop": [develop],
        "train": [train],
        "num_removed": heads,
        "cost": {"rewards_computed": 100},
    }


def test_whole_runs_stand_by_their_settings_and_a_pair_counts_once():
    def result(seed, ahead, **changed):
        runs = {"auber": whole_run(60.0 + ahead), "original+tuning": whole_run(60.0, heads=0)}
        return {
            "runs": runs,
            "task": "rte",
            "seed": seed,
            "changed": {"preset": "default", **changed},
        }

    cut = {**result(2, 0.0), "runs": {"auber": whole_run(99.0)}}
    results = [result(0, 1.0), result(1, 2.0), result(1, 4.0), result(0, -1.0, seed_of="x"), cut]
    _, rows = summary.develop_table(results)
    assert rows == [
        [
            "preset=default",
            "auber",
            "2",
            "3",
            "+2.00 (-10.71 to +14.71)",
            "-2.00 (-14.71 to +10.71)",
            "10",
            "100",
        ],
        ["preset=default, seed_of=x", "auber", "1", "1", "-1.00", "+1.00", "10", "100"],
    ]


def test_a_search_without_a_part_stands_beside_the_whole_one():
    """Two pairs, one of them twice, which counts once; one run lacks its control, for which its time was up."""

    def searched(develop, loss):
        return {**whole_run(develop), "loss": loss}

    def result(seed, whole, part, control=None):
        runs = {summary.WHOLE: searched(*whole), "search.prior=none": searched(*part)}
        return {
            "task": "rte",
            "changed": {"preset": "default"},
            "seed": seed,
            "runs": runs | ({} if control is None else {summary.CONTROL: whole_run(control)}),
        }

    results = [
        result(0, (70.0, 0.50), (69.0, 0.52), 68.0),
        result(0, (70.0, 0.50), (72.0, 0.50), 68.0),
        result(1, (60.0, 0.60), (58.5, 0.63)),
    ]
    columns, rows = summary.parts_table(results)
    whole, part = (dict(zip(columns, row, strict=True)) for row in rows)
    assert (
        whole["pairs"],
        whole["ahead in"],
        whole[f"develop metric against {summary.WHOLE}"],
    ) == ("2", "", "")
    assert whole[f"develop metric against {summary.CONTROL}"] == "+2.00"
    assert part[f"develop metric against {summary.WHOLE}"].startswith("-0.50 (")
    assert part["ahead in"] == "1"
    assert part[f"develop log-likelihood against {summary.WHOLE}"].startswith("-2.00 (")
    assert part[f"develop metric against {summary.CONTROL}"] == "+2.50"
    other = {
        **result(2, (60.0, 0.6), (58.0, 0.6)),
        "changed": {"preset": "default", "agent.episodes": "9"},
    }
    _, rows = summary.parts_table([*results, other])
    assert [(row[0], row[2]) for row in rows] == [("preset=default", "2")] * 2 + [
        ("preset=default, agent.episodes=9", "1")
    ] * 2


def replayed(regrets, *settings, **changed):
    """A result of `auber regret` in which the agent has these regrets after 300 rewards, one a layer."""
    layers = [
        {
            "searches": {
                "default": {
                    name: {"mean": value} for name in ("50", "100", "300", "rollout", "rewards")
                }
            }
        }
        for value in regrets
    ]
    return {
        "command": " ".join(
            ["auber regret tables.json", *(f"--set {setting}" for setting in settings)]
        ),
        "presets": {"default": {"agent.learning_starts": 128, "agent.double_q": False, **changed}},
        "panels": [{"model": model, "layers": layers} for model in ("minilm-l6", "mpnet-base")],
    }


def test_agents_are_paired_by_layer_with_the_one_as_it_is():
    sooner = replayed([0.1, 0.3], "agent.learning_starts=32", **{"agent.learning_starts": 32})
    columns, rows = summary.agents_table([sooner, replayed([0.5, 0.5])], "default")
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [(row["model"], row["settings"]) for row in found] == [
        ("mpnet-base", "none"), ("mpnet-base", "agent.learning_starts=32"),
        ("minilm-l6", "none"), ("minilm-l6", "agent.learning_starts=32"),
    ]  # fmt: skip
    assert [row["after 300"] for row in found] == ["0.50", "0.20", "0.50", "0.20"]
    assert [row["after 300, against none"].split(" ")[0] for row in found] == [
        "",
        "-0.30",
        "",
        "-0.30",
    ]
    assert {row["layers"] for row in found} == {"2"}
