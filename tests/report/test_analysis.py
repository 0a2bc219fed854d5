from __future__ import annotations

import pytest

from auber.report.analysis import analyse
from tests.report.results import collect, make_result, write_plan, write_run, write_study

CONTROL = "original+tuning"
SCORES = {
    "mrpc": {
        "original": [80.0, 81.0, 82.0],
        CONTROL: [81.0, 82.0, 82.5],
        "auber": [83.0, 84.5, 84.0],
        "michel": [82.0, 83.0, 81.0],
    },
    "rte": {
        CONTROL: [60.0, 61.0, 62.0],
        "auber": [62.5, 63.0, 63.5],
        "auber-l2": [60.0, 62.0, 61.0],
    },
}


def section_of(folder):
    (section,) = analyse(collect(folder)).sections
    return section


def rows_of(section):
    return {(row["task"], row["method"]): row for row in (*section.ablations, *section.methods)}


def flags_of(folder, task, method):
    return rows_of(section_of(folder))[task, method]["flags"]


def test_rows_over_seeds(tmp_path):
    write_study(tmp_path, SCORES)
    section = section_of(tmp_path)
    assert [(row["task"], row["method"]) for row in section.methods] == [
        *(("mrpc", method) for method in ("original", CONTROL, "auber", "michel")),
        *(("rte", method) for method in (CONTROL, "auber")),
    ]
    assert [(row["task"], row["method"]) for row in section.ablations] == [
        ("mrpc", "auber"),
        ("rte", "auber"),
        ("rte", "auber-l2"),
    ]
    assert [row["method"] for row in section.rows][-3:] == [CONTROL, "auber", "auber-l2"]
    row = rows_of(section)["mrpc", "auber"]
    assert (row["dev"], row["seeds"]) == (pytest.approx(251.5 / 3), 3)
    assert row["gap"] == pytest.approx(95 - 251.5 / 3)
    assert row["P"] == 20
    assert (row["rewards computed"], row["tuning steps"]) == (1500, 101)
    assert row["reference"] == CONTROL
    assert row["difference"] == pytest.approx(2.0)
    assert row["comparisons"] == 3  # original, auber, michel of this task
    assert rows_of(section)["mrpc", CONTROL]["verdict"] is None
    assert section.ablations[-1]["reference"] == "auber"
    assert section.ablations[-1]["difference"] == pytest.approx(-2.0)


def test_comparisons_are_pooled_over_tasks_and_seeds(tmp_path):
    write_study(tmp_path, SCORES)
    pooled = section_of(tmp_path).pooled
    assert [(row["against"], row["tasks"], row["pairs"]) for row in pooled] == [
        (CONTROL, ["mrpc", "rte"], 6),
        ("original", ["mrpc"], 3),
        ("michel", ["mrpc"], 3),
        ("auber-l2", ["rte"], 3),
    ]
    assert [row["comparisons"] for row in pooled] == [3, 3, 3, 1]
    mean = (2 + 2.5 + 1.5 + 2.5 + 2 + 1.5) / 6
    assert pooled[0]["difference"] == pytest.approx(mean)


def test_models_and_protocols_are_never_mixed(tmp_path):
    for model, protocol in (("b", "seen"), ("b", "heldout"), ("a", "seen")):
        write_study(tmp_path / protocol, {"rte": SCORES["rte"]}, model=model, protocol=protocol)
    report = analyse(collect(tmp_path))
    places = [(section.model, section.protocol) for section in report.sections]
    assert places == [("a", "seen"), ("b", "heldout"), ("b", "seen")]
    assert [section.name for section in report.sections][1:] == [
        "b, protocol heldout",
        "b, protocol seen",
    ]
    assert {len(section.methods) for section in report.sections} == {2}
    assert len(report.tasks) == 1


@pytest.mark.parametrize(
    ("method", "protocol", "name"),
    [
        ("auber", "crossfit", "m, protocol crossfit"),
        ("random", "crossfit", "m"),
        ("random", "heldout", "m, protocol heldout"),
    ],
)
def test_a_protocol_is_named_where_it_matters(tmp_path, method, protocol, name):
    scores = {"rte": {method: [60.0], CONTROL: [61.0]}}
    write_study(tmp_path, scores, model="m", protocol=protocol)
    (section,) = analyse(collect(tmp_path)).sections
    assert section.name == name


