"""The scorer benchmark: its floor is the arithmetic, its parts measure, its results are read."""

from __future__ import annotations

import json

import pytest
import torch

from auber.errors import RunError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.system.records import parse, read
from benchmarks.common import ROOT
from benchmarks.scorer import __main__ as scorer
from benchmarks.scorer.floor import Work
from benchmarks.scorer.growth import fit_exponent
from benchmarks.scorer.record import Bench
from benchmarks.scorer.rewards import PlainScorer, random_masks
from benchmarks.scorer.subjects import ROWS, SIZES, make_model, make_tokenizer
from benchmarks.scorer.tables import draw_growth, make_tables
from tests.small import small_rows, small_start
from tests.tiny_models import MODEL_TYPES, tiny_model

KEPT = sorted((ROOT / "results" / "bench").glob("*.json"))
QUICK = [
    *("--size", "tiny", "--rows", "cola", "--count", "24", "--repeats", "3", "--steps", "4"),
    *("--set", "threads=1", "--set", "agent.episodes=12", "--set", "agent.learning_starts=8"),
    *("--set", "agent.batch_size=8", "--set", "max_length=48"),
]


def test_the_floor_is_counted_by_hand():
    # 3 layers of 2, 1 and 4 heads of width 5; rows of 2 and 3 tokens
    work = Work(20, 7, (10, 5, 20), 11, (2, 3), 7)
    finish = [tokens * 20 * (width + 14) for tokens, width in ((5, 10), (5, 5), (2, 20))]
    whole = 3 * 20 * 5 * 5 + 2 * 5 * (4 + 9) + finish[1]
    last = 2 * 20 * 20 * 5 + 20 * 20 * 2 + 2 * 20 * 5 + finish[2]
    assert work.count_flops(2) == 2 * (finish[2] + 2 * 11)
    assert work.count_flops(1) == 2 * (finish[1] + last + 2 * 11)
    assert work.count_flops(0) == 2 * (finish[0] + whole + last + 2 * 11)
    # masks of neurons leave the contraction
    assert work.count_flops(2, "neurons") == 2 * (2 * 20 * 7 + 2 * 11)
    assert work.count_flops(0, "neurons") == 2 * (5 * 20 * 7 + whole + last + 2 * 11)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_sizes_are_read_from_the_model(model_type):
    model = tiny_model(model_type)
    work = Work.of(encoder_of(model), (3, 5))
    assert (work.hidden_size, work.widths, work.lengths) == (32, (32, 32, 32), (3, 5))
    assert work.neurons == 48
    remove(model, {1: [0, 2]})
    assert Work.of(encoder_of(model), (3, 5)).widths == (32, 16, 32)
    assert work.classifier > 0


def test_lengths_are_those_of_the_paper():
    for name, tokens in (("rte", 110), ("cola", 64)):
        shape = ROWS[name]
        assert round(sum(shape.lengths(shape.count)) / 1000) == pytest.approx(tokens, abs=2)


def test_the_fitted_power():
    assert fit_exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


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


def test_masks_leave_a_head():
    masks = random_masks(range(4), 50, 0, 2)
    assert {len(mask) for mask in masks} == {1, 2, 3}
    assert masks == random_masks(range(4), 50, 0, 2)


def test_all_parts_are_measured(tmp_path, capsys):
    out = tmp_path / "result.json"
    scorer.main([*QUICK, "--parts", *scorer.PARTS, "--out", str(out), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == printed
    bench = read(Bench, out, "")
    assert (bench.subject.rows, bench.subject.layers, bench.device.precision) == (24, 2, "float32")
    rewards = bench.rewards
    assert [layer.layer for layer in rewards.layers] == [0, 1]
    assert [layer.layer for layer in rewards.neurons.layers] == [0, 1]
    assert 0 < rewards.plans.kept < 1
    assert rewards.scorer_agreement.masks == 3, "a mask of each kind"
    assert rewards.scorer_agreement.disagreements == 0
    assert rewards.scorer_agreement.largest_logit_difference < 1e-4
    assert rewards.total.floor_share == pytest.approx(
        rewards.total.floor_milliseconds / rewards.total.milliseconds, rel=1e-4
    )
    assert bench.tuning.plain.steps == bench.tuning.tune.steps == 4
    seconds = bench.search.seconds.to_json(drop_none=True)
    assert sum(seconds.values()) - seconds["total"] == pytest.approx(seconds["total"], abs=1e-3)
    assert [series.axis for series in bench.growth] == ["rows", "layers", "heads"]


def test_a_model_from_a_folder(tmp_path, capsys):
    model = make_model(SIZES["tiny"], 0)
    model.save_pretrained(tmp_path / "model")
    make_tokenizer(model.config).save_pretrained(tmp_path / "model")
    words = [*QUICK, "--model", str(tmp_path / "model"), "--parts", "rewards", "--layers", "1"]
    scorer.main(words)
    assert "model, cola-like rows, cpu, 1 thread" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "m", "--parts", "growth"], "give --size instead of --model"),
        (["--count", "3"], "must be at least 8, found 3"),
        (["--layers", "7", *QUICK], "--layers must be from 0 to 1"),
    ],
)
def test_errors(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        scorer.main(words)
    assert message in f"{stop.value}{capsys.readouterr().err}"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_results_are_read(path):
    bench = read(Bench, path, "")
    data = json.loads(path.read_text())
    known = {key: value for key, value in data.items() if value is not None}
    assert known == bench.to_json(drop_none=True)
    assert list(make_tables([bench]))


def test_the_figure_shows_all_axes():
    bench = read(Bench, ROOT / "results" / "bench" / "h200-base-growth.json", "")
    titles = [panel.get_title() for panel in draw_growth([bench]).axes]
    assert titles == [f"ms per reward by {axis}" for axis in ("rows", "layers", "heads")]


def test_damage_is_named():
    data = json.loads(KEPT[0].read_text())
    with pytest.raises(RunError, match=r"x: 'subject.layers' must be a whole number, found 'two'"):
        parse(Bench, {**data, "subject": {**data["subject"], "layers": "two"}}, "x", "")
