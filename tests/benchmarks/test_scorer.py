"""The scorer benchmark: its floor is the arithmetic, its parts measure, its results are read."""

from __future__ import annotations

import json

import pytest
import torch

from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.system.records import read
from benchmarks.common import ROOT
from benchmarks.scorer import __main__ as scorer
from benchmarks.scorer.floor import Workload
from benchmarks.scorer.record import Bench
from benchmarks.scorer.rewards import PlainScorer
from benchmarks.scorer.tables import make_tables
from tests.small import small_rows, small_start

KEPT = sorted((ROOT / "results" / "bench").glob("*.json"))
QUICK = [
    *("--size", "tiny", "--rows", "cola", "--count", "24", "--repeats", "3", "--steps", "4"),
    *("--set", "threads=1", "--set", "agent.episodes=12", "--set", "agent.learning_starts=8"),
    *("--set", "agent.batch_size=8", "--set", "max_length=48"),
]


def test_the_floor_is_counted_by_hand():
    # 3 layers of 2, 1 and 4 heads of width 5; rows of 2 and 3 tokens
    work = Workload(20, 7, (10, 5, 20), 11, (2, 3), 7)
    finish = [tokens * 20 * (width + 14) for tokens, width in ((5, 10), (5, 5), (2, 20))]
    whole = 3 * 20 * 5 * 5 + 2 * 5 * (4 + 9) + finish[1]
    last = 2 * 20 * 20 * 5 + 20 * 20 * 2 + 2 * 20 * 5 + finish[2]
    assert work.count_flops(2) == 2 * (finish[2] + 2 * 11)
    assert work.count_flops(1) == 2 * (finish[1] + last + 2 * 11)
    assert work.count_flops(0) == 2 * (finish[0] + whole + last + 2 * 11)
    # masks of neurons leave the contraction
    assert work.count_flops(2, "neurons") == 2 * (2 * 20 * 7 + 2 * 11)
    assert work.count_flops(0, "neurons") == 2 * (5 * 20 * 7 + whole + last + 2 * 11)


@pytest.mark.parametrize("padded_to", [24, None])
def test_a_plain_score_is_that_of_the_pruned_model(padded_to):
    model, _ = small_start()
    rows, plan = small_rows(20), PruningPlan({1: [0, 2]})
    options = {"dtype": torch.float32, "batch_size": 8, "padded_to": padded_to}
    score, logits = PlainScorer(model, rows, "accuracy", **options).score(plan)
    remove(model, plan)
    pruned = PlainScorer(model, rows, "accuracy", **options).score(PruningPlan())
    assert score == pruned[0]
    torch.testing.assert_close(logits, pruned[1], atol=1e-5, rtol=0)


def test_all_parts_are_measured(tmp_path, capsys):
    out = tmp_path / "result.json"
    scorer.main([*QUICK, "--parts", *scorer.PARTS, "--out", str(out), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == printed
    bench = read(Bench, out, "")
    assert (bench.subject.rows, bench.subject.layers, bench.device.precision) == (24, 2, "float32")
    rewards = bench.rewards
    assert [(each.masks, each.layer) for each in rewards.scorers] == [
        *(("heads", layer) for layer in (0, 1)),
        *(("neurons", layer) for layer in (0, 1)),
        ("plans", None),
    ]
    *layers, plans = rewards.scorers
    assert 0 < plans.kept < 1
    assert all(each.floor_milliseconds > 0 for each in layers)
    assert rewards.scorer_agreement.masks == 3, "a mask of each kind"
    assert rewards.scorer_agreement.disagreements == 0
    assert rewards.scorer_agreement.largest_logit_difference < 1e-4
    assert bench.tuning.steps == 4
    *parts, total = bench.search.seconds.values()
    assert sum(parts) == pytest.approx(total, abs=1e-3)
    assert [series.axis for series in bench.growth] == ["rows", "layers", "heads"]


def without_none(data):
    return {key: value for key, value in data.items() if value is not None}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_are_read(path):
    bench = read(Bench, path, "")
    known = json.loads(path.read_text(), object_hook=without_none)
    assert known == bench.to_json(drop_none=True)
    assert list(make_tables([bench]))