def test_draws_are_averaged_within_a_seed_first(tmp_path):
    write_study(tmp_path, {"rte": {CONTROL: [60.0, 60.0]}})
    for seed, scores in enumerate(([50.0, 60.0, 70.0], [40.0])):
        for draw, score in enumerate(scores):
            result = make_result("rte", "random", seed, score / 100, config={"random.draw": draw})
            write_run(tmp_path, f"random-{seed}-{draw}", result)
    section = section_of(tmp_path)
    row = rows_of(section)["rte", "random"]
    assert (row["dev"], row["seeds"]) == (50.0, 2)  # not 55, the mean over all four
    assert row["difference"] == -10
    assert row["flags"] == ("below the majority class (52.71)", "1 to 3 draws a seed")
    assert "rte, random: the score of a seed is the mean of up to 3 draws." in section.notes


def test_only_seeds_in_common_are_compared(tmp_path):
    scores = {CONTROL: [60.0, 61.0], "auber": [62.0, 63.0, 64.0], "greedy": [62.0]}
    write_study(tmp_path, {"rte": scores})
    write_run(tmp_path, "late", make_result("rte", "michel", 2, 0.6))
    rows = rows_of(section_of(tmp_path))
    assert rows["rte", "auber"]["pairs"] == 2
    assert "difference" not in rows["rte", "michel"]
    assert not rows["rte", "michel"]["significant"]
    assert rows["rte", "michel"]["flags"] == ("no run of seed 0, 1",)
    assert rows["rte", CONTROL]["flags"] == ("no run of seed 2",)


def test_collapsed_models_are_flagged(tmp_path):
    write_study(tmp_path, {"wnli": {CONTROL: [50.0, 51.0]}})
    write_run(tmp_path, "a", make_result("wnli", "auber", 0, 0.5634, **{"dev.one_class": True}))
    write_run(tmp_path, "b", make_result("wnli", "auber", 1, 0.5634))
    assert flags_of(tmp_path, "wnli", "auber") == (
        "one class predicted in 1 of 2 runs",
        "equals the majority class in 1 of 2 runs",
    )


@pytest.mark.parametrize(("share", "flags"), [(0.51, ()), (0.6, ("size is not fisher's",))])
def test_runs_that_removed_neurons_are_matched_by_size(tmp_path, share, flags):
    """One has 20 heads removed, the other 5, which says nothing about their sizes."""
    for method, heads, left in (("fisher", 20, 0.5), ("random", 5, share)):
        result = make_result("rte", method, 0, 0.6, **{"heads.removed": heads})
        result["neurons"] = {"removed": 9000, "total": 36_864, "per_layer": 3072}
        result["remaining"] = {"multiply_adds": left, "parameters": 0.7, "length": 128}
        write_run(tmp_path, method, result)
    assert flags_of(tmp_path, "rte", "random") == flags


@pytest.mark.parametrize(
    ("method", "changes", "flags"),
    [
        ("michel", {"heads.removed": 19}, ("P is not auber's",)),
        (CONTROL, {"tuned_layers": [0]}, ("tuned after other layers than auber",)),
        ("greedy", {"heads.removed": 5, "tuned_layers": [1]}, ()),  # it decides both itself
        ("greedy", {"dev.score": 0.5}, ("below the majority class (52.71)",)),
        ("greedy", {"dev.score": -0.02, "metric": "matthews"}, ()),  # a share is no such score
    ],
)
def test_flags(tmp_path, method, changes, flags):
    metric = changes.get("metric", "accuracy")
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6, metric=metric))
    write_run(tmp_path, "b", make_result("rte", method, 0, 0.6, **changes))
    assert flags_of(tmp_path, "rte", method) == flags


@pytest.mark.parametrize(("part", "own"), [("first", 7.0), ("rewind", 12.0)])
def test_the_tuning_of_a_plan_on_the_origin_is_a_part_of_the_search(tmp_path, part, own):
    result = make_result("rte", "auber", 0, 0.6, **{"cost.seconds": {part: 5.0, "total": 12.0}})
    write_run(tmp_path, "auber", result)
    assert rows_of(section_of(tmp_path))["rte", "auber"]["own seconds"] == own


def test_runs_that_began_with_other_weights_are_named(tmp_path):
    for place, protocol in (("a", "seen"), ("b", "heldout")):
        for method, start in (("auber", "one"), ("michel", "one"), (CONTROL, "other")):
            result = make_result("rte", method, 0, 0.6, start=start, protocol=protocol)
            write_run(tmp_path / place, method, result)
    heldout, seen = analyse(collect(tmp_path)).sections
    assert heldout.notes == (
        "Under heldout the controls' first tuning also used the reward rows, so a difference to "
        "them measures pruning and holding rows back together.",
    )
    assert seen.notes == (
        "Warning: the methods of rte, seed 0, did not start from the same fine-tuned weights.",
    )


