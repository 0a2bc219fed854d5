from __future__ import annotations

import copy
import itertools

import pytest
import torch

from auber.evaluation import evaluate_rows, predict
from auber.plan import PruningPlan
from auber.scoring import LayerScorer
from auber.surgery import remove_heads
from auber.tasks.encoding import EncodedRows
from tests.models import HEADS, LAYERS, MODEL_TYPES, VOCABULARY, tiny_model
from tests.small import cpu


def random_rows(count=23, labels=3, seed=0, regression=False, token_types=True):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 20, (count,), generator=generator).tolist()
    ids = [torch.randint(5, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]
    types = [[position % 2 for position in range(length)] for length in lengths] if token_types else None
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
    scorer = LayerScorer(model, layer, rows, "accuracy", cpu(), tokens_per_batch=60)
    order = torch.tensor(sorted(range(len(rows)), key=lambda row: -rows.lengths[row]))
    masks = [mask for size in range(HEADS - 1) for mask in itertools.combinations(range(1, HEADS), size)]
    for removed in masks:
        plain = predict(pruned_plainly(model, PruningPlan({layer: removed})), rows)[order]
        fast = scorer.logits(removed)
        assert torch.allclose(fast, plain, atol=1e-5)
        assert torch.equal(fast.argmax(1), plain.argmax(1))


@pytest.mark.parametrize(
    ("metric", "labels"), [("accuracy", 3), ("f1", 3), ("matthews", 2), ("pearson", 1), ("spearman", 1)]
)
def test_the_score_is_the_metric_of_the_pruned_model(metric, labels):
    model = tiny_model("bert", num_labels=labels)
    rows = random_rows(labels=labels, regression=labels == 1)
    scorer = LayerScorer(model, 1, rows, metric, cpu(), tokens_per_batch=60)
    masks = [(), (0,), (1, 3), (0, 2, 3)]
    expected = [
        evaluate_rows(pruned_plainly(model, PruningPlan({1: removed})), rows, metric).score for removed in masks
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


def test_what_lies_below_the_layer_is_computed_once():
    model, rows = tiny_model("bert", num_labels=3), random_rows()
    scorer = LayerScorer(model, 2, rows, "accuracy", cpu(), tokens_per_batch=10_000)
    scorer.score(())
    calls = []
    encoder = scorer._encoder
    for layer in range(LAYERS):
        encoder.parts(layer).query.register_forward_hook(lambda *_, layer=layer: calls.append(layer))
    scorer.score((1,))
    assert calls == []
