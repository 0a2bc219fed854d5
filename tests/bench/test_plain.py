from __future__ import annotations

import copy

import pytest
import torch

from auber.bench import plain
from auber.bench.plain import PlainScorer
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.training.evaluation import evaluate_rows, predict

PLAN = PruningPlan({0: [0, 2]})


def make_scorer(subject, **changes):
    options = {"dtype": torch.float32, "batch_size": 7, "padded_to": 128, **changes}
    return PlainScorer(subject.model, subject.rows, subject.task.metric, **options)


@pytest.mark.parametrize("padded_to", [128, None])
def test_it_scores_what_the_pruned_model_scores(subject, padded_to):
    pruned = copy.deepcopy(subject.model)
    remove_heads(pruned, PLAN)
    scorer = make_scorer(subject, padded_to=padded_to)
    assert scorer.score(PLAN) == pytest.approx(
        evaluate_rows(pruned, subject.rows, "matthews").score, abs=1e-6
    )
    assert torch.allclose(scorer.logits, predict(pruned, subject.rows), atol=1e-5)
    unpruned = scorer.score(PruningPlan())
    assert unpruned == pytest.approx(
        evaluate_rows(subject.model, subject.rows, "matthews").score, abs=1e-6
    )


def seen_shapes(scorer, model):
    shapes = []
    handle = model.register_forward_pre_hook(
        lambda _, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    scorer.score(PLAN)
    handle.remove()
    return shapes


def test_plain_means_every_row_padded_to_the_full_length(subject):
    assert seen_shapes(make_scorer(subject), subject.model) == [(7, 128)] * 5 + [(5, 128)]


def test_sorted_rows_are_padded_to_the_longest_of_their_batch(subject):
    lengths = sorted(subject.rows.lengths, reverse=True)
    widths = [
        width for _, width in seen_shapes(make_scorer(subject, padded_to=None), subject.model)
    ]
    assert widths == [lengths[start] for start in range(0, 40, 7)]


def test_another_precision_takes_a_copy(subject):
    scorer = make_scorer(subject, dtype=torch.bfloat16)
    assert subject.model.dtype == torch.float32
    exact = make_scorer(subject)
    scorer.score(PLAN)
    exact.score(PLAN)
    difference = (scorer.logits - exact.logits).abs().max()
    assert 0 < difference < 0.1


def test_a_long_warm_up_is_cut_short(subject, monkeypatch):
    calls = []
    handle = subject.model.register_forward_pre_hook(lambda *_: calls.append(1))
    scorer = make_scorer(subject)
    scorer.warm_up()
    assert len(calls) == 6
    monkeypatch.setattr(plain, "_WARM_UP_SECONDS", 0.0)
    scorer.warm_up()
    handle.remove()
    assert len(calls) == 7
