from __future__ import annotations

import copy

import pytest
import torch

from auber.data.encoding import EncodedRows
from auber.errors import ModelError, TaskError
from auber.metrics.task_metrics import get_metric
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.scoring import CrossedScorer, LayerScorer, Part
from auber.training.devices import Hardware
from auber.training.evaluation import predict
from tests.kinds import METRICS_OF, TOKEN_KINDS, num_labels, random_kind_rows
from tests.scoring.test_scorer import random_rows
from tests.small import cpu
from tests.tiny_models import LAYERS, tiny_model

MASKS = [(), (1,), (1, 3), (2, 3)]
METRICS = [
    ("accuracy", 3),
    ("matthews", 2),
    ("explained", 2),
    ("explained", 3),
    ("pearson", 1),
    ("spearman", 1),
]


def made(labels=3, sizes=(9, 30, 14), removed=None):
    """Different models, each with rows of its own; two classes of three are those it predicts, so that it explains some."""
    parts = []
    for seed, size in enumerate(sizes):
        model = tiny_model("bert", num_labels=labels, seed=seed)
        remove_heads(model, PruningPlan(removed or {}))
        rows = random_rows(size, labels=labels, seed=seed, regression=labels == 1)
        if labels > 1:
            answers = torch.where(
                torch.arange(size) % 3 > 0, predict(model, rows).argmax(1), rows.labels
            )
            rows = EncodedRows(rows.input_ids, rows.token_types, answers, rows.pad_token_id)
        parts.append((model, rows))
    return parts


def scored_plainly(parts, layer, metric, removed):
    """The metric of what the physically pruned models predict, over all rows."""
    logits, truths = [], []
    for model, rows in parts:
        pruned = copy.deepcopy(model)
        remove_heads(pruned, {layer: removed})
        logits.append(predict(pruned, rows))
        truths.append(rows.labels)
    return get_metric(metric).compute(torch.cat(logits), torch.cat(truths)).item()


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize(("metric", "labels"), METRICS)
def test_a_score_is_the_metric_of_all_pruned_models_together(metric, labels, layer):
    parts = made(labels, removed={layer: [0], (layer + 1) % LAYERS: [2]})
    scorer = CrossedScorer(parts, layer, metric, cpu())
    assert (scorer.layer, scorer.present) == (layer, (1, 2, 3))
    expected = [scored_plainly(parts, layer, metric, removed) for removed in MASKS]
    assert scorer.score_many(MASKS) == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) > 1, "the masks tell nothing apart"


def test_the_metric_is_one_over_all_rows_and_not_a_mean_over_the_parts():
    parts = made(2)
    alone = [LayerScorer(model, 1, rows, "matthews", cpu()).score((1,)) for model, rows in parts]
    assert abs(CrossedScorer(parts, 1, "matthews", cpu()).score((1,)) - sum(alone) / 3) > 0.001


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_rows_of_every_kind_are_crossed(kind):
    model = tiny_model("bert", kind=kind, num_labels=num_labels(kind))
    rows = random_kind_rows(kind)
    parts = [(model, rows.select(range(5))), (model, rows.select(range(5, len(rows))))]
    for metric in (*METRICS_OF[kind], *(["tag_explained"] if kind == "tokens" else [])):
        expected = LayerScorer(model, 1, rows, metric, cpu()).score_many(MASKS)
        assert CrossedScorer(parts, 1, metric, cpu()).score_many(MASKS) == pytest.approx(
            expected, abs=1e-6
        )


@pytest.mark.parametrize(("metric", "labels"), METRICS)
def test_one_part_scores_as_a_layer_scorer_and_parts_without_rows_have_no_say(metric, labels):
    (model, rows), (other, _), _ = made(labels)
    whole = LayerScorer(model, 1, rows, metric, cpu())
    for parts in ([(model, rows)], [(other, rows.select([])), (model, rows)]):
        crossed = CrossedScorer(parts, 1, metric, cpu())
        assert crossed.score_many(MASKS) == whole.score_many(MASKS)
        assert crossed.key == whole.key
        assert crossed.present == whole.present


