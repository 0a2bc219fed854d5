from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from psutil import Process

from auber.data.encoding import EncodedRows
from auber.errors import ModelError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.pooling import Modules, Pooling, attach_modules
from auber.models.surgery import remove, remove_remaining
from auber.scoring import CrossFitScorer, LayerScorer, PlanScorer, scorer
from auber.scoring.layers import PackedLayer
from auber.training.evaluation import evaluate_rows, predict
from tests.kinds import METRICS_OF, TOKEN_KINDS, num_labels, packed_order, random_kind_rows
from tests.small import cpu
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, NEURONS, VOCABULARY, tiny_model

MASKS = [(), (0,), (1, 3), (0, 2, 3)]
SOME = tuple(range(1, NEURONS, 3))  # neurons
ALL_METRICS = [
    ("sequence", "accuracy", 3),
    ("sequence", "f1", 3),
    ("sequence", "matthews", 2),
    ("sequence", "pearson", 1),
    ("sequence", "spearman", 1),
    *((kind, metric, num_labels(kind)) for kind, own in METRICS_OF.items() for metric in own),
]


def random_rows(count=23, labels=3, seed=0, regression=False, token_types=True):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 20, (count,), generator=generator).tolist()
    ids = [torch.randint(5, VOCABULARY, (each,), generator=generator).tolist() for each in lengths]
    types = [[position % 2 for position in range(length)] for length in lengths]
    if regression:
        targets = torch.rand(count, generator=generator)
    else:
        targets = torch.randint(0, labels, (count,), generator=generator)
    return EncodedRows(ids, types if token_types else None, targets, pad_token_id=1)


def made(kind="sequence", model_type="bert", labels=3, **changes):
    """Return a model of a task type, and rows for it."""
    has_types = model_type in ("bert", "electra")
    if kind == "sequence":
        rows = random_rows(labels=labels, regression=labels == 1, token_types=has_types)
    else:
        rows, labels = random_kind_rows(kind, token_types=has_types), num_labels(kind)
    return tiny_model(model_type, kind=kind, num_labels=labels, **changes), rows


def pruned_model(model, plan):
    pruned = copy.deepcopy(model)
    remove_remaining(pruned, plan)
    return pruned


def pruned_score(model, layer, removed, rows, metric):
    plan = removed if isinstance(removed, PruningPlan) else PruningPlan({layer: removed})
    return evaluate_rows(pruned_model(model, plan), rows, metric).score


def metric_of(rows):
    return "accuracy" if rows.kind == "sequence" else METRICS_OF[rows.kind][0]


def assert_logits_are_those_of_the_pruned(logits, model, plan, rows):
    """Compare logits, longest rows first, with those of the model without the plan's units."""
    is_sequence = rows.kind == "sequence"
    by_length = sorted(range(len(rows)), key=lambda row: -rows.lengths[row])
    order = packed_order(rows) if rows.kind in TOKEN_KINDS else torch.tensor(by_length)
    plain = predict(pruned_model(model, plan), rows)[order]
    assert logits.shape == plain.shape
    # Fewer neurons are summed in another order, with large weights.
    tolerance = 1e-5 if is_sequence and not plan.neurons else 2e-5
    torch.testing.assert_close(logits, plain, atol=tolerance, rtol=1e-5)
    assert torch.equal(logits.argmax(1), plain.argmax(1))


def assert_predicts_like_the_pruned(model: Any, layer: int, rows: EncodedRows) -> None:
    """Compare every mask of heads, and some of neurons and of both, with the pruned model.

    Head 0 of the layer must be removed already.
    """
    scorer = LayerScorer(model, layer, rows, metric_of(rows), cpu())
    masks: list[Any] = [
        mask for size in range(HEADS - 1) for mask in itertools.combinations(range(1, HEADS), size)
    ]
    masks += [PruningPlan(neurons={layer: some}) for some in (SOME, range(NEURONS - 1))]
    masks += [PruningPlan({layer: [1, 3]}, {layer: SOME}), PruningPlan({layer: [2]})]
    for mask in masks:
        plan = mask if isinstance(mask, PruningPlan) else PruningPlan({layer: mask})
        assert_logits_are_those_of_the_pruned(scorer.logits(mask), model, plan, rows)


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        *(("sequence", layer) for layer in range(LAYERS)),
        *((kind, layer) for kind in METRICS_OF for layer in (0, LAYERS - 1)),
    ],
)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_mask_predicts_what_the_pruned_model_predicts(model_type, layer, kind, monkeypatch):
    monkeypatch.setitem(scorer._BATCH_TOKENS, "cpu", 60)
    model, rows = made(kind, model_type)
    other = (layer + 1) % LAYERS
    remove(model, PruningPlan({other: [2], layer: [0]}, {other: [5], layer: [0, 1, 30]}))
    assert_predicts_like_the_pruned(model, layer, rows)


