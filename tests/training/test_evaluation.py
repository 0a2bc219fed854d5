from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F

from auber.data.encoding import EncodedRows
from auber.errors import ModelError
from auber.training.evaluation import evaluate_rows, predict
from auber.training.outputs import outputs_of
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.small import small_rows, small_start
from tests.tiny_models import tiny_model
from tests.training.test_trainer import Memory

# Running out of memory collects garbage again and again.
pytestmark = pytest.mark.usefixtures("young_garbage")


@pytest.mark.parametrize("kind", ["sequence", *TOKEN_KINDS])
def test_batches_change_no_logits_and_the_mode_is_restored(kind):
    if kind == "sequence":
        (model, _), rows = small_start(), small_rows(30)
    else:
        model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind)
    single = []
    with torch.no_grad():
        for row in range(len(rows)):
            names = [name for name in ("input_ids", "token_type_ids") if name in rows[row]]
            features = {name: torch.tensor([rows[row][name]]) for name in names}
            single.append(outputs_of(kind).logits(model(**features))[0])
    expected = torch.stack(single) if kind == "sequence" else torch.cat(single)
    model.train()
    for tokens_per_batch in (1, 64, 8192):
        found = predict(model, rows, tokens_per_batch)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert model.training


def test_scores_of_a_classifier():
    model, _ = small_start()
    rows = small_rows(30)
    logits = predict(model, rows)
    scores = evaluate_rows(model, rows, "accuracy")
    assert scores.score == pytest.approx(float((logits.argmax(1) == rows.labels).double().mean()))
    assert scores.loss == pytest.approx(float(F.cross_entropy(logits, rows.labels)))
    assert scores.rows == 30
    model.classifier.bias.data = torch.tensor([0.0, 100.0])
    assert evaluate_rows(model, rows, "accuracy").one_class
    model.classifier.bias.data -= predict(model, rows).mean(0)  # so that both classes are predicted
    assert not evaluate_rows(model, rows, "accuracy").one_class


def test_scores_of_a_regression():
    rows = EncodedRows([[2, 6, 3], [2, 7, 8, 3], [2, 9, 3]], None, torch.tensor([0.5, 1.5, -1.0]))
    model, _ = small_start(num_labels=1)
    scores = evaluate_rows(model, rows, "pearson")
    predicted = predict(model, rows)[:, 0]
    correlation = torch.corrcoef(torch.stack([predicted, rows.labels]))[0, 1]
    assert scores.score == pytest.approx(float(correlation), abs=1e-5)
    assert scores.loss == pytest.approx(float(((predicted - rows.labels) ** 2).mean()), rel=1e-5)


def test_scores_of_tagged_words():
    model, rows = tiny_model(kind="tokens", num_labels=5), random_kind_rows("tokens")
    tags = torch.tensor([tag for row in range(len(rows)) for tag in rows[row]["labels"]])
    logits = predict(model, rows)[tags >= 0]
    tags = tags[tags >= 0]
    scores = evaluate_rows(model, rows, "token_accuracy")
    assert scores.score == pytest.approx(float((logits.argmax(1) == tags).double().mean()))
    assert scores.loss == pytest.approx(float(F.cross_entropy(logits, tags)), rel=1e-5)
    assert (scores.rows, scores.one_class) == (len(rows), False)
    with torch.no_grad():
        model.classifier.bias[0] += 1e6
    assert evaluate_rows(model, rows, "token_accuracy").one_class


def test_scores_of_spans():
    model, rows = tiny_model(kind="spans"), random_kind_rows("spans")
    losses = []
    for logits, spans in zip(
        predict(model, rows).split(rows.lengths), rows.targets.spans, strict=True
    ):
        if spans:
            start, end = logits.log_softmax(0).T
            losses.append(-(start[spans[0][0]] + end[spans[0][1]]) / 2)
    scores = evaluate_rows(model, rows, "span_f1")
    assert scores.loss == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
    assert not scores.one_class


@pytest.mark.parametrize("kind", ["sequence", *TOKEN_KINDS])
def test_out_of_memory_halves_the_batches_and_changes_no_result(kind, caplog):
    if kind == "sequence":
        (model, _), rows, metric = small_start(), small_rows(30), "accuracy"
    else:
        model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind, 30)
        metric = {"tokens": "token_accuracy", "spans": "span_f1"}[kind]
    logits, scores = predict(model, rows), evaluate_rows(model, rows, metric)
    room = Memory(model, 6 * max(rows.lengths), torch.Tensor.numel, training=False)
    model.train()
    with caplog.at_level(logging.WARNING, "auber.training"):
        torch.testing.assert_close(predict(model, rows), logits, atol=1e-5, rtol=1e-5)
    assert room.refused == [30, 15, 8], "what did not fit is not tried again"
    assert sum(room.ran) == 30
    assert room.ran[0] >= 4
    assert model.training
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert messages[0].startswith("evaluating: out of memory on cpu with 30 rows of ")
    assert messages[0].endswith(" tokens at a time; continuing with 15 at a time")
    found = evaluate_rows(model, rows, metric)
    assert (found.score, found.rows, found.one_class) == (
        scores.score,
        scores.rows,
        scores.one_class,
    )
    assert found.loss == pytest.approx(scores.loss, rel=1e-6)


@pytest.mark.parametrize(
    ("tokens", "processes", "message"),
    [
        (
            0,
            "1",
            r"^evaluating: one row of \d+ tokens does not fit into the memory of cpu \(CUDA out of "
            r"memory. Tried to allocate 1 MiB.\); free some of it, or lower max_length$",
        ),
        (
            100,
            "2",
            r"^evaluating: 30 rows of \d+ tokens do not fit .*, and batches are not halved in a",
        ),
    ],
    ids=["one row", "processes"],
)
def test_a_batch_that_cannot_be_halved_is_an_error(tokens, processes, message, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", processes)
    model, _ = small_start()
    Memory(model, tokens, torch.Tensor.numel, training=False)
    model.train()
    with pytest.raises(ModelError, match=message):
        evaluate_rows(model, small_rows(30), "accuracy")
    assert model.training
