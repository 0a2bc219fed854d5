"""What is said of the default's dev scores, in three documents, is what the kept results have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from auber.metrics.statistics import compare
from auber.report.analysis import analyse
from auber.report.collect import pool
from auber.report.results_file import read_results_file, runs_of
from experiments.page import COST, FOUND, PARTS, SOONER
from experiments.summary import CONTROL, WHOLE, agents_table, parts_table
from experiments.summary import interval as interval_of

ROOT = Path(__file__).resolve().parents[2]
METHODS_PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
RIVALS = ("random", "confidence", "michel", "voita")


def words(path):
    return " ".join((ROOT / path).read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def section():
    (found,) = analyse(
        pool([runs_of(read_results_file(ROOT / "results/studies/mpnet-default.json"))])
    ).sections
    return found


def interval(row):
    found = row.comparison.paired.differences
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def listed(values):
    *first, last = values
    return f"{', '.join(first)} and {last}"


def test_differences_over_the_pairs(section):
    rows = {row.reference: row for row in section.learned}
    assert f"over the 15 pairs {listed([interval(rows[name]) for name in RIVALS])}." in FOUND
    assert [name for name in RIVALS if rows[name].comparison.significant] == ["random"]
    assert f"a p of {rows['confidence'].comparison.corrected:.3f} corrected for the four" in FOUND
    control = interval(rows["original+tuning"])
    assert f"| {control.removesuffix(')')}, 15 pairs): level" in FOUND
    assert (
        f"go for {control.removesuffix(')').replace(' (', ' points (')}; CoLA, MRPC and RTE"
        in words("README.md")
    )
    ahead = {name: f"{rows[name].comparison.paired.differences.mean:.1f}" for name in RIVALS}
    others = listed([ahead[name] for name in ("confidence", "voita", "michel")])
    assert f"by {ahead['random']} points" in words("README.md")
    assert f"by {others}, which is not shown" in words("README.md")
    for name in RIVALS:
        assert f"| {name} | {interval(rows[name])} |" in words("docs/methods.md")


@pytest.mark.parametrize(
    ("task", "said"),
    [("rte", "RTE (by {} points)"), ("cola", "CoLA (by {})"), ("mrpc", "MRPC (by {})")],
)
def test_differences_by_task(task, said, section):
    dev = {row.method: row.dev.mean for row in section.methods if row.task == task}
    ahead = [dev["auber"] - dev[name] for name in RIVALS]
    assert said.format(listed([f"{abs(each):.1f}" for each in ahead])) in FOUND
    assert {
        "rte": min(ahead) > 0,
        "cola": sorted(ahead)[1] > 0 > min(ahead),
        "mrpc": max(ahead) < 0,
    }[task]


def test_what_random_heads_cost(section):
    dev = {(row.task, row.method): row.dev.mean for row in section.methods}
    lost = [dev[task, "original+tuning"] - dev[task, "random"] for task in ("cola", "rte")]
    assert f"random ones cost {listed([f'{each:.1f}' for each in lost])} points" in " ".join(
        FOUND.split()
    )


def test_train_minus_dev():
    runs = json.loads((ROOT / "results/studies/mpnet-default.json").read_text())["runs"]
    gaps = {
        (run["method"], run["task"], run["seed"]): 100 * (run["train"] - run["dev"])
        for run in runs
        if run["kind"] == "prune"
    }
    smaller = {
        key[1:]: gaps["original+tuning", *key[1:]] - gap
        for key, gap in gaps.items()
        if key[0] == "auber"
    }
    learned = [gain for (task, _), gain in smaller.items() if task != "wnli"]
    every = list(smaller.values())
    said = (
        f"by {fmean(every):.1f} points in the mean, in {sum(gain > 0 for gain in every)} of {len(every)} pairs; without WNLI by "
        f"{fmean(learned):.1f}, in {sum(gain > 0 for gain in learned)} of {len(learned)}."
    )
    assert said in FOUND


def test_wnli_and_heads(section):
    rows = {(row.task, row.method): row for row in section.methods}
    mine, control = rows["wnli", "auber"], rows["wnli", "original+tuning"]
    assert f"{mine.dev.mean - control.dev.mean:+.1f} points; both are far below" in FOUND
    assert f"{mine.dev.mean:.1f} and {control.dev.mean:.1f} beside 56.3" in FOUND
    removed = [rows[task, "auber"].removed.mean for task in ("cola", "mrpc", "rte")]
    assert {f"{each:.0f}" for each in removed} == {"53", "54"}
    assert mine.removed.mean == 48
    assert f"{100 * fmean(removed) / 144:.0f} % of mpnet-base's heads" in words("README.md")


def test_times(section):
    for name in ("auber", "voita", "michel", "original+tuning"):
        seconds = fmean(row.cost.own_seconds for row in section.methods if row.method == name)
        (line,) = re.findall(rf"^\| {re.escape(name)} \|.*", METHODS_PAGE, flags=re.MULTILINE)
        assert line.endswith(f"| {seconds:.0f} |")


def test_regret():
    """After 300 rewards, or as many as there were, of layers of 12 heads; the interval is on the results page."""
    lines = words("docs/results.md").split("#### mpnet-base, protocol seen")[1]
    for search, said in (
        ("agent, preset default", "{} on RTE's layers and {} on WNLI's"),
        ("random masks, in expectation", "random masks are at {} and {} after 300"),
    ):
        found = [
            lines.split(f"| {task} | 3 | {search} | ")[1].split(" | ")[3].split()[0]
            for task in ("rte", "wnli")
        ]
        assert said.format(*found) in FOUND


def test_an_agent_that_learns_sooner():
    files = sorted((ROOT / "results/experiments").glob("agent-sooner-*.json"))
    results = {
        path.stem.removeprefix("agent-sooner-"): json.loads(path.read_text()) for path in files
    }
    columns, rows = agents_table(list(results.values()), "default")
    found = {(row[0], row[1]): dict(zip(columns, row, strict=True)) for row in rows}
    before, sooner = (
        found["mpnet-base", settings]
        for settings in ("none", "agent.learning_starts=32, agent.double_q=True")
    )
    panels = {
        name: {panel["task"]: panel for panel in of_mpnet(result)}
        for name, result in results.items()
    }
    regrets = {
        name: [
            layer["searches"]["default"]["300"]["mean"]
            for panel in by_task.values()
            for layer in panel["layers"]
        ]
        for name, by_task in panels.items()
    }
    unchanged = regrets.pop("128")
    tested = compare({name: list(np.subtract(mine, unchanged)) for name, mine in regrets.items()})
    said = " ".join(SOONER.split())
    assert len(tested) == 6
    assert (
        f"falls on mpnet-base from {before['after 300']} to {sooner['after 300']} points, "
        f"{sooner['after 300, against none'].removesuffix(')')}, {sooner['layers']} layers; p {tested['32-double'].corrected:.3f} "
        f"corrected for the six), and after 100 from {before['after 100']} to {sooner['after 100']}, where"
        in said
    )
    assert min(tested, key=lambda name: tested[name].p) == "32-double"
    assert [
        tested[name].significant for name in ("32-double", "32", "64", "double", "32-updates")
    ] == [True] + [False] * 4
    random = fmean(panel["mean"]["random"]["100"]["mean"] for panel in panels["128"].values())
    assert f"where random masks are at {random:.2f}" in said
    (wnli,), (rte,) = (
        {layer["reward_rows"] for layer in panels["128"][task]["layers"]}
        for task in ("wnli", "rte")
    )
    assert f"is {100 / wnli:.2f} points on WNLI and {100 / rte:.2f} on RTE" in said
    both = {
        name: " and ".join(
            f"{by_task[task]['mean']['default']['300']['mean']:.2f}" for task in ("rte", "wnli")
        )
        for name, by_task in panels.items()
    }
    assert f"(#an-agent-that-learns-sooner) is at {both['32-double']})" in FOUND
    assert f"with ten seeds, {both['128']} with [twenty](#an-agent-that-learns-sooner)," in FOUND


def of_mpnet(result):
    return [panel for panel in result["panels"] if panel["model"] == "mpnet-base"]


def test_what_it_costs():
    shares = []
    for task, said in (
        ("rte", "{:.1f} times as long as `paper` on RTE"),
        ("mrpc", "and {:.1f} times on MRPC"),
    ):
        runs = json.loads((ROOT / f"results/experiments/mpnet-cost-{task}-0.json").read_text())[
            "runs"
        ]
        ratio = runs["default"]["seconds"] / runs["paper"]["seconds"]
        assert said.format(ratio) in COST
        assert f"{ratio:.1f} times on {task.upper()}" in FOUND
        shares.append(
            100 * runs["default"]["cost"]["seconds"]["scouts"] / runs["default"]["seconds"]
        )
    assert f"{min(shares):.0f} to {max(shares):.0f} % of its time" in COST
    assert not (ROOT / "results/experiments/mpnet-cost-cola-0.json").exists()
    assert "CoLA was not timed" in COST
    assert "CoLA was not timed" in FOUND


def test_what_the_parts_are_worth():
    results = [
        json.loads(path.read_text())
        for path in sorted((ROOT / "results/experiments").glob("mpnet-parts-*.json"))
    ]
    columns, rows = parts_table(results)
    cautionless, plain, priorless = (
        "reward.caution=0",
        "reward.caution=0,reward.measure=metric",
        "search.prior=none",
    )
    found = {row[1]: dict(zip(columns, row, strict=True)) for row in rows}
    said = " ".join(PARTS.split())
    against, removed = f"develop metric against {WHOLE}", "heads removed"
    assert {found[name]["pairs"] for name in (cautionless, plain, priorless)} == {"6", "7"}
    assert f"without caution the metric is at {found[cautionless][against]} against" in said
    behind, pairs = (
        int(found[plain]["pairs"]) - int(found[plain]["ahead in"]),
        found[plain]["pairs"],
    )
    assert (
        f"smooth measure at {found[plain][against]}, behind it in {behind} of {pairs} pairs" in said
    )
    smooth = differences(results, cautionless, plain)
    assert f"is worth {interval_of(smooth).removesuffix(')')}, {len(smooth)} pairs)" in said
    tested = compare(
        {name: differences(results, name, WHOLE) for name in (cautionless, plain, priorless)}
    )
    assert (
        f"the least p is {tested[plain].p:.3f}, corrected for the three {tested[plain].corrected:.3f}:"
        in said
    )
    assert min(tested.values(), key=lambda comparison: comparison.p) is tested[plain]
    assert not any(comparison.significant for comparison in tested.values())
    assert (
        f"begin from it is at {found[priorless][against]}, which is level, at "
        f"{found[priorless][f'develop log-likelihood against {WHOLE}']} in the log-likelihood, uncorrected, and removes "
        f"{found[priorless][removed]} heads in place of {found[WHOLE][removed]}:" in said
    )
    judged = differences(results, WHOLE, CONTROL)
    assert (
        f"is at {interval_of(judged).removesuffix(')')}, {len(judged)} pairs) against the unpruned model here"
        in said
    )
    cut = [
        f"{result['task'].upper()} {result['seed']}"
        for result in results
        if CONTROL not in result["runs"]
    ]
    assert cut == ["MRPC 0", "MRPC 2", "RTE 2"]
    assert "Three runs (MRPC 0 and 2, RTE 2) were cut" in said


def differences(results, name, against):
    """Of the development metric, in the results that have both; each pair of task and seed has one."""
    both = [result["runs"] for result in results if {name, against} <= result["runs"].keys()]
    return [runs[name]["develop"][0] - runs[against]["develop"][0] for runs in both]


def test_the_paper_beside_it():
    """With the preset paper, under the protocol seen, on the tasks that are learned."""
    files = [
        read_results_file(ROOT / f"results/studies/mpnet-{name}.json")
        for name in ("table2", "ablations")
    ]
    (found,) = analyse(pool([runs_of(file) for file in files])).sections
    row = next(row for row in found.learned if row.reference == "original+tuning")
    said = f"`paper` is at {interval(row).removesuffix(')')}, {row.comparison.paired.differences.n} pairs) with half"
    assert said in " ".join(FOUND.split())
