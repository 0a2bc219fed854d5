from __future__ import annotations

import pytest
import torch

from auber.evaluation import evaluate_rows, predict, score_logits
from auber.tasks.encoding import EncodedRows
from tests.small import small_rows, small_start


def test_batches_change_nothing():
    model, _ = small_start()
    rows = small_rows(30)
    single = torch.cat([model(input_ids=torch.tensor([rows[row]["input_ids"]])).logits for row in range(len(rows))])
    for tokens_per_batch in (1, 64, 8192):
        assert torch.allclose(predict(model, rows, tokens_per_batch), single, atol=1e-5)


def test_the_mode_of_the_model_is_kept():
    model, _ = small_start()
    model.train()
    predict(model, small_rows(30))
    assert model.training


def test_scores_of_a_classifier():
    model, _ = small_start()
    rows = small_rows(30)
    logits = predict(model, rows)
    scores = evaluate_rows(model, rows, "accuracy")
    assert scores.score == pytest.approx(float((logits.argmax(1) == rows.labels).double().mean()))
    assert scores.loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, rows.labels)))
    assert scores.rows == 30


def test_one_answer_for_all_is_noticed():
    logits = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    assert score_logits(logits, torch.tensor([0, 1]), "accuracy").one_class
    assert not score_logits(logits.flip(0) * torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]), "accuracy").one_class


def test_scores_of_a_regression():
    rows = EncodedRows([[2, 6, 3], [2, 7, 8, 3], [2, 9, 3]], None, torch.tensor([0.5, 1.5, -1.0]))
    model, _ = small_start(num_labels=1)
    scores = evaluate_rows(model, rows, "pearson")
    predicted = predict(model, rows)[:, 0]
    assert scores.score == pytest.approx(float(torch.corrcoef(torch.stack([predicted, rows.labels]))[0, 1]), abs=1e-5)
    assert scores.loss == pytest.approx(float(((predicted - rows.labels) ** 2).mean()), rel=1e-5)