def test_a_model_or_protocol_that_has_no_run_yet_has_its_section(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0]}})
    write_plan(tmp_path, ["rte"], ["auber"], [0], protocols=["seen", "heldout"])
    heldout, seen = analyse(collect(tmp_path)).sections
    assert (heldout.methods, heldout.label) == ((), "incomplete: 0 of 1 blocks so far")
    assert (seen.blocks, seen.missing, seen.label) == (1, [], None)


def test_what_the_seeds_share_is_noted(tmp_path):
    write_study(tmp_path, {"rte": SCORES["rte"]})
    for seed in (0, 1):
        result = make_result("agreement", "auber", seed, 0.9, data=f"rows {seed}")
        write_run(tmp_path, f"own-{seed}", {**result, "task": "own"})
    assert section_of(tmp_path).notes == (
        "The seeds of rte share one dev set: an interval is about other seeds, not about other "
        "rows.",
        "The rows of own differ from seed to seed. If they are several data sets, give each a "
        "--name.",
    )


def test_runs_that_differ_in_settings_are_named(tmp_path):
    for seed, episodes in ((0, 150), (1, 20)):
        config = {"seed": seed, "agent.episodes": episodes, "last.epochs": 6, "first.when": "auto"}
        write_run(tmp_path, f"a{seed}", make_result("rte", "auber", seed, 0.6, config=config))
    config = {"seed": 0, "agent.episodes": 99, "last.epochs": 2, "first.when": "always"}
    write_run(tmp_path, "o", make_result("rte", CONTROL, 0, 0.6, config=config))
    assert section_of(tmp_path).notes[1:] == (
        "Warning: the runs of rte, auber differ in agent.episodes.",
        "Warning: the methods of rte differ in last.epochs.",
    )


@pytest.mark.parametrize(("newer", "differs"), [(0.0, False), (0.5, True)])
def test_a_setting_that_older_runs_do_not_know_has_its_default_there(tmp_path, newer, differs):
    for seed in (0, 1):
        result = make_result("rte", "auber", seed, 0.6)
        if seed == 1:
            result["config"]["reward.head"] = newer
        write_run(tmp_path, f"auber-{seed}", result)
    note = "Warning: the runs of rte, auber differ in reward.head."
    assert (note in section_of(tmp_path).notes) == differs


def test_a_method_without_a_place_comes_last(tmp_path):
    names = ("zeta", "exhaustive", "auber-new", "alpha")
    write_study(tmp_path, {"rte": {name: [60.0] for name in names}})
    section = section_of(tmp_path)
    assert [row["method"] for row in section.methods] == ["exhaustive", "alpha", "zeta"]
    assert [row["method"] for row in section.ablations] == ["auber-new"]
    assert section.subject == "exhaustive"


def test_tasks(tmp_path):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6))
    for seed, majority in enumerate((0.5, 0.52)):
        changes = {"data": str(seed), "dev.majority": majority}
        write_run(tmp_path, f"b{seed}", make_result("agreement", "auber", seed, 0.6, **changes))
    tasks = analyse(collect(tmp_path)).tasks
    assert [[*row.values()] for row in tasks] == [
        ["agreement", "accuracy", 2, 600, 400, 50.0, 52.0],
        ["rte", "accuracy", 2, 2490, 277, pytest.approx(52.71), pytest.approx(52.71)],
    ]


def test_intervals_end_where_the_metric_does(tmp_path):
    scores = {"auber": [99.0, 60.0], CONTROL: [10.0, 61.0]}
    write_study(tmp_path / "a", {"rte": scores})
    write_study(tmp_path / "b", {"rte": scores}, metric="matthews")
    (accuracy,), (matthews,) = (analyse(collect(tmp_path / place)).sections for place in "ab")
    ends = ("dev interval low", "dev interval high")
    assert [rows_of(accuracy)["rte", CONTROL][end] for end in ends] == [0, 100]
    assert [rows_of(matthews)["rte", CONTROL][end] for end in ends] == [-100, 100]
    (row,) = accuracy.pooled
    assert (row["difference interval low"], row["difference interval high"]) == (-100, 100)
    assert "95 % interval -100.0 to +100.0" in row["verdict"]
    assert matthews.pooled[0]["difference interval high"] == 200


def test_without_a_run_of_auber_another_method_is_compared(tmp_path):
    scores = {"random": [50.0, 51.0, 52.0], "fisher": [60.0, 61.5, 62.0], CONTROL: [61.0] * 3}
    write_study(tmp_path, {"rte": scores})
    section = section_of(tmp_path)
    assert [(row["method"], row["against"]) for row in section.pooled] == [
        ("fisher", CONTROL),
        ("fisher", "random"),
    ]