@pytest.mark.parametrize("metric", ["accuracy", "explained"])
def test_neither_the_order_of_masks_nor_their_batching_matters(metric):
    scorer = CrossedScorer(made(), 1, metric, cpu())
    together = scorer.score_many(MASKS)
    assert scorer.score_many(MASKS[::-1]) == pytest.approx(together[::-1], abs=1e-6)
    assert [scorer.score(mask) for mask in MASKS] == pytest.approx(together, abs=1e-6)
    assert scorer.score_many(MASKS * 9) == pytest.approx(together * 9, abs=1e-6)
    assert scorer.score_many([]) == []


def test_the_key_depends_on_every_part():
    parts = made()
    changed_rows = [*parts[:2], (parts[2][0], random_rows(14, seed=9))]
    changed_model = [(tiny_model("bert", num_labels=3, seed=9), parts[0][1]), *parts[1:]]
    exchanged = [(parts[1][0], parts[0][1]), (parts[0][0], parts[1][1]), parts[2]]
    several = (parts, changed_rows, changed_model, exchanged, parts[:2], parts[:1])
    keys = [CrossedScorer(each, 0, "accuracy", cpu()).key for each in several]
    keys.append(CrossedScorer(parts, 0, "explained", cpu()).key)
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {24}
    assert CrossedScorer(copy.deepcopy(parts), 0, "accuracy", cpu()).key == keys[0]


def test_models_that_are_known_are_not_gone_over(monkeypatch):
    def known(*identities):
        parts = [
            Part(model, rows, identity)
            for (model, rows), identity in zip(made(), identities, strict=True)
        ]
        return CrossedScorer(parts, 0, "accuracy", cpu())

    monkeypatch.setattr(
        "auber.scoring.scorer.weights_digest", lambda model: pytest.fail("went over the weights")
    )
    assert known("a", "b", "c").key == known("a", "b", "c").key
    assert known("a", "b", "c").key != known("a", "b", "d").key


def test_the_parts_share_the_memory(monkeypatch):
    seen = []
    cut = LayerScorer._cut
    monkeypatch.setattr(
        LayerScorer, "_cut", lambda self, *rest: (seen.append(self._tenants), cut(self, *rest))[1]
    )
    parts = made()
    scorer = CrossedScorer([*parts, (parts[0][0], parts[0][1].select([]))], 1, "accuracy", cpu())
    assert seen == [], "nothing is computed before the first score"
    scorer.score((1,))
    assert seen == [3, 3, 3]


def test_models_with_different_heads_are_refused():
    parts = made()
    remove_heads(parts[2][0], PruningPlan({1: [0, 3], 0: [2]}))
    with pytest.raises(ModelError) as caught:
        CrossedScorer(parts, 1, "accuracy", cpu())
    assert str(caught.value) == (
        "layer 1: the models of all parts must have the same heads, found [0, 1, 2, 3] in part 0 and [1, 2] in part 2; "
        "remove the same heads from each"
    )
    assert CrossedScorer(parts, 2, "accuracy", cpu()).present == (0, 1, 2, 3), (
        "other layers may differ"
    )


@pytest.mark.parametrize("count", [0, 2])
def test_without_rows_there_is_nothing_to_score(count):
    parts = [(model, rows.select([])) for model, rows in made()[:count]]
    with pytest.raises(TaskError) as caught:
        CrossedScorer(parts, 1, "accuracy", cpu())
    assert str(caught.value) == (
        f"layer 1: one part at least must have rows, found none in {count} parts; add rows"
    )


@pytest.mark.gpu
@pytest.mark.parametrize("metric", ["accuracy", "explained"])
def test_a_gpu_scores_the_same(metric):
    parts = [
        (tiny_model("bert", num_labels=3, hidden_size=64, seed=seed), random_rows(60, seed=seed))
        for seed in (0, 1)
    ]
    expected = CrossedScorer(parts, 1, metric, cpu()).score_many(MASKS)
    on_gpu = [(model.cuda(), rows) for model, rows in parts]
    scorer = CrossedScorer(on_gpu, 1, metric, Hardware(torch.device("cuda", 0), "float32", 1))
    for _ in range(2):
        assert scorer.score_many(MASKS) == pytest.approx(expected, abs=0.02)
