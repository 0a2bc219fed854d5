"""The page on experiments is made from their files; AUBER_REGENERATE=1 writes it anew."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path

from experiments import page, summary

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "experiments.md"

ORIGIN = {
    "provenance": {"commit": {"id": "0123456789abcdef", "dirty": False}, "device": "NVIDIA H200"}
}


def made(kind, **content):
    return {
        "kind": kind,
        "command": f"python -m {kind}",
        "model": "mpnet-base",
        "task": "rte",
        **ORIGIN,
        **content,
    }


def run(develop, train=90.0, heads=10, **more):
    return {
        "develop": [develop, develop, -60.0],
        "train": [train] * 3,
        "num_removed": heads,
        "seconds": 5.0,
        **more,
    }


def test_the_page_is_what_the_files_say(tmp_path, monkeypatch):
    out = tmp_path / "page.md"
    files = map(str, (ROOT / "results" / "experiments").glob("*.json"))
    monkeypatch.setattr(sys, "argv", ["page", *files, "--out", str(out)])
    page.main()
    if os.environ.get("AUBER_REGENERATE"):
        PAGE.write_text(out.read_text())
    assert out.read_text() == PAGE.read_text()


def test_what_the_text_says_of_selectors_beside_the_tables():
    results = [
        json.loads(path.read_text())
        for path in sorted((ROOT / "results" / "experiments").glob("*selectors*.json"))
    ]
    treated = [
        result["runs"] for result in results if {"voita", "voita-unwound"} <= set(result["runs"])
    ]
    ahead = [runs["voita-unwound"]["develop"][0] - runs["voita"]["develop"][0] for runs in treated]
    ahead_in = f"{sum(value > 0 for value in ahead)} of {len(ahead)}, by {sum(ahead) / len(ahead):.1f} points in the mean"
    own, closed = [], []
    for result in results:
        if (result["model"], result["task"]) == ("mpnet-base", "rte"):
            taken, gates = (result["runs"][name]["removed"] for name in ("seen, own size", "voita"))
            own.append(sum(map(len, taken.values())))
            closed.append(
                sum(len({*heads} & {*gates.get(layer, [])}) for layer, heads in taken.items())
            )
    text = " ".join(PAGE.read_text().split())
    assert f"is ahead in {ahead_in}" in text
    assert (
        f"of the {own[0]}, {own[1]} and {own[2]} of its own choice on RTE they close {closed[0]}, {closed[1]} and {closed[2]}"
        in text
    )


def contests(tuning=""):
    """The results of mpnet-base's selectors under one way to tune."""
    results = [
        json.loads(path.read_text())
        for path in sorted((ROOT / "results" / "experiments").glob("mpnet-*.json"))
    ]
    found = [result for result in results if result["kind"] == "experiment-selectors"]
    return [result for result in found if tuning is None or summary.tuning_of(result) == tuning]


def rounded(cell, pairs):
    """A cell of a table as the text has it."""
    mean, low, high = (float(word) for word in re.findall(r"[+-][0-9.]+", cell))
    return f"{mean:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{pairs} pairs"


def selectors(results):
    columns, rows = summary.selectors_table(results)
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


CONTROL, GATES = "develop metric against original+tuning", "develop metric against the gates"
FASTER = "layer.learning_rate=1e-5, last.learning_rate=1e-5"


def test_what_the_text_says_of_sizes_and_of_mending():
    """The figures of the sentences are the table's, rounded."""
    results = contests()
    table = selectors(results)
    text = " ".join(PAGE.read_text().split())

    def words_of(name, column):
        return rounded(table[name][column], table[name]["pairs"])

    third, interval, pairs = words_of("voita-unwound, 48", CONTROL)
    assert (
        f"{third} ({interval}, {pairs} in {table['voita-unwound, 48']['runs']} runs, unwound)"
        in text
    )
    half, interval, pairs = words_of("voita-unwound, 72", CONTROL)
    assert f"with half of them it is at {half} ({interval}, {pairs})" in text
    for name, words in (
        ("voita-mended, 72", "{} points against the plain gates at 72 ({}, {})"),
        ("voita-mended, 96", "{} at 96 ({}, {})"),
        ("voita-mended, 48", "{} at 48 ({}, {})"),
        ("corrected-mended, 72", "and mended, at 72, {} ({}, {})"),
        (
            "corrected-unwound, 48",
            "is not shown to be ahead of the gates: {} points ({}, {}) at 48",
        ),
    ):
        assert words.format(*words_of(name, GATES)) in text
    for heads in (72, 96):
        mine, other = (
            words_of(f"{name}-mended, {heads}", CONTROL)[0] for name in ("redundant", "voita")
        )
        assert (
            f"{mine} beside {other} against the control at {heads}" in text
            or f"{mine} beside {other} at {heads}" in text
        )
    row = selectors(contests(FASTER))["corrected-unwound, 48"]
    against = [rounded(row[column], row["pairs"])[:2] for column in (CONTROL, GATES)]
    assert (
        "two pairs are known: {} ({}) against the control, {} ({}) against the gates".format(
            *sum(against, ())
        )
        in text
    )
    changed = sorted(
        found["changed"]
        for result in results
        for name, found in result.items()
        if name == "corrected-mended 72 search"
    )
    assert f"{changed[0]} to {changed[-1]} are what the mended searches changed" in text


