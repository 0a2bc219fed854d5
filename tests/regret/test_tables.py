from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest

import auber
from auber.errors import RunError
from auber.regret.tables import KIND, read_tables, write_tables
from auber.run.files import read_json
from auber.search.players.exhaustive import all_masks
from auber.system.files import write_json
from tests.regret.made import make_layer, make_run
from tests.small import small_config, small_start, small_task


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished exhaustive run of two layers, made without any tuning."""
    folder = tmp_path_factory.mktemp("runs") / "all"
    model, tokenizer = small_start()
    config = small_config(
        first__when="never", layer__epochs=0, last__epochs=0, search__layers="0,2"
    )
    auber.prune(
        model,
        tokenizer,
        task=small_task(),
        method="exhaustive",
        config=config,
        out=folder,
        command="auber x",
    )
    return folder


def test_a_runs_tables_are_its_scores(run):
    (tables,) = read_tables([run])
    result = read_json(run / "result.json")
    assert (tables.model, tables.task, tables.metric) == (
        result["model"],
        result["task"],
        result["metric"],
    )
    assert (tables.protocol, tables.seed, tables.command) == ("seen", 0, "auber x")
    assert result["cost"]["tuning_steps"] == 0
    assert [table.layer for table in tables.layers] == [0, 2]
    ledger = [json.loads(line) for line in (run / "scores.jsonl").read_text().splitlines()]
    assert sorted(score for table in tables.layers for score in table.scores) == sorted(
        row["score"] for row in ledger
    )
    for table in tables.layers:
        stage = read_json(run / "stages" / f"layer-{table.layer:02}.json")
        assert list(table.best) == stage["removed"]
        assert (table.unpruned, table.optimum) == (
            stage["search"]["unpruned_score"],
            stage["search"]["best_score"],
        )
        assert table.known[()] == table.unpruned
        assert {matrix: set(by_norm) for matrix, by_norm in table.states.items()} == {
            matrix: {"l1", "l2"} for matrix in ("value", "query", "key")
        }


def test_a_file_gives_back_what_went_in(run, tmp_path):
    tables = [*read_tables([run]), make_run()]
    write_tables(tmp_path / "tables.json", tables)
    assert read_tables([tmp_path / "tables.json"]) == tables
    write_tables(tmp_path / "again.json", tables)
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tables.json").read_bytes()


def test_masks_name_positions_and_the_best_names_heads():
    table = make_layer(3, 4, heads=(0, 2, 5, 7))
    assert list(table.known) == all_masks(range(4))
    best = max(table.known, key=table.known.__getitem__)
    assert table.best == tuple((0, 2, 5, 7)[position] for position in best)
    assert table.known[best] == table.optimum


def test_a_layer_may_come_once(run):
    message = r"^layer 0 of BertForSequenceClassification, .* by accuracy, seen, seed 0 comes twice; name each run and each file"
    with pytest.raises(RunError, match=message):
        read_tables([run, run])


def test_a_layer_may_come_once_for_each_metric(run, tmp_path):
    (tables,) = read_tables([run])
    both = [tables, replace(tables, metric="f1")]
    write_tables(tmp_path / "tables.json", both)
    assert read_tables([tmp_path / "tables.json"]) == both


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [("reward.measure", "smooth", "metric"), ("search.prior", "voita", "none")],
)
def test_only_plain_games_are_replayed(run, tmp_path, key, value, plain):
    shutil.copytree(run, tmp_path / "run")
    result = read_json(run / "result.json")
    write_json(
        tmp_path / "run" / "result.json", {**result, "config": {**result["config"], key: value}}
    )
    message = f"run: regret is measured on runs with {key} = {plain}, found '{value}'; record one with '--preset paper'"
    with pytest.raises(RunError, match=message):
        read_tables([tmp_path / "run"])


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(
        RunError, match="not a run's folder .it has no run.json.; name runs of method exhaustive"
    ):
        read_tables([tmp_path])


def copy_run(run, folder, **changes):
    (folder / "stages").mkdir()
    write_json(folder / "run.json", {})
    write_json(folder / "result.json", {**read_json(run / "result.json"), **changes})


def test_a_run_of_another_method(run, tmp_path):
    copy_run(run, tmp_path, method="greedy")
    with pytest.raises(
        RunError, match="only a run of method exhaustive has scored every mask, found method greedy"
    ):
        read_tables([tmp_path])


def test_a_run_that_kept_no_scores(run, tmp_path):
    copy_run(run, tmp_path)
    write_json(tmp_path / "stages" / "layer-00.json", {"search": {"best": []}})
    with pytest.raises(
        RunError, match="layer-00.json: the scores of all masks are missing, as an older version"
    ):
        read_tables([tmp_path])


def test_a_layer_of_one_head_is_passed_over(run, tmp_path):
    """As the search has done."""
    shutil.copytree(run, tmp_path / "run")
    passed = tmp_path / "run" / "stages" / "layer-00.json"
    write_json(passed, {"removed": [], "seconds": 0.1})
    (tables,) = read_tables([tmp_path / "run"])
    assert [table.layer for table in tables.layers] == [2]
    write_json(passed.with_name("layer-02.json"), {"removed": [], "seconds": 0.1})
    message = "run: has searched no layer, as none of them has two heads; name a run with scores of masks to replay$"
    with pytest.raises(RunError, match=message):
        read_tables([tmp_path / "run"])
    write_json(passed, {"removed": [1]})
    with pytest.raises(
        RunError, match="layer-00.json: search must be of type dict, found None; make the file anew"
    ):
        read_tables([tmp_path / "run"])


def test_a_run_of_a_model_with_a_layer_of_one_head(tmp_path):
    model, tokenizer = small_start()
    auber.remove_heads(model, {1: [0, 1, 2]})
    config = small_config(first__when="never", layer__epochs=0, last__epochs=0)
    auber.prune(
        model,
        tokenizer,
        task=small_task(),
        method="exhaustive",
        config=config,
        out=tmp_path / "run",
    )
    assert [table.layer for table in read_tables([tmp_path / "run"])[0].layers] == [0, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "tables.json: cannot be read as JSON .*; give a run's folder or a file made by 'auber regret --tables'",
        ),
        (
            "[]",
            "tables.json: must be a run's folder or a file made by 'auber regret --tables', found something else",
        ),
        (
            json.dumps({"kind": KIND, "format": 2}),
            "tables.json: format 1 can be read, found 2; make the file anew",
        ),
        (
            json.dumps({"kind": KIND, "format": 1}),
            "tables.json: runs must be of type list, found None; make the file",
        ),
        (
            json.dumps({"kind": KIND, "format": 1, "runs": []}),
            "tables.json: must hold the tables of at least one run, found none; make the file anew",
        ),
        (
            json.dumps({"kind": KIND, "format": 1, "runs": [3]}),
            "run 0: model must be of type str, found None; make",
        ),
    ],
)
def test_a_file_of_something_else(text, message, tmp_path):
    (tmp_path / "tables.json").write_text(text)
    with pytest.raises(RunError, match=message):
        read_tables([tmp_path / "tables.json"])


def test_nothing_there(tmp_path):
    with pytest.raises(
        RunError, match=r"none.json: no such file; give a run's folder or a file made by"
    ):
        read_tables([tmp_path / "none.json"])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "scores",
            [0.5],
            "run 0: layer 0: scores: must be 31 finite numbers, found 1 values; make the file anew",
        ),
        ("scores", None, "scores: must be 31 finite numbers, found None; make the file anew"),
        (
            "scores",
            [math.nan] * 31,
            "scores: must be 31 finite numbers, found 31 values; make the file anew",
        ),
        ("heads", [], r"heads must be 1 to 16 numbers, found \[\]"),
        ("heads", list(range(17)), r"heads must be 1 to 16 numbers, found \[0, 1"),
        ("layer", "0", "layer 0: layer must be of type int, found '0'; make the file anew"),
        (
            "states",
            {"value": {"l1": [1]}},
            "state value l1: must be 5 finite numbers, found 1 values",
        ),
        ("states", {"value": 3}, "states: value must be of type dict, found 3"),
    ],
)
def test_a_damaged_layer(key, value, message, tmp_path):
    path = tmp_path / "tables.json"
    write_tables(path, [make_run(layers=(0,))])
    data = json.loads(path.read_text())
    data["runs"][0]["layers"][0][key] = value
    path.write_text(json.dumps(data))
    with pytest.raises(RunError, match=message):
        read_tables([path])


def test_a_run_without_a_layer(tmp_path):
    write_tables(tmp_path / "tables.json", [make_run(layers=())])
    message = "tables.json: run 0: must hold the table of at least one layer, found none; make the file anew$"
    with pytest.raises(RunError, match=message):
        read_tables([tmp_path / "tables.json"])


def test_runs_of_other_seeds_stand_side_by_side(tmp_path):
    write_tables(tmp_path / "a.json", [make_run()])
    write_tables(tmp_path / "b.json", [replace(make_run(), seed=1)])
    assert [run.seed for run in read_tables([tmp_path / "a.json", tmp_path / "b.json"])] == [0, 1]
