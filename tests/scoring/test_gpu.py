"""On a GPU only: kernels, captured graphs, low precision and too little memory."""

from __future__ import annotations

import itertools

import pytest
import torch

from auber.data.encoding import EncodedRows
from auber.models.plan import PruningPlan
from auber.models.surgery import masked, remove
from auber.scoring import LayerScorer, PlanScorer
from auber.scoring import scorer as scorer_module
from auber.training.devices import Hardware
from auber.training.evaluation import evaluate_rows, predict
from tests.kinds import METRICS_OF, TOKEN_KINDS, num_labels, packed_order, random_kind_rows
from tests.scoring.test_scorer import random_rows
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, NEURONS, tiny_model

pytestmark = pytest.mark.gpu


def gpu(precision):
    return Hardware(torch.device("cuda", 0), precision, 1)


def big_rows(count, mean=67, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = (
        (mean + 0.5 * mean * torch.randn(count, generator=generator))
        .round()
        .clamp(4, 128)
        .int()
        .tolist()
    )
    ids = torch.randint(1000, 29000, (128,), generator=generator).tolist()
    labels = torch.randint(0, 2, (count,), generator=generator)
    return EncodedRows(
        [[101 + row % 800, *ids[: length - 1]] for row, length in enumerate(lengths)], None, labels
    )


def base_model(model_type="bert", layers=12):
    from transformers import CONFIG_MAPPING, AutoModelForSequenceClassification

    torch.manual_seed(0)
    config = CONFIG_MAPPING[model_type](num_hidden_layers=layers, num_labels=2, vocab_size=30522)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # a fresh BERT hardly uses its attention
            if parameter.dim() == 2 and "embeddings" not in name:
                parameter.mul_(2)
    return model.cuda()


def heads_of_16(model_type):
    """Return settings for heads that the kernels support; a tiny model's have 8 dimensions."""
    return {"dim" if model_type == "distilbert" else "hidden_size": 64}


def longest_first(rows):
    return torch.tensor(sorted(range(len(rows)), key=lambda row: -rows.lengths[row]), device="cuda")


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("layer", range(LAYERS))
def test_in_float32_every_mask_predicts_what_the_masked_model_predicts(model_type, layer):
    model = tiny_model(model_type, num_labels=3, **heads_of_16(model_type)).cuda()
    remove(model, PruningPlan({(layer + 1) % LAYERS: [2], layer: [0]}))
    rows = random_rows(count=200, token_types=model_type in ("bert", "electra"))
    scorer = LayerScorer(model, layer, rows, "accuracy", gpu("float32"))
    masks = [
        mask for size in range(HEADS - 1) for mask in itertools.combinations(range(1, HEADS), size)
    ]
    for removed in masks:
        with masked(model, {layer: removed}):
            plain = predict(model, rows)[longest_first(rows)]
        assert torch.allclose(scorer.logits(removed), plain, atol=1e-4)
    assert scorer.score_many(masks) == [scorer.score(mask) for mask in masks]
    neurons = range(0, NEURONS - 1, 2)
    # Each kind of mask has a graph of its own; neurons alone replace the cached contexts.
    kinds = [PruningPlan(neurons={layer: neurons}), PruningPlan({layer: [1]}, {layer: neurons})]
    for plan in [*kinds, *kinds, PruningPlan({layer: [1]})]:
        with masked(model, plan):
            plain = predict(model, rows)[longest_first(rows)]
        assert torch.allclose(scorer.logits(plan), plain, atol=1e-4)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("count", [200, 20_000])  # several plans share a pass, and one fills it
def test_in_float32_every_plan_predicts_what_the_masked_model_predicts(model_type, count):
    model = tiny_model(model_type, num_labels=3, **heads_of_16(model_type)).cuda()
    remove(model, PruningPlan({1: [2]}, {2: [0, 5]}))
    rows = random_rows(count=count, token_types=model_type in ("bert", "electra"))
    scorer = PlanScorer(model, rows, "accuracy", gpu("float32"))
    heads, neurons = {0: [1, 2], 1: [0]}, {0: range(9), 2: range(10, NEURONS, 3)}
    plans = [PruningPlan(heads, neurons), PruningPlan(heads), PruningPlan({}, neurons)]
    for plan in plans:
        with masked(model, plan):
            plain = predict(model, rows)[longest_first(rows)]
        assert torch.allclose(scorer.logits(plan), plain, atol=1e-4)
    assert scorer._chunks[0].graphs, "captured"
    expected = [scorer.score(plan) for plan in plans]
    assert scorer.score_many(plans) == pytest.approx(expected, abs=5 / count)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_captured_graph_predicts_what_the_masked_model_predicts(model_type, layer, kind):
    labels = num_labels(kind)
    model = tiny_model(model_type, kind=kind, num_labels=labels, **heads_of_16(model_type)).cuda()
    rows = random_kind_rows(kind, 120, token_types=model_type in ("bert", "electra"))
    metric, order = METRICS_OF[kind][1], packed_order(rows).cuda()
    scorer = LayerScorer(model, layer, rows, metric, gpu("float32"))
    masks = [(), (0,), (1, 3), (0, 2, 3)]
    scores = scorer.score_many(masks)
    assert scorer._chunks[0].graphs, "captured"
    for removed, score in zip(masks, scores, strict=True):
        with masked(model, {layer: removed} if removed else {}):
            plain, expected = predict(model, rows)[order], evaluate_rows(model, rows, metric).score
        torch.testing.assert_close(scorer.logits(removed), plain, atol=1e-3, rtol=1e-3)
        assert score == pytest.approx(expected, abs=0.02)  # nearly equal answers may change places


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
@pytest.mark.parametrize("layer", [0, 5, 11])
def test_in_bfloat16_it_is_no_farther_from_float32_than_plain_bfloat16(model_type, layer):
    model, rows = base_model(model_type), big_rows(600)
    scorer = LayerScorer(model, layer, rows, "accuracy", gpu("bfloat16"))
    plans = [PruningPlan({layer: removed}) for removed in [(), (1, 4, 7), range(11)]]
    for plan in [*plans, PruningPlan(neurons={layer: range(0, 3072, 3)})]:
        with masked(model, plan):
            exact = predict(model, rows)[longest_first(rows)]
        low = base_model(model_type).to(torch.bfloat16)
        with masked(low, plan):
            plain = predict(low, rows)[longest_first(rows)]
        distances = [
            float((logits - exact).pow(2).mean().sqrt()) for logits in (scorer.logits(plan), plain)
        ]
        flips = [
            int((logits.argmax(1) != exact.argmax(1)).sum())
            for logits in (scorer.logits(plan), plain)
        ]
        print(f"{model_type} layer {layer} {plan!r:.40}: distance {distances}, flips {flips}")
        assert distances[0] <= 1.25 * distances[1]
        assert flips[0] <= max(3, 2 * flips[1])


def test_widths_may_be_odd():
    model, rows = base_model(layers=2), big_rows(300)
    remove(model, PruningPlan(neurons={0: [0], 1: range(5)}))
    plan = PruningPlan(neurons={0: range(1, 3072, 3)})
    with masked(model, plan):
        plain = predict(model, rows)[longest_first(rows)]
    scorer = LayerScorer(model, 0, rows, "accuracy", gpu("bfloat16"))
    assert torch.allclose(scorer.logits(plan), plain, atol=0.2)


def test_the_graphs_of_all_batches_share_the_memory_of_a_pass(monkeypatch):
    monkeypatch.setitem(scorer_module._BATCH_TOKENS, "cuda", 8192)
    model, rows = base_model(layers=2), big_rows(1000)
    scorer = LayerScorer(model, 0, rows, "accuracy", gpu("float32"))
    plans = [PruningPlan({0: [1, 4]}), PruningPlan(neurons={0: range(1000)})]
    for plan in [*plans, *plans]:
        with masked(model, plan):
            plain = predict(model, rows)[longest_first(rows)]
        for _ in range(2):  # captured, and replayed
            assert torch.allclose(scorer.logits(plan), plain, atol=1e-3)
    graphs = [found.graph for chunk in scorer._chunks for found in chunk.graphs.values()]
    assert len(graphs) == len(scorer._chunks) > 5
    assert len({graph.pool() for graph in graphs}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["heads", "neurons"])
@pytest.mark.parametrize("layer", [0, 11])
def test_four_gibibytes_are_enough_for_a_hundred_thousand_rows(layer, kind):
    mask = PruningPlan(**{kind: {layer: [1]}})
    total = torch.cuda.get_device_properties(0).total_memory
    model, rows = base_model(), big_rows(100_000)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(4 * 2**30 / total)
    try:
        torch.cuda.reset_peak_memory_stats()
        scorer = LayerScorer(model, layer, rows, "accuracy", gpu("bfloat16"))
        first, again = scorer.score(mask), scorer.score(mask)
        assert first == again
        assert torch.cuda.max_memory_reserved() <= 4 * 2**30
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    del scorer
    torch.cuda.empty_cache()
    whole = LayerScorer(model, layer, rows, "accuracy", gpu("bfloat16")).score(mask)
    assert abs(whole - first) <= 0.002
