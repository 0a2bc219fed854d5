from __future__ import annotations

import pytest

from auber.report.analysis import analyse
from auber.report.results_file import collect
from tests.report.results import make_result, write_plan, write_run, write_study

SCORES = {
    "mrpc": {
        "original": [80.0, 81.0, 82.0],
        "original+tuning": [81.0, 82.0, 82.5],
        "auber": [83.0, 84.5, 84.0],
        "michel": [82.0, 83.0, 81.0],
    },
    "rte": {
        "original+tuning": [60.0, 61.0, 62.0],
        "auber": [62.5, 63.0, 63.5],
        "auber-l2": [60.0, 62.0, 61.0],
    },
}


def report_of(folder):
    return analyse(collect(folder))


def rows_of(section):
    return {(row.task, row.method): row for row in (*section.ablations, *section.methods)}


def test_rows_over_seeds(tmp_path):
    write_study(tmp_path, SCORES)
    (section,) = report_of(tmp_path).sections
    assert [(row.task, row.method) for row in section.methods] == [
        ("mrpc", "original"),
        ("mrpc", "original+tuning"),
        ("mrpc", "auber"),
        ("mrpc", "michel"),
        ("rte", "original+tuning"),
        ("rte", "auber"),
    ]
    assert [(row.task, row.method) for row in section.ablations] == [
        ("mrpc", "auber"),
        ("rte", "auber"),
        ("rte", "auber-l2"),
    ]
    row = rows_of(section)["mrpc", "auber"]
    assert (row.seeds, row.dev.mean, row.dev.n) == ((0, 1, 2), pytest.approx(251.5 / 3), 3)
    assert row.gap.mean == pytest.approx(95 - 251.5 / 3)
    assert row.removed.mean == 20
    assert (row.cost.rewards_computed, row.cost.tuning_steps) == (1500, 101)
    assert row.reference == "original+tuning"
    assert row.comparison.paired.differences.mean == pytest.approx(2.0)
    assert row.comparison.family == 3  # original, auber, michel of this task
    assert rows_of(section)["mrpc", "original+tuning"].comparison is None
    assert section.ablations[-1].reference == "auber"
    assert section.ablations[-1].comparison.paired.differences.mean == pytest.approx(-2.0)


def test_comparisons_are_pooled_over_tasks_and_seeds(tmp_path):
    write_study(tmp_path, SCORES)
    (section,) = report_of(tmp_path).sections
    assert [
        (row.reference, row.tasks, row.comparison.paired.differences.n) for row in section.pooled
    ] == [
        ("original+tuning", ("mrpc", "rte"), 6),
        ("original", ("mrpc",), 3),
        ("michel", ("mrpc",), 3),
        ("auber-l2", ("rte",), 3),
    ]
    assert [row.comparison.family for row in section.pooled] == [3, 3, 3, 1]
    assert section.pooled[0].comparison.paired.differences.mean == pytest.approx(
        (2 + 2.5 + 1.5 + 2.5 + 2 + 1.5) / 6
    )


def test_models_and_protocols_are_never_mixed(tmp_path):
    for model, protocol in (("b", "seen"), ("b", "heldout"), ("a", "seen")):
        write_study(tmp_path / protocol, {"rte": SCORES["rte"]}, model=model, protocol=protocol)
    report = report_of(tmp_path)
    assert [(section.model, section.protocol) for section in report.sections] == [
        ("a", "seen"),
        ("b", "heldout"),
        ("b", "seen"),
    ]
    assert {len(section.methods) for section in report.sections} == {2}
    assert len(report.tasks) == 1


def test_draws_are_averaged_within_a_seed_first(tmp_path):
    write_study(tmp_path, {"rte": {"original+tuning": [60.0, 60.0]}})
    for seed, scores in enumerate(([50.0, 60.0, 70.0], [40.0])):
        for draw, score in enumerate(scores):
            result = make_result("rte", "random", seed, score / 100, config={"random.draw": draw})
            write_run(tmp_path, f"random-{seed}-{draw}", result)
    (section,) = report_of(tmp_path).sections
    row = rows_of(section)["rte", "random"]
    assert (row.dev.mean, row.dev.n, row.draws) == (50.0, 2, 3)  # not 55, the mean over all four
    assert row.comparison.paired.differences.mean == -10
    assert row.flags == ("below the majority class (52.71)", "1 to 3 draws a seed")
    assert "rte, random: the score of a seed is the mean of up to 3 draws." in section.notes