@pytest.mark.parametrize("pooling", [Pooling("cls"), Pooling("max"), Pooling("mean", False)])
@pytest.mark.parametrize("model_type", ["bert", "deberta-v2", "modernbert", "mpnet"])
def test_every_pooling(model_type, pooling):
    model, rows = made("embeddings", model_type)
    attach_modules(model, Modules(pooling, {}))
    for layer in (0, LAYERS - 1):
        scorer = LayerScorer(model, layer, rows, "cosine", cpu())
        for plan in (PruningPlan({layer: [1]}), PruningPlan(neurons={layer: SOME})):
            assert_logits_are_those_of_the_pruned(scorer.logits(plan), model, plan, rows)


@pytest.mark.parametrize("tokens_per_batch", [60, 10_000])  # in one batch, masks share a pass
@pytest.mark.parametrize(("kind", "metric", "labels"), ALL_METRICS)
def test_the_score_is_the_metric_of_the_pruned_model(
    kind, metric, labels, tokens_per_batch, monkeypatch
):
    monkeypatch.setitem(scorer._BATCH_TOKENS, "cpu", tokens_per_batch)
    model, rows = made(kind, labels=labels)
    layer_scorer = LayerScorer(model, 1, rows, metric, cpu())
    neurons, both = PruningPlan(neurons={1: SOME}), PruningPlan({1: [1]}, {1: SOME})
    for masks in (MASKS, [neurons, PruningPlan()], [both, neurons, *MASKS]):
        expected = [pruned_score(model, 1, removed, rows, metric) for removed in masks]
        assert layer_scorer.score_many(masks) == pytest.approx(expected, abs=1e-6)
        assert layer_scorer.score(masks[1]) == pytest.approx(expected[1], abs=1e-6)
    assert len(set(expected)) > 1


def layer_1(*given):
    return LayerScorer(given[0], 1, *given[1:])


def cross_fitted(model, rows, *given):
    return CrossFitScorer([(model, rows)], 1, *given)


@pytest.mark.parametrize("make", [layer_1, PlanScorer, cross_fitted])
def test_the_model_is_not_changed(make):
    model, rows = made()
    before, config = copy.deepcopy(model.state_dict()), model.config.to_dict()
    make(model, rows, "accuracy", cpu()).score(PruningPlan({1: [1]}, {1: SOME}))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.config.to_dict() == config


def test_the_key_identifies_weights_rows_metric_precision_and_version(monkeypatch):
    model, rows = made()
    other = tiny_model("bert", num_labels=3, seed=1)
    keys = {
        LayerScorer(model, 0, rows, "accuracy", cpu()).key,
        LayerScorer(other, 0, rows, "accuracy", cpu()).key,
        LayerScorer(model, 0, random_rows(seed=1), "accuracy", cpu()).key,
        LayerScorer(model, 0, rows, "f1", cpu()).key,
        LayerScorer(model, 0, rows, "accuracy", replace(cpu(), precision="bfloat16")).key,
    }
    assert len(keys) == 5
    with monkeypatch.context() as later:
        later.setattr(scorer, "VERSION", "later")
        assert LayerScorer(model, 0, rows, "accuracy", cpu()).key not in keys
    assert PlanScorer(model, rows, "accuracy", cpu()).key in keys
    assert LayerScorer(copy.deepcopy(model), 0, random_rows(), "accuracy", cpu()).key in keys


