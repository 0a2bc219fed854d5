from __future__ import annotations

import json

import pytest

from auber.errors import PlanError, RunError
from auber.report.layers import read_runs, read_sources
from tests.report.made_runs import HEADS, make_stage, write_ranked, write_searched
from tests.report.results import make_result, write_run


def test_a_searched_run(tmp_path):
    (run,) = read_runs([write_searched(tmp_path)])
    assert (run.label, run.record.method, run.record.plan.num_heads) == ("auber", "auber", 3)
    assert [layer.index for layer in run.layers] == [0, 1, 2]
    layer, search = run.searched[0]
    expected = make_stage(0)["search"]
    assert layer.index == 0
    heads = [(0, head) for head in range(HEADS)]
    assert [run.states[head] for head in heads] == expected["state"]
    assert [run.values[head] for head in heads] == expected["q_values"][:-1]
    assert (layer.start_score, layer.chosen_score, search.best_score) == (0.70, 0.71, 0.72)
    assert layer.missed == pytest.approx(0.01)
    assert layer.gains == [(1, 0.0), (4, pytest.approx(1.0)), (9, pytest.approx(2.0))]
    assert (run.layers[0].tuning_steps, run.layers[1].tuning_steps) == (9, 0)


def test_layers_come_in_the_order_of_the_search(tmp_path):
    config = {"seed": 0, "search.order": "reverse"}
    (run,) = read_runs([write_searched(tmp_path, config=config)])
    assert [layer.index for layer in run.layers] == [2, 1, 0]


def test_heads_that_were_gone_before_have_no_numbers(tmp_path):
    """The start had lost head 2 of layer 0: the lists of that layer are one shorter."""
    folder = write_searched(tmp_path, plan={"0": [1, 2, 3], "2": [0]}, **{"heads.removed": 4})
    stage = make_stage(0)
    for name in ("state", "q_values"):
        del stage["search"][name][2]
    (folder / "stages" / "layer-00.json").write_text(json.dumps(stage))
    (run,) = read_runs([folder])
    assert [head for layer, head in run.states if layer == 0] == [0, 1, 3]
    assert [head for layer, head in run.values if layer == 0] == [0, 1, 3]


def test_a_ranked_run(tmp_path):
    (run,) = read_runs([write_ranked(tmp_path)])
    assert not run.searched
    assert (run.ranking, run.scores[2, 3]) == ("importance", pytest.approx(0.5))


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
    (source,), runs = read_sources([tmp_path])
    assert [(run.label, len(run.layers)) for run in runs] == [("auber", 3)]
    assert len(source.records) == 2


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
    first = run.layers[0]
    assert (first.index, first.tuning_steps) == (0, 42)
    assert first.seconds == record["seconds"] + 7.5
    assert len(run.layers) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": [0.1]}, f"must have a number for each of the layer's {HEADS} heads, found 1; "),
        ({"state": [0.1, 0.2, "x", 0.3]}, "'search.state.2' must be a finite number, found 'x'"),
        ({"rewards_asked": "many"}, "'search.rewards_asked' must be a whole number, found 'many'"),
        ({"curve": [[1, float("nan")]]}, "'search.curve.0.1' must be a finite number, found .*nan"),
    ],
)
def test_a_damaged_stage_is_named(tmp_path, change, message):
    folder = write_searched(tmp_path)
    stage = make_stage(0)
    stage["search"] |= change
    (folder / "stages" / "layer-00.json").write_text(json.dumps(stage))
    with pytest.raises(RunError, match=f"layer-00.json: {message}"):
        read_runs([folder])


def test_a_damaged_ranking_is_named(tmp_path):
    folder = write_ranked(tmp_path)
    plan = folder / "stages" / "plan.json"
    plan.write_text(json.dumps({"seconds": 1.0, "importance": {"0": [1, 2]}}))
    message = "plan.json: 'importance.0' must be a JSON object"
    with pytest.raises(RunError, match=message):
        read_runs([folder])


def test_a_stage_of_no_layer_is_named(tmp_path):
    folder = write_searched(tmp_path)
    (folder / "stages" / "layer-07.json").write_text('{"seconds": 1.0}')
    message = "layer-07.json: must be named layer-NN for a layer below 3; remove it"
    with pytest.raises(RunError, match=message):
        read_runs([folder])


def test_a_plan_must_fit_the_model(tmp_path):
    with pytest.raises(PlanError, match="the model has layers 0 to 2"):
        read_runs([write_searched(tmp_path, "a", plan={"9": [1]})])
