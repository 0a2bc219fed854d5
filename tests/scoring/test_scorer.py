from __future__ import annotations

import copy

import pytest
import torch

from auber.data.encoding import EncodedRows
from auber.errors import ModelError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.scoring import LayerScorer, memory
from auber.scoring.layers import PackedLayer
from auber.training.evaluation import evaluate_rows
from tests.scoring.checks import assert_predicts_like_the_pruned
from tests.small import cpu
from tests.tiny_models import LAYERS, MODEL_TYPES, VOCABULARY, tiny_model


def random_rows(count=23, labels=3, seed=0, regression=False, token_types=True):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 20, (count,), generator=generator).tolist()
    ids = [
        torch.randint(5, VOCABULARY, (length,), generator=generator).tolist() for length in lengths
    ]
    types = (
        [[position % 2 for position in range(length)] for length in lengths]
        if token_types
        else None
    )
    targets = (
        torch.rand(count, generator=generator)
        if regression
        else torch.randint(0, labels, (count,), generator=generator)
    )
    return EncodedRows(ids, types, targets, pad_token_id=1)


def pruned_plainly(model, plan):
    model = copy.deepcopy(model)
    remove_heads(model, plan)
    return model


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_every_mask_predicts_what_the_pruned_model_predicts(model_type, layer):
    model = tiny_model(model_type, num_labels=3)
    remove_heads(model, PruningPlan({(layer + 1) % LAYERS: [2], layer: [0]}))
    rows = random_rows(token_types=model_type in ("bert", "electra"))
    assert_predicts_like_the_pruned(model, layer, rows)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [("accuracy", 3), ("f1", 3), ("matthews", 2), ("pearson", 1), ("spearman", 1)],
)
def test_the_score_is_the_metric_of_the_pruned_model(metric, labels):
    model = tiny_model("bert", num_labels=labels)
    rows = random_rows(labels=labels, regression=labels == 1)
    scorer = LayerScorer(model, 1, rows, metric, cpu(), tokens_per_slab=60)
    masks = [(), (0,), (1, 3), (0, 2, 3)]
    expected = [
        evaluate_rows(pruned_plainly(model, PruningPlan({1: removed})), rows, metric).score
        for removed in masks
    ]
    assert scorer.score_many(masks) == pytest.approx(expected, abs=1e-6)
    assert scorer.score((1, 3)) == pytest.approx(expected[2], abs=1e-6)


def test_the_model_is_left_alone():
    model = tiny_model("bert", num_labels=3)
    before = copy.deepcopy(model.state_dict())
    LayerScorer(model, 0, random_rows(), "accuracy", cpu()).score((1,))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_key_tells_weights_rows_and_metric_apart():
    model, rows = tiny_model("bert", num_labels=3), random_rows()
    other = tiny_model("bert", num_labels=3, seed=1)
    keys = {
        LayerScorer(model, 0, rows, "accuracy", cpu()).key,
        LayerScorer(other, 0, rows, "accuracy", cpu()).key,
        LayerScorer(model, 0, random_rows(seed=1), "accuracy", cpu()).key,
        LayerScorer(model, 0, rows, "f1", cpu()).key,
    }
    assert len(keys) == 4
    assert LayerScorer(copy.deepcopy(model), 0, random_rows(), "accuracy", cpu()).key in keys


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize(
    ("model_type", "changes", "in_the_last"),
    [
        ("bert", {}, "first_context"),
        ("deberta-v2", {}, "first_context"),
        ("modernbert", {}, "first_context"),
        ("modernbert", {"classifier_pooling": "mean"}, "context"),
    ],
    ids=["bert", "deberta-v2", "modernbert", "modernbert-mean"],
)
def test_what_does_not_depend_on_the_mask_is_computed_once(
    model_type, changes, in_the_last, layer, monkeypatch
):
    """After the first score: no context of the searched layer or below, in the last layer of what the classifier reads."""
    calls = []
    for name in ("context", "first_context", "finish"):
        monkeypatch.setattr(PackedLayer, name, recorded(getattr(PackedLayer, name), name, calls))
    model, rows = (
        tiny_model(model_type, num_labels=3, **changes),
        random_rows(token_types=model_type == "bert"),
    )
    scorer = LayerScorer(model, layer, rows, "accuracy", cpu(), tokens_per_slab=10_000)
    scorer.score(())
    numbers = {id(packed): number for number, packed in enumerate(scorer._layers)}
    assert {numbers[packed] for packed, _ in calls} == set(range(LAYERS))
    calls.clear()
    scorer.score((1,))
    expected = [(layer, "finish")]
    for above in range(layer + 1, LAYERS):
        expected += [(above, in_the_last if above == LAYERS - 1 else "context"), (above, "finish")]
    assert [(numbers[packed], name) for packed, name in calls] == expected


