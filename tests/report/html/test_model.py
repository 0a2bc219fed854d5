from __future__ import annotations

import json

import pytest

from auber.errors import PlanError, RunError
from auber.report.html.model import read_runs, read_study
from auber.report.results_file import save_results
from tests.report.html.made import HEADS, make_stage, write_ranked, write_searched
from tests.report.results import make_result, write_run, write_study


def test_a_searched_run(tmp_path):
    (run,) = read_runs([write_searched(tmp_path)])
    assert (run.label, run.record.method, run.plan.num_removed, run.removed_before) == (
        "auber",
        "auber",
        3,
        0,
    )
    assert [stage.layer for stage in run.stages] == [0, 1, 2]
    layer, search = run.searched[0]
    expected = make_stage(0)["search"]
    assert layer == 0
    assert list(search.state.values()) == expected["state"]
    assert list(search.values.values()) == expected["q_values"][:-1]
    assert search.stop_value == expected["q_values"][-1]
    assert (search.chosen, search.best, search.best_mask) == (0.71, 0.72, (2,))
    assert search.missed == pytest.approx(0.01)
    assert search.curve == ((1, 0.70), (4, 0.71), (9, 0.72))
    assert (run.stages[0].tuning_steps, run.stages[1].tuning_steps) == (9, 0)


def test_layers_come_in_the_order_of_the_search(tmp_path):
    config = {"seed": 0, "search.order": "reverse"}
    (run,) = read_runs([write_searched(tmp_path, config=config)])
    assert [layer for layer, _ in run.searched] == [2, 1, 0]


def test_heads_that_were_gone_before_have_no_numbers(tmp_path):
    """The start had lost head 2 of layer 0: the lists of that layer are one shorter."""
    folder = write_searched(tmp_path, plan={"0": [1, 2, 3], "2": [0]}, **{"heads.removed": 4})
    stage = make_stage(0)
    for name in ("state", "q_values"):
        del stage["search"][name][2]
    (folder / "stages" / "layer-00.json").write_text(json.dumps(stage))
    (run,) = read_runs([folder])
    assert list(run.searched[0][1].state) == [0, 1, 3]
    assert run.removed_before == 1


def test_a_ranked_run(tmp_path):
    (run,) = read_runs([write_ranked(tmp_path)])
    assert run.searched == ()
    assert run.ranking.name == "importance"
    assert run.ranking.scores[2][3] == pytest.approx(0.5)


def test_labels_tell_runs_apart(tmp_path):
    folders = [write_searched(tmp_path / place, "auber") for place in ("a", "b")]
    assert [run.label for run in read_runs(folders)] == ["a/auber", "b/auber"]
    with pytest.raises(
        RunError, match="^the runs to compare must be different folders, found one of them twice"
    ):
        read_runs([folders[0], folders[0]])


def test_a_study_is_read_with_its_stages_and_without_starts(tmp_path):
    write_searched(tmp_path)
    write_run(tmp_path, "start", make_result("rte", "original", 0, 0.6, kind="finetune"))
    study = read_study([tmp_path])
    assert [(run.label, len(run.stages)) for run in study.runs] == [("auber", 3)]
    assert len(study.sources[0].records) == 2


def test_tunings_after_all_decisions_are_counted_with_their_layer(tmp_path):
    folder = write_searched(tmp_path)
    path = folder / "stages" / "layer-00.json"
    record = json.loads(path.read_text())
    record.pop("tuning", None)
    path.write_text(json.dumps(record))
    (folder / "stages" / "tuning-00.json").write_text(
        json.dumps({"tuning": {"steps": 42, "seconds": 7.0}, "seconds": 7.5})
    )
    (run,) = read_runs([folder])
    first = run.stages[0]
    assert (first.layer, first.tuning_steps, first.tuning_seconds, first.seconds) == (
        0,
        42,
        7.0,
        record["seconds"] + 7.5,
    )
    assert len(run.stages) == 3


def test_a_results_file_has_records_alone(tmp_path):
    write_study(tmp_path / "s", {"rte": {"auber": [60.0]}})
    save_results(tmp_path / "s", tmp_path / "s.json")
    (run,) = read_study([tmp_path / "s.json"]).runs
    assert (run.stages, run.ranking, run.plan.num_removed) == ((), None, 20)


def test_an_unfinished_run_says_what_to_do(tmp_path):
    folder = write_run(tmp_path, "cut", None)
    with pytest.raises(RunError, match="cut: the run is not finished; continue it with --resume"):
        read_runs([folder])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"state": [0.1]},
            f"layer-00.json: must have a number for each of the layer's {HEADS} heads, found 1; ",
        ),
        (
            {"state": [0.1, 0.2, "x", 0.3]},
            "layer-00.json: 'search.state' must be a finite number, found 'x'",
        ),
        (
            {"rewards_asked": "many"},
            "layer-00.json: 'search.rewards_asked' must be a whole number, found 'many'",
        ),
        ({"curve": [[1]]}, "layer-00.json: curve: 'count' must be a whole number, found None"),
        (
            {"curve": [[1, float("nan")]]},
            "layer-00.json: curve: 'score' must be a finite number, found nan",
        ),
    ],
)
def test_a_damaged_stage_is_named(tmp_path, change, message):
    folder = write_searched(tmp_path)
    stage = make_stage(0)
    stage["search"] |= change
    (folder / "stages" / "layer-00.json").write_text(json.dumps(stage))
    with pytest.raises(RunError, match=message):
        read_runs([folder])


def test_a_damaged_ranking_is_named(tmp_path):
    folder = write_ranked(tmp_path)
    plan = folder / "stages" / "plan.json"
    plan.write_text(json.dumps({"importance": {"0": [1, 2]}}))
    with pytest.raises(
        RunError, match="plan.json: scores must be an object of head: number, found list"
    ):
        read_runs([folder])
    plan.write_text(json.dumps({"importance": {"zero": {}}}))
    with pytest.raises(
        RunError, match="plan.json: layers and heads must be whole numbers from 0, found 'zero'"
    ):
        read_runs([folder])


def test_a_stage_of_no_layer_is_named(tmp_path):
    folder = write_searched(tmp_path)
    (folder / "stages" / "layer-07.json").write_text("{}")
    with pytest.raises(
        RunError, match="layer-07.json: must be named layer-NN for a layer below 3; remove it"
    ):
        read_runs([folder])


def test_a_plan_must_fit_and_a_model_must_have_a_size(tmp_path):
    with pytest.raises(PlanError, match="the model has layers 0 to 2"):
        read_runs([write_searched(tmp_path, "a", plan={"9": [1]})])
    with pytest.raises(
        RunError, match="b: a model must have from 1 to 10000 heads, found 1000000 layers of 4"
    ):
        read_runs([write_searched(tmp_path, "b", **{"heads.layers": 1_000_000})])