def test_only_seeds_in_common_are_compared(tmp_path):
    write_study(
        tmp_path,
        {"rte": {"original+tuning": [60.0, 61.0], "auber": [62.0, 63.0, 64.0], "greedy": [62.0]}},
    )
    write_run(tmp_path, "late", make_result("rte", "michel", 2, 0.6))
    (section,) = report_of(tmp_path).sections
    rows = rows_of(section)
    assert rows["rte", "auber"].comparison.paired.differences.n == 2
    assert rows["rte", "michel"].comparison is None
    assert rows["rte", "michel"].flags == ("no run of seed 0, 1",)
    assert rows["rte", "original+tuning"].flags == ("no run of seed 2",)


def test_collapsed_models_are_flagged(tmp_path):
    write_study(tmp_path, {"wnli": {"original+tuning": [50.0, 51.0]}})
    write_run(tmp_path, "a", make_result("wnli", "auber", 0, 0.5634, **{"dev.one_class": True}))
    write_run(tmp_path, "b", make_result("wnli", "auber", 1, 0.5634))
    (section,) = report_of(tmp_path).sections
    assert rows_of(section)["wnli", "auber"].flags == (
        "one class predicted in 1 of 2 runs",
        "equals the majority class in 1 of 2 runs",
    )


def test_a_competitor_with_other_heads_or_tuning_is_flagged(tmp_path):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6))
    write_run(tmp_path, "b", make_result("rte", "michel", 0, 0.6, **{"heads.removed": 19}))
    write_run(tmp_path, "c", make_result("rte", "original+tuning", 0, 0.6, tuned_layers=[0]))
    write_run(
        tmp_path,
        "d",
        make_result("rte", "greedy", 0, 0.6, tuned_layers=[1], **{"heads.removed": 5}),
    )
    (section,) = report_of(tmp_path).sections
    rows = rows_of(section)
    assert rows["rte", "michel"].flags == ("P is not auber's",)
    assert rows["rte", "original+tuning"].flags == ("tuned after other layers than auber",)
    assert rows["rte", "greedy"].flags == ()  # it decides both itself


@pytest.mark.parametrize(
    ("metric", "dev", "flags"),
    [
        ("accuracy", 0.5, ("below the majority class (52.71)",)),
        ("accuracy", 0.6, ()),
        ("matthews", -0.02, ()),  # a share of rows is on another scale
    ],
)
def test_what_is_below_a_constant_answer_is_said(tmp_path, metric, dev, flags):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, dev, metric=metric))
    (section,) = report_of(tmp_path).sections
    assert rows_of(section)["rte", "auber"].flags == flags


@pytest.mark.parametrize(("part", "own"), [("first", 7.0), ("rewind", 12.0)])
def test_the_tuning_of_a_plan_on_the_origin_is_a_part_of_the_search(tmp_path, part, own):
    result = make_result("rte", "auber", 0, 0.6, **{"cost.seconds": {part: 5.0, "total": 12.0}})
    write_run(tmp_path, "auber", result)
    (section,) = report_of(tmp_path).sections
    assert rows_of(section)["rte", "auber"].cost.own_seconds == own


def test_runs_that_began_with_other_weights_are_named(tmp_path):
    for place, protocol in (("a", "seen"), ("b", "heldout")):
        for method, start in (("auber", "one"), ("michel", "one"), ("original+tuning", "other")):
            result = make_result("rte", method, 0, 0.6, start=start, protocol=protocol)
            write_run(tmp_path / place, method, result)
    heldout, seen = report_of(tmp_path).sections
    assert heldout.notes == (
        "Under heldout the controls' first tuning also used the reward rows, so a difference to "
        "them measures pruning and holding rows back together.",
    )
    assert seen.notes == (
        "Careful: the methods of rte, seed 0, did not start from the same fine-tuned weights.",
    )