@pytest.mark.parametrize("kind", METRICS_OF)
def test_the_key_identifies_the_answers(kind):
    model, rows = made(kind)
    other = random_kind_rows(kind)
    other.targets = copy.deepcopy(random_kind_rows(kind, seed=1).targets)
    keys = [
        LayerScorer(model, 0, each, METRICS_OF[kind][0], cpu()).key
        for each in (rows, other, random_kind_rows(kind))
    ]
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize(
    ("kind", "model_type", "changes", "in_the_last"),
    [
        ("sequence", "bert", {}, "first_context"),
        ("sequence", "deberta-v2", {}, "first_context"),
        ("sequence", "modernbert", {}, "first_context"),
        ("sequence", "modernbert", {"classifier_pooling": "mean"}, "context"),
        ("tokens", "bert", {}, "context"),
        ("spans", "bert", {}, "context"),
        ("embeddings", "bert", {}, "context"),
    ],
    ids=["bert", "deberta-v2", "modernbert", "modernbert-mean", "tokens", "spans", "embeddings"],
)
def test_what_does_not_depend_on_the_mask_is_computed_once(
    kind, model_type, changes, in_the_last, layer, monkeypatch
):
    """A later score computes no context of the searched layer or below."""
    calls = []

    def recorded(name, function):
        def wrapper(self, *arguments):
            calls.append((id(self), name))
            return function(self, *arguments)

        return wrapper

    for name in ("context", "first_context", "finish", "contract"):
        monkeypatch.setattr(PackedLayer, name, recorded(name, getattr(PackedLayer, name)))
    model, rows = made(kind, model_type, **changes)
    metric = "accuracy" if kind == "sequence" else METRICS_OF[kind][0]
    layer_scorer = LayerScorer(model, layer, rows, metric, cpu())
    layer_scorer.score(())
    numbers = {id(packed): number for number, packed in enumerate(layer_scorer._layers)}
    assert {numbers[packed] for packed, _ in calls} == set(range(LAYERS))
    calls.clear()
    layer_scorer.score((1,))
    rest = ["finish", "contract"]
    expected = [(layer, name) for name in rest]
    for above in range(layer + 1, LAYERS):
        context = in_the_last if above == LAYERS - 1 else "context"
        expected += [(above, name) for name in (context, *rest)]
    assert [(numbers[packed], name) for packed, name in calls] == expected
    # Masks of neurons share the activations; of the searched layer only the contraction is left.
    layer_scorer.score(PruningPlan(neurons={layer: [0]}))
    calls.clear()
    layer_scorer.score(PruningPlan(neurons={layer: SOME}))
    assert [(numbers[packed], name) for packed, name in calls] == expected[1:]


@pytest.mark.parametrize("kind", ["heads", "neurons"])
@pytest.mark.parametrize("model_type", ["bert", "deberta-v2", "modernbert", "mpnet"])
@pytest.mark.parametrize("layer", range(LAYERS - 1))  # the last layer caches little and always fits
def test_what_does_not_fit_is_computed_again(model_type, layer, kind, monkeypatch, caplog):
    model, rows = made(model_type=model_type)
    mask = PruningPlan(**{kind: {layer: [1]}})
    expected = LayerScorer(model, layer, rows, "accuracy", cpu()).logits(mask)
    scored_tokens = max(rows.lengths) if model_type == "deberta-v2" else 0
    per_token = scorer._bytes_per_pass_token(encoder_of(model), 4, scored_tokens)
    room = int(20 * per_token / scorer._USABLE_MEMORY)
    monkeypatch.setattr(scorer, "available_bytes", lambda device: room)
    layer_scorer = LayerScorer(model, layer, rows, "accuracy", cpu())
    for _ in range(2):
        assert torch.allclose(layer_scorer.logits(mask), expected, atol=1e-5)
    assert len(layer_scorer._chunks) > 1
    assert any(chunk.state is None for chunk in layer_scorer._chunks)
    assert "reward rows do not fit into memory and are recomputed for each reward" in caplog.text


