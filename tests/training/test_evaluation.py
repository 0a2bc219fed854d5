from __future__ import annotations

import logging

import pytest
import torch

from auber.data.encoding import EncodedRows
from auber.errors import ModelError
from auber.training.evaluation import evaluate_rows, predict
from auber.training.outputs import OUTPUTS
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.small import small_rows, small_start
from tests.tiny_models import tiny_model

pytestmark = pytest.mark.usefixtures(
    "young_garbage"
)  # what runs out of memory collects again and again


def test_batches_change_nothing():
    model, _ = small_start()
    rows = small_rows(30)
    single = torch.cat(
        [model(input_ids=torch.tensor([rows[row]["input_ids"]])).logits for row in range(len(rows))]
    )
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
    assert scores.loss == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, rows.labels))
    )
    assert scores.rows == 30


def test_one_answer_for_all_is_noticed():
    model, _ = small_start()
    rows = small_rows(30)
    model.classifier.bias.data = torch.tensor([0.0, 100.0])
    assert evaluate_rows(model, rows, "accuracy").one_class
    model.classifier.bias.data -= predict(model, rows).mean(0)  # so that rows lie on both sides
    assert not evaluate_rows(model, rows, "accuracy").one_class


def test_scores_of_a_regression():
    rows = EncodedRows([[2, 6, 3], [2, 7, 8, 3], [2, 9, 3]], None, torch.tensor([0.5, 1.5, -1.0]))
    model, _ = small_start(num_labels=1)
    scores = evaluate_rows(model, rows, "pearson")
    predicted = predict(model, rows)[:, 0]
    assert scores.score == pytest.approx(
        float(torch.corrcoef(torch.stack([predicted, rows.labels]))[0, 1]), abs=1e-5
    )
    assert scores.loss == pytest.approx(float(((predicted - rows.labels) ** 2).mean()), rel=1e-5)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_logits_of_tokens_stand_row_after_row(kind):
    model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind)
    read = OUTPUTS[kind].logits
    with torch.no_grad():
        single = []
        for row in range(len(rows)):
            features = {
                name: torch.tensor([rows[row][name]]) for name in ("input_ids", "token_type_ids")
            }
            single.append(read(model(**features))[0])
    for tokens_per_batch in (1, 64, 8192):
        torch.testing.assert_close(
            predict(model, rows, tokens_per_batch), torch.cat(single), atol=1e-5, rtol=1e-5
        )


def test_scores_of_tagged_words():
    model, rows = tiny_model(kind="tokens", num_labels=5), random_kind_rows("tokens")
    tags = torch.tensor([tag for row in range(len(rows)) for tag in rows[row]["labels"]])
    logits = predict(model, rows)[tags >= 0]
    tags = tags[tags >= 0]
    scores = evaluate_rows(model, rows, "token_accuracy")
    assert scores.score == pytest.approx(float((logits.argmax(1) == tags).double().mean()))
    assert scores.loss == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, tags)), rel=1e-5
    )
    assert (scores.rows, scores.one_class) == (len(rows), False)
    with torch.no_grad():
        model.classifier.bias[0] += 1e6
    assert evaluate_rows(model, rows, "token_accuracy").one_class


def test_scores_of_spans():
    model, rows = tiny_model(kind="spans"), random_kind_rows("spans")
    pieces = predict(model, rows).split(rows.lengths)
    losses = [
        (log_softmax[0][spans[0][0]] + log_softmax[1][spans[0][1]]) / -2
        for piece, spans in zip(pieces, rows.targets.spans, strict=True)
        if spans and (log_softmax := piece.log_softmax(0).T) is not None
    ]
    scores = evaluate_rows(model, rows, "span_f1")
    assert scores.loss == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
    assert not scores.one_class


# --- memory -----------------------------------------------------------------------------------------------------------


class Room:
    """Room for so many tokens at a time: a model that is given more runs out of it, as on a GPU. Takes down what was run."""

    def __init__(self, model, tokens):
        self.ran, self.refused, self._tokens = [], [], tokens
        model.base_model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, module, arguments, named):
        ids = named["input_ids"] if "input_ids" in named else arguments[0]
        if ids.numel() > self._tokens:
            self.refused.append(len(ids))
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {len(ids)} MiB.\nMore of it"
            )
        self.ran.append(len(ids))


@pytest.mark.parametrize("kind", ["sequence", *TOKEN_KINDS])
def test_out_of_memory_halves_the_batches_and_changes_no_result(kind, caplog):
    if kind == "sequence":
        (model, _), rows, metric = small_start(), small_rows(30), "accuracy"
    else:
        model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind, 30)
        metric = {"tokens": "token_accuracy", "spans": "span_f1"}[kind]
    logits, scores = predict(model, rows), evaluate_rows(model, rows, metric)
    room = Room(model, 6 * max(rows.lengths))
    model.train()
    with caplog.at_level(logging.WARNING, "auber.training.evaluation"):
        torch.testing.assert_close(predict(model, rows), logits, atol=1e-5, rtol=1e-5)
    assert room.refused == [30, 15, 8], "what did not fit once is not tried again"
    assert sum(room.ran) == 30
    assert room.ran[0] >= 4
    assert model.training
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert messages[0].startswith("evaluating: out of memory on cpu with 30 rows of ")
    assert messages[0].endswith(" tokens at a time; goes on with 15 at a time")
    cramped = evaluate_rows(model, rows, metric)
    assert (cramped.score, cramped.rows, cramped.one_class) == (
        scores.score,
        scores.rows,
        scores.one_class,
    )
    assert cramped.loss == pytest.approx(scores.loss, rel=1e-6)


def test_a_row_that_does_not_fit_is_one_line():
    model, _ = small_start()
    Room(model, 0)
    model.train()
    message = (
        r"^evaluating: one row of \d+ tokens does not fit into the memory of cpu \(CUDA out of memory. Tried to allocate 1 MiB.\); "
        r"free some of it, or lower max_length$"
    )
    with pytest.raises(ModelError, match=message):
        evaluate_rows(model, small_rows(30), "accuracy")
    assert model.training


def test_processes_of_a_group_do_not_halve(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    model, _ = small_start()
    room = Room(model, 100)
    with pytest.raises(
        ModelError,
        match=r"^evaluating: 30 rows of \d+ tokens do not fit .*, and batches are not halved in a",
    ):
        predict(model, small_rows(30))
    assert room.refused == [30]