def test_a_model_or_protocol_that_has_no_run_yet_has_its_section(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0]}})
    write_plan(tmp_path, ["rte"], ["auber"], [0], protocols=["seen", "heldout"])
    heldout, seen = report_of(tmp_path).sections
    assert (heldout.methods, heldout.coverage.complete, heldout.coverage.blocks) == ((), 0, 1)
    assert (seen.coverage.complete, seen.coverage.missing, seen.ablations_coverage) == (1, (), None)


def test_what_the_seeds_share_is_said(tmp_path):
    write_study(tmp_path, {"rte": SCORES["rte"]})
    for seed in (0, 1):
        write_run(
            tmp_path,
            f"own-{seed}",
            make_result("agreement", "auber", seed, 0.9, data=f"rows {seed}"),
        )
    (section,) = report_of(tmp_path).sections
    assert section.notes == (
        "The seeds of rte share one dev set: an interval is about other seeds, not about other "
        "rows.",
        "The rows of agreement differ from seed to seed.",
    )


def test_rows_without_a_name_may_be_several_data_sets(tmp_path):
    for seed in (0, 1):
        result = make_result("agreement", "auber", seed, 0.9, data=f"rows {seed}")
        write_run(tmp_path, f"own-{seed}", {**result, "task": "own"})
    (section,) = report_of(tmp_path).sections
    assert section.notes == (
        "The rows of own differ from seed to seed. If they are several data sets, give each a "
        "--name.",
    )


def test_runs_that_differ_in_settings_are_named(tmp_path):
    for seed, episodes in ((0, 150), (1, 20)):
        config = {"seed": seed, "agent.episodes": episodes, "last.epochs": 6, "first.when": "auto"}
        write_run(tmp_path, f"a{seed}", make_result("rte", "auber", seed, 0.6, config=config))
    config = {"seed": 0, "agent.episodes": 99, "last.epochs": 2, "first.when": "always"}
    write_run(tmp_path, "o", make_result("rte", "original+tuning", 0, 0.6, config=config))
    (section,) = report_of(tmp_path).sections
    assert section.notes[1:] == (
        "Careful: the runs of rte, auber differ in agent.episodes.",
        "Careful: the methods of rte differ in last.epochs.",
    )


@pytest.mark.parametrize(("newer", "is_said"), [(0.0, False), (0.5, True)])
def test_a_setting_that_older_runs_do_not_know_has_its_default_there(tmp_path, newer, is_said):
    for seed in (0, 1):
        result = make_result("rte", "auber", seed, 0.6)
        if seed == 1:
            result["config"]["reward.head"] = newer
        write_run(tmp_path, f"auber-{seed}", result)
    (section,) = analyse(collect(tmp_path)).sections
    assert ("Careful: the runs of rte, auber differ in reward.head." in section.notes) == is_said


def test_a_method_without_a_place_comes_last(tmp_path):
    write_study(
        tmp_path,
        {"rte": {"zeta": [60.0], "exhaustive": [60.0], "auber-new": [60.0], "alpha": [60.0]}},
    )
    (section,) = report_of(tmp_path).sections
    assert [row.method for row in section.methods] == ["exhaustive", "alpha", "zeta"]
    assert [row.method for row in section.ablations] == ["auber-new"]
    assert section.pooled == ()


def test_tasks(tmp_path):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6))
    for seed, majority in enumerate((0.5, 0.52)):
        changes = {"data": str(seed), "dev.majority": majority}
        write_run(tmp_path, f"b{seed}", make_result("agreement", "auber", seed, 0.6, **changes))
    tasks = report_of(tmp_path).tasks
    assert [(row.task, row.labels, row.train_rows, row.dev_rows) for row in tasks] == [
        ("agreement", 2, 600, 400),
        ("rte", 2, 2490, 277),
    ]
    assert tasks[0].majority == (50.0, 52.0)