def test_what_the_text_says_of_faster_tuning():
    text = " ".join(PAGE.read_text().split())
    _, rows = summary.tunings_table(contests(tuning=None))
    gains = {(row[0], row[1]): row[2:] for row in rows}
    for name, words in (
        ("original+tuning", "the unpruned model is better in {} of {} pairs, by {} points ({})"),
        ("voita-unwound, 48", "the gates' plan of a third in {} of {}, by {} ({})"),
    ):
        pairs, better, metric, gap = gains[FASTER, name]
        assert words.format(better, pairs, *rounded(metric, pairs)[:2]) in text
        assert f"train minus develop grows by {round(float(gap.split()[0]))} points" in text
        pairs, better, _, _ = gains[FASTER.replace("1e-5", "2e-5"), name]
        assert pairs == better == "4"
    for tuning, name, words in (
        (FASTER, "voita-unwound, 48", "beside the control, {} ({}, {})"),
        (FASTER, "voita-unwound, 72", "at {} ({}, {}) with half of the heads gone"),
        (FASTER.replace("1e-5", "2e-5"), "voita-unwound, 48", "the plan is at {}, {}, {}"),
    ):
        row = selectors(contests(tuning))[name]
        assert words.format(*rounded(row[CONTROL], row["pairs"])) in text


def test_a_search_stands_beside_its_control():
    runs = {
        "original+tuning": run(60.0, heads=0),
        "default": run(61.0),
        "soft": run(63.0, rewards=500),
    }
    text = page.render([made("experiment-search", runs=runs), made("experiment-search", runs=runs)])
    assert "## Whole searches\n" in text
    assert "### mpnet-base, rte, against original+tuning\n" in text
    assert "| soft | 2 | +3.00 | +0.00 | -3.00 | 10 | 500 | 5 |\n" in text
    assert "### mpnet-base, rte, against default\n" in text
    assert (
        text.count("    python -m experiment-search    # commit 0123456789ab, NVIDIA H200\n") == 2
    )
    assert "hill climb" not in text


def test_changes_that_were_not_committed_are_said():
    local = made("experiment-local", rows=[])
    local["provenance"] = json.loads(json.dumps(ORIGIN["provenance"]))
    local["provenance"]["commit"]["dirty"] = True
    assert "    # commit 0123456789ab with changes, NVIDIA H200\n" in page.render([local])


def test_wnli_stands_apart_and_rankings_are_paired_with_their_variant():
    runs = {"original+tuning": run(60.0, heads=0), "soft": run(63.0), "michel like soft": run(62.0)}
    other = {
        "original+tuning": run(30.0, heads=0),
        "soft": run(40.0),
        "michel like soft": run(41.0),
    }
    results = [
        made("experiment-search", runs=runs),
        {**made("experiment-search", runs=other), "task": "wnli"},
    ]
    text = page.render(results)
    assert "### mpnet-base, rte, against rankings at as many heads\n" in text
    assert "| soft | michel | 1 | 1 | +1.00 | +0.00 | 10 |\n" in text
    assert "### mpnet-base, wnli, against rankings at as many heads\n" in text
    assert "| soft | michel | 1 | 0 | -1.00 | +0.00 | 10 |\n" in text