@pytest.mark.parametrize(("make", "place"), [(layer_1, "layer 1"), (PlanScorer, "whole model")])
def test_a_batch_that_runs_out_of_memory_is_halved(make, place, monkeypatch, caplog):
    model, rows = made()
    plan = PruningPlan({1: [1]}, {1: SOME})
    climb, room = scorer.PackedScorer._climb, 6

    def cramped(self, above, hidden, batch, *arguments):
        if len(batch.lengths) > room:
            raise torch.OutOfMemoryError("no room")
        return climb(self, above, hidden, batch, *arguments)

    monkeypatch.setattr(scorer.PackedScorer, "_climb", cramped)
    found = make(model, rows, "accuracy", cpu())
    assert_logits_are_those_of_the_pruned(found.logits(plan), model, plan, rows)
    assert max(len(chunk.rows) for chunk in found._chunks) <= 6
    assert f"{place}: out of memory, a batch of 23 rows is halved" in caplog.text
    room = 0
    message = rf"^{place}: one row of \d+ tokens does not fit into the memory of cpu"
    with pytest.raises(ModelError, match=message):
        found.score(plan)


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("model_type", ["deberta-v2", "modernbert", "mpnet"])
def test_several_masks_share_a_pass(model_type, layer, monkeypatch):
    model, rows = made(model_type=model_type)
    layer_scorer = LayerScorer(model, layer, rows, "accuracy", cpu())
    neurons = [{layer: range(start, NEURONS - 1)} for start in (0, 5, 11, 30, 44)]
    heads = [{layer: mask} for mask in [(0,), (1, 2), (), (3,), (0, 1, 2)]]
    together = [heads, [None] * 5, heads], [[None] * 5, neurons, neurons]
    for some_heads, some_neurons in zip(*together, strict=True):
        masks = list(map(PruningPlan, some_heads, some_neurons))
        monkeypatch.setattr(LayerScorer, "_masks_per_pass", lambda self: 1)
        one_by_one = [layer_scorer.logits(mask) for mask in masks]
        monkeypatch.setattr(LayerScorer, "_masks_per_pass", lambda self: 2)
        for found, expected in zip(layer_scorer._logits_of(masks), one_by_one, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert layer_scorer.score_many([]) == []


def test_masks_share_a_pass_only_where_it_fits_into_memory(monkeypatch):
    model, rows = made()
    tokens = sum(rows.lengths)
    per_token = scorer._bytes_per_pass_token(encoder_of(model), 4, 0)
    shared = []
    for room in (tokens, 2 * tokens, 1000 * tokens):
        monkeypatch.setattr(
            scorer, "available_bytes", lambda device, room=room: 2.6 * room * per_token
        )
        layer_scorer = LayerScorer(model, 1, rows, "accuracy", cpu())
        layer_scorer.score(())
        shared.append(layer_scorer._masks_per_pass())
    assert shared == [1, 2, 1024 // tokens]


def test_scorers_that_share_the_memory_use_a_part_of_it_each(monkeypatch):
    model, rows = made()
    most = 3 * scorer._bytes_per_pass_token(encoder_of(model), 4, 0) * sum(rows.lengths)
    monkeypatch.setattr(scorer, "available_bytes", lambda device: most)
    chunks = []
    for sharing in (1, 2, 4):
        found = LayerScorer(model, 1, rows, "accuracy", cpu(), sharing=sharing)
        found.score(())
        chunks.append(len(found._chunks))
    assert chunks[0] == 1
    assert chunks[0] < chunks[1] < chunks[2]


def test_a_hundred_thousand_rows_in_little_memory(monkeypatch):
    """Only some rows are cached, of heads' contexts and, as they are wider, of fewer neurons."""
    model, some = made(labels=2)
    few = EncodedRows([ids[:2] for ids in some.input_ids], None, some.labels, pad_token_id=1)
    rows = few.select([row % len(few) for row in range(100_000)])
    layer_scorer = LayerScorer(model, 1, rows, "accuracy", cpu())
    monkeypatch.setattr(scorer, "available_bytes", lambda device: 8 * 2**20)
    cached = []
    for mask in (PruningPlan({1: [2]}), PruningPlan(neurons={1: SOME})):
        found = layer_scorer.score(mask)
        assert found == layer_scorer.score(mask)
        assert found == pytest.approx(pruned_score(model, 1, mask, few, "accuracy"), abs=0.001)
        sizes = [each.numel() for chunk in layer_scorer._chunks if chunk.state
                 for each in chunk.state if each is not None]  # fmt: skip
        assert 2**20 < 4 * sum(sizes) < 8 * 2**20
        cached.append(sum(chunk.state is not None for chunk in layer_scorer._chunks))
    assert 0 < cached[1] < cached[0] < len(layer_scorer._chunks)


def test_the_memory_limit_of_a_container_is_kept(monkeypatch, tmp_path):
    limit, device, used = tmp_path / "memory.max", torch.device("cpu"), Process().memory_info().rss
    monkeypatch.setattr(scorer, "_CONTAINER_LIMITS", (limit, tmp_path / "missing"))
    whole = scorer.available_bytes(device)
    limit.write_text("max\n")
    assert scorer.available_bytes(device) == pytest.approx(whole, rel=0.1)
    limit.write_text(f"{used + 2**26}\n")
    assert scorer.available_bytes(device) == pytest.approx(2**26, abs=2**23)
    limit.write_text("1000\n")
    assert scorer.available_bytes(device) == 0


def test_heads_of_an_unusual_size():
    model, rows = made(hidden_size=36, num_attention_heads=4)
    expected = pruned_score(model, 0, [2], rows, "accuracy")
    assert LayerScorer(model, 0, rows, "accuracy", cpu()).score((2,)) == expected
