"""The scorer's contract where the classifier reads every token."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

from auber.models.plan import PruningPlan
from auber.models.surgery import masked_heads, remove_heads
from auber.scoring import DeviceWorkers, LayerScorer, ShardedScorer
from auber.scoring.layers import PackedLayer
from auber.training.devices import Hardware
from auber.training.evaluation import evaluate_rows, predict
from tests.kinds import METRICS_OF, TOKEN_KINDS, num_labels, packed_order, random_kind_rows
from tests.small import cpu
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, tiny_model

METRICS = [(kind, metric) for kind in TOKEN_KINDS for metric in METRICS_OF[kind]]
MASKS = [(), (0,), (1, 3), (0, 2, 3)]


def made(kind, model_type="bert"):
    model = tiny_model(model_type, kind=kind, num_labels=num_labels(kind))
    return model, random_kind_rows(kind, token_types=model_type in ("bert", "electra"))


@pytest.mark.parametrize("kind", TOKEN_KINDS)
@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_mask_predicts_what_the_pruned_model_predicts_token_for_token(
    model_type, layer, kind
):
    model, rows = made(kind, model_type)
    remove_heads(model, PruningPlan({(layer + 1) % LAYERS: [2], layer: [0]}))
    metric = METRICS_OF[kind][0]
    scorer = LayerScorer(model, layer, rows, metric, cpu(), tokens_per_slab=60)
    order = packed_order(rows)
    masks = [
        mask for size in range(HEADS - 1) for mask in itertools.combinations(range(1, HEADS), size)
    ]
    for removed in masks:
        pruned = copy.deepcopy(model)
        remove_heads(pruned, {layer: removed})
        plain, fast = predict(pruned, rows)[order], scorer.logits(removed)
        assert fast.shape == (sum(rows.lengths), num_labels(kind))
        torch.testing.assert_close(fast, plain, atol=2e-5, rtol=1e-5)
        assert torch.equal(fast.argmax(1), plain.argmax(1))
        assert scorer.score(removed) == pytest.approx(
            evaluate_rows(pruned, rows, metric).score, abs=1e-9
        )


@pytest.mark.parametrize(("kind", "metric"), METRICS)
def test_many_masks_score_as_the_pruned_models_do(kind, metric):
    model, rows = made(kind)
    for tokens_per_slab in (60, 10_000):  # several slabs; one, where several masks share a pass
        scorer = LayerScorer(model, 1, rows, metric, cpu(), tokens_per_slab=tokens_per_slab)
        expected = []
        for removed in MASKS:
            pruned = copy.deepcopy(model)
            remove_heads(pruned, {1: removed})
            expected.append(evaluate_rows(pruned, rows, metric).score)
        assert scorer.score_many(MASKS) == pytest.approx(expected, abs=1e-9)
    assert len(set(expected)) > 1, "the masks tell nothing apart"


@pytest.mark.parametrize("num_shards", [2, 5])
@pytest.mark.parametrize(("kind", "metric"), METRICS)
def test_shards_score_as_one(kind, metric, num_shards):
    model, rows = made(kind)
    whole = LayerScorer(model, 1, rows, metric, cpu())
    workers = DeviceWorkers(cpu(), [torch.device("cpu")] * num_shards)
    sharded = ShardedScorer(model, 1, rows, metric, cpu(), workers)
    scores, expected = sharded.score_many(MASKS), whole.score_many(MASKS)
    if metric == "span_f1":  # a sum of fractions
        assert scores == pytest.approx(expected, abs=1e-12)
        assert sharded.key == f"{whole.key}-{num_shards}"
    else:
        assert scores == expected
        assert sharded.key == whole.key
    workers.close()


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_keys_tell_answers_apart(kind):
    model, rows = made(kind)
    metric = METRICS_OF[kind][0]
    other = random_kind_rows(kind)
    answers = random_kind_rows(kind, seed=1).targets
    other.targets = type(answers)(
        *(list(column) if isinstance(column, list) else column for column in vars(answers).values())
    )
    keys = [
        LayerScorer(model, 0, each, metric, cpu()).key
        for each in (rows, other, random_kind_rows(kind))
    ]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_below_and_in_the_searched_layer_nothing_is_computed_twice(kind, monkeypatch):
    model, rows = made(kind)
    calls = []
    for name in ("context", "first_context"):
        original = getattr(PackedLayer, name)

        def recorded(self, *arguments, original=original, name=name):
            calls.append(name)
            return original(self, *arguments)

        monkeypatch.setattr(PackedLayer, name, recorded)
    scorer = LayerScorer(
        model, LAYERS - 1, rows, METRICS_OF[kind][0], cpu(), tokens_per_slab=10_000
    )
    scorer.score(())
    assert calls == ["context"] * LAYERS
    calls.clear()
    scorer.score((1,))
    assert calls == []


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TOKEN_KINDS)
@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_captured_graph_predicts_what_the_masked_model_predicts(model_type, layer, kind):
    width = {
        "dim" if model_type == "distilbert" else "hidden_size": 64
    }  # heads of 16: what the kernels take
    model = tiny_model(model_type, kind=kind, num_labels=num_labels(kind), **width).cuda()
    rows = random_kind_rows(kind, 120, token_types=model_type in ("bert", "electra"))
    metric, order = METRICS_OF[kind][1], packed_order(rows).cuda()
    scorer = LayerScorer(
        model, layer, rows, metric, Hardware(torch.device("cuda", 0), "float32", 1)
    )
    scores = scorer.score_many(MASKS)
    assert scorer._pieces[0].graphs, "recorded"
    for removed, score in zip(MASKS, scores, strict=True):
        with masked_heads(model, {layer: removed} if removed else {}):
            plain, expected = predict(model, rows)[order], evaluate_rows(model, rows, metric).score
        torch.testing.assert_close(scorer.logits(removed), plain, atol=1e-3, rtol=1e-3)
        assert score == pytest.approx(
            expected, abs=0.02
        )  # two answers that are nearly equal may change places