def test_sizes_stand_apart_by_how_layers_were_decided():
    runs = {
        "original+tuning": {**run(60.0, heads=0), "develop": [60.0] * 4, "out_of_fold": [60.0] * 4}
    }
    runs["24 heads"] = {**run(61.0), "develop": [61.0] * 4, "out_of_fold": [62.0] * 4}
    in_turn = {
        **made("experiment-path", runs=runs, seed=1),
        "command": "python -m experiments.path --folds 3",
    }
    alone = {**in_turn, "command": "python -m experiments.path --folds 5 --independent --ripe"}
    text = page.render([in_turn, alone, alone])
    assert "### mpnet-base, rte, sizes, layers in turn\n" in text
    assert (
        "### mpnet-base, rte, sizes, each layer with the others whole, scouts with all tunings\n"
        in text
    )
    assert "| 24 heads | 1 | +1.00 | +1.00 | +2.00 |" in text
    assert "| 24 heads | 2 | +1.00 | +1.00 | +2.00 |" in text
    assert "### mpnet-base, rte, what the scouts know\n" in text
    assert "| rte | 1 | 3 | the first | 60.00 | 60.00 | 60.00 | 60.00 |\n" in text
    assert text.count("| rte | 1 | 5 | all | 60.00 | 60.00 | 60.00 | 60.00 |\n") == 2


def test_selectors_stand_beside_the_control_and_the_gates():
    def at(develop, **more):
        return {**run(develop, **more), "develop": [develop] * 4}

    runs = {
        "original+tuning": at(60.0, heads=0),
        "voita": at(59.0),
        "search": at(61.0, rewards=500),
    }
    unwound = {"voita-unwound": at(58.0), "faithful-unwound": at(59.0)}
    again = {**runs, "search": at(64.0, rewards=500), **unwound}
    contest = partial(
        made,
        "experiment-selectors",
        command="python -m experiments.selectors --heads 48 --selectors voita",
    )
    text = page.render(
        [*(contest(seed=seed, runs=runs) for seed in (0, 1)), contest(seed=1, runs=again)]
    )
    assert "## Who chooses best\n" in text
    assert "### mpnet-base, rte, selectors\n" in text
    assert "| voita, 48 | 2 | 3 | -1.00 | -1.00 |  |  | +1.00 | 10 |  | 5 |\n" in text
    # of seed 1 there are two runs, one point and four points ahead: 2.5 beside seed 0's 1
    assert "| search, 48 | 2 | 3 | +1.75 (-7.78 to +11.28) | " in text
    assert (
        "| faithful-unwound, 48 | 1 | 1 | -1.00 | -1.00 | +1.00 | +1.00 | +1.00 | 10 |  | 5 |\n"
        in text
    )


def test_each_way_to_tune_has_its_own_table():
    runs = {"original+tuning": run(60.0), "voita": run(61.0)}
    for one in runs.values():
        one["develop"] = [one["develop"][0]] * 4
    usual, faster = (
        made(
            "experiment-selectors",
            seed=0,
            runs=runs,
            command=f"python -m experiments.selectors {words} --heads 48",
        )
        for words in ("--set reward.max_rows=9", "--set layer.learning_rate=1e-5 --set seed=2")
    )
    text = page.render([usual, faster])
    assert "### mpnet-base, rte, selectors\n" in text
    assert "### mpnet-base, rte, selectors, layer.learning_rate=1e-5\n" in text
    assert text.count("| voita, 48 | 1 | 1 | +1.00 |") == 2
    assert "selectors, layer" not in page.render([faster, faster])


def test_another_tuning_stands_beside_the_usual_one_of_the_same_pair():
    def contest(seed, develop, words):
        runs = {"original+tuning": run(develop), "voita-unwound": run(develop + 1)}
        for one in runs.values():
            one["develop"] = [one["develop"][0]] * 4
        command = f"python -m experiments.selectors {words} --heads 48"
        return made("experiment-selectors", seed=seed, runs=runs, command=command)

    faster = "--set layer.learning_rate=1e-5"
    results = [
        contest(0, 60.0, ""),
        contest(0, 62.0, ""),
        contest(0, 64.0, faster),
        contest(1, 70.0, faster),
    ]
    text = page.render(results)
    assert "### mpnet-base, rte, what other tunings do\n" in text
    for name in ("original+tuning", "voita-unwound, 48"):
        assert f"| layer.learning_rate=1e-5 | {name} | 1 | 1 | +3.00 | -3.00 |\n" in text
    assert "what other tunings do" not in page.render(results[:2])
