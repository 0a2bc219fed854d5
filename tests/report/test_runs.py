from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.report.results_file import save_results
from auber.report.runs import find_missing
from tests.report.results import collect, make_result, write_plan, write_run


def test_what_a_study_asks_for_is_known(tmp_path):
    write_plan(tmp_path / "study", ["rte"], ["auber", "random"], [0, 1], draws=2)
    write_run(tmp_path, "study/rte/seen/seed-0/auber", make_result("rte", "auber", 0, 0.6))
    wanted = sorted(collect(tmp_path).wanted)
    assert [key[2:] for key in wanted] == [
        ("rte", "auber", 0, 0),
        ("rte", "auber", 1, 0),
        ("rte", "random", 0, 0),
        ("rte", "random", 0, 1),
        ("rte", "random", 1, 0),
        ("rte", "random", 1, 1),
    ]
    assert {key[:2] for key in wanted} == {("mpnet-base", "seen")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"a/result.json: cannot be read \(.*make the run again"),
        ("[]", "a/result.json: must be a JSON object, found "),
        ('{"format": 7}', "a/result.json: .*'format' must be 1, found 7; lacks 'kind'; lacks "),
    ],
)
def test_a_damaged_result_is_named(tmp_path, text, message):
    (write_run(tmp_path, "a", None) / "result.json").write_text(text)
    with pytest.raises(RunError, match=message):
        collect(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dev.score", float("nan"), "'dev.score' must be a finite number, found .*nan"),
        ("dev.score", "0.8", "'dev.score' must be a finite number, found '0.8'"),
        ("labels", True, "'labels' must be a whole number, found True"),
        ("model", "a\x1b[31m", "'model' must be printable text, found "),
        ("rows", {"train": 3}, "lacks 'rows.dev'"),
        ("cost.seconds", {"agent": 1.0}, "'cost' must have the seconds in total"),
        ("provenance.versions", {"torch": 2}, "'provenance.versions.torch' must be text"),
        ("config", {"random.draw": "x"}, "'draw' must be a whole number, found 'x'"),
        ("heads.layers", 1_000_000, "'heads.layers' must be at most 65536, found 1000000"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, key, value, message):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6, **{key: value}))
    with pytest.raises(RunError, match=f"a/result.json: {message}.*make the run again"):
        collect(tmp_path)


SAME = "task rte, seed 0 must have the same rows and metric in all runs"


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (
            "random",
            {},
            "two runs of mpnet-base, rte, protocol seen, random, seed 0; a report needs",
        ),
        ("voita", {"data": "other"}, SAME),
        ("voita", {"metric": "f1"}, SAME),
    ],
)
def test_runs_that_do_not_belong_together_are_named(tmp_path, method, changes, message):
    write_run(tmp_path, "a", make_result("rte", "random", 0, 0.6))
    write_run(tmp_path, "b", make_result("rte", method, 0, 0.7, **changes))
    with pytest.raises(RunError, match=f"a and b: {message}"):
        collect(tmp_path)


def test_runs_are_found_at_any_depth_and_sorted(tmp_path):
    folder = write_run(tmp_path, "z/deep/run", make_result("mrpc", "auber", 0, 0.8))
    write_run(folder, "stages/copy", make_result("mrpc", "auber", 0, 0.8))  # belongs to its run
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6))
    write_run(tmp_path, "b", make_result("mrpc", "auber", 1, 0.7))
    write_run(tmp_path, "start", make_result("rte", "original", 0, 0.6, kind="finetune"))
    found = collect(tmp_path)
    assert [run.folder for run in found.runs] == ["z/deep/run", "b", "a"]
    assert (len(found.records), found.left_out) == (4, ())
    run = found.runs[0]
    assert (run.dev, run.train_rows, run.dev_rows, run.labels) == (0.8, 3668, 408, 2)
    assert collect(folder).runs[0].folder == "."


def test_runs_without_a_result_are_named_and_left_out(tmp_path):
    def fail(name, error, *, skipped=False):
        (tmp_path / f"{name}.failed.json").write_text(
            json.dumps({"error": error, "skipped": skipped})
        )

    write_run(tmp_path, "good", make_result("rte", "auber", 0, 0.6))
    write_run(tmp_path, "cut", None)
    write_run(tmp_path, "broken", None)
    write_run(tmp_path, "again", make_result("rte", "auber", 1, 0.6))
    fail("broken", "RunError: /scratch/me/seed-0: must be '/a/b c'; 3/4 of ../glue/dev.tsv")
    fail("again", "RunError: no memory")  # it has a result by now: that counts
    fail("wanting", "left out: 'broken' has no result", skipped=True)
    found = collect(tmp_path)
    assert [run.folder for run in found.runs] == ["good", "again"]
    assert [(run.folder, run.reason) for run in found.left_out] == [
        ("broken", "failed: RunError: seed-0: must be 'b c'; 3/4 of dev.tsv"),
        ("cut", "unfinished"),
        ("wanting", "left out: 'broken' has no result"),
    ]


def test_no_results_name_what_was_looked_for(tmp_path):
    write_run(tmp_path, "cut", None)
    message = (
        r"no finished run below it \(folders with run.json and result.json, made by 'auber prune' "
        r"or 'auber study'\); found 0 fine-tuned starts and 1 runs without a result"
    )
    with pytest.raises(RunError, match=message):
        collect(tmp_path)
    with pytest.raises(RunError, match="none: no such folder or results file; name what holds"):
        collect(tmp_path / "none")


def test_several_places_are_put_together(tmp_path):
    for place, method in (("a", "auber"), ("b", "auber-l2")):
        write_run(tmp_path / place, "run", make_result("rte", method, 0, 0.6))
        write_run(tmp_path / place, "cut", None)
    save_results(tmp_path / "b", tmp_path / "b.json")
    places = (tmp_path / "a", tmp_path / "b.json")
    found = collect(*places)
    assert [run.folder for run in found.runs] == [f"{place}: run" for place in places]
    assert [run.folder for run in found.left_out] == [f"{place}: cut" for place in places]
    message = r"b.json: run and \S+b: run: two runs of mpnet-base, rte, protocol seen, auber-l2"
    with pytest.raises(RunError, match=message):
        collect(tmp_path / "b.json", tmp_path / "b")


def key(task, method, seed, draw=0):
    return ("m", "seen", task, method, seed, draw)


WANTED = [
    key("rte", "auber", 0),
    *(key("rte", "random", 0, draw) for draw in (0, 1)),
    key("rte", "auber", 1),
]


def test_missing_runs_are_named():
    first, second = key("rte", "auber", 0), key("rte", "random", 0, 0)
    assert find_missing([], {first}) == []
    assert find_missing(WANTED, {*WANTED, key("rte", "greedy", 0)}) == []
    assert find_missing(WANTED, {first, second}) == [
        "rte, seed 0: random (draw 1)",
        "rte, seed 1: everything",
    ]
    assert find_missing(WANTED, {first, key("rte", "auber", 1)}) == ["rte, seed 0: random"]