def recorded(function, name, calls):
    def wrapper(self, *arguments):
        calls.append((id(self), name))
        return function(self, *arguments)

    return wrapper


@pytest.mark.parametrize("model_type", ["bert", "deberta-v2", "modernbert", "mpnet"])
@pytest.mark.parametrize(
    "layer", range(LAYERS - 1)
)  # the last layer keeps so little that it always fits
def test_what_does_not_fit_is_computed_anew(model_type, layer, monkeypatch, caplog):
    model, rows = (
        tiny_model(model_type, num_labels=3),
        random_rows(token_types=model_type == "bert"),
    )
    expected = LayerScorer(model, layer, rows, "accuracy", cpu()).logits((1,))
    scored = max(rows.lengths) if model_type == "deberta-v2" else 0
    room = int(20 * memory.passing_bytes_per_token(encoder_of(model), 4, scored) / memory.SAFETY)
    monkeypatch.setattr(memory, "available_bytes", lambda device: room)
    scorer = LayerScorer(model, layer, rows, "accuracy", cpu())
    for _ in range(2):
        assert torch.allclose(scorer.logits((1,)), expected, atol=1e-5)
    assert len(scorer._pieces) > 1
    assert any(piece.hidden is None for piece in scorer._pieces)
    assert "reward rows do not fit into memory and are computed anew for each reward" in caplog.text


def test_out_of_memory_halves_the_slab(monkeypatch, caplog):
    model, rows = tiny_model("bert", num_labels=3), random_rows()
    expected = LayerScorer(model, 1, rows, "accuracy", cpu()).logits((1,))
    above = LayerScorer._above

    def cramped(self, piece, weights):
        if len(piece.rows) > 6:
            raise torch.OutOfMemoryError("no room")
        return above(self, piece, weights)

    monkeypatch.setattr(LayerScorer, "_above", cramped)
    scorer = LayerScorer(model, 1, rows, "accuracy", cpu())
    assert torch.allclose(scorer.logits((1,)), expected, atol=1e-5)
    assert max(len(piece.rows) for piece in scorer._pieces) <= 6
    assert "layer 1: out of memory, a slab of 23 rows is halved" in caplog.text
    monkeypatch.setattr(
        LayerScorer, "_above", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("no room"))
    )
    with pytest.raises(
        ModelError, match=r"layer 1: one row of \d+ tokens does not fit into the memory of cpu"
    ):
        scorer.score((1,))


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("model_type", ["deberta-v2", "modernbert", "mpnet"])
def test_several_masks_share_a_pass(model_type, layer, monkeypatch):
    model, rows = tiny_model(model_type, num_labels=3), random_rows(token_types=False)
    scorer = LayerScorer(model, layer, rows, "accuracy", cpu())
    masks = [(0,), (1, 2), (), (3,), (0, 1, 2)]
    one_by_one = [scorer.score(mask) for mask in masks]
    monkeypatch.setattr(LayerScorer, "_masks_per_pass", lambda self: 2)
    assert scorer.score_many(masks) == one_by_one
    assert scorer.score_many([]) == []


def test_heads_of_an_unusual_size():
    model = tiny_model("bert", num_labels=3, hidden_size=36, num_attention_heads=4)
    rows = random_rows()
    scorer = LayerScorer(model, 0, rows, "accuracy", cpu())
    assert (
        scorer.score((2,))
        == evaluate_rows(pruned_plainly(model, PruningPlan({0: [2]})), rows, "accuracy").score
    )
