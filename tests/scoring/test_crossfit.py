from __future__ import annotations

import copy

import pytest
import torch

from auber.data.encoding import EncodedRows
from auber.errors import ModelError, TaskError
from auber.metrics.task_metrics import get_metric
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.scoring import CrossFitScorer, Fold, LayerScorer
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


def made_folds(labels=3, sizes=(9, 30, 14), removed=None):
    """Return different models with their own rows; most labels are predictions of the model."""
    folds = []
    for seed, size in enumerate(sizes):
        model = tiny_model("bert", num_labels=labels, seed=seed)
        remove(model, PruningPlan(removed or {}))
        rows = random_rows(size, labels=labels, seed=seed, regression=labels == 1)
        if labels > 1:
            predicted = predict(model, rows).argmax(1)
            answers = torch.where(torch.arange(size) % 3 > 0, predicted, rows.labels)
            rows = with_labels(rows, answers)
        folds.append((model, rows))
    return folds


def with_labels(rows, labels):
    """Return rows with other labels."""
    return EncodedRows(rows.input_ids, rows.token_types, labels, rows.pad_token_id)


def near_predictions(folds):
    """Return regression folds whose targets are close to the predictions."""
    return [
        (model, with_labels(rows, predict(model, rows)[:, 0] + 0.1 * rows.labels))
        for model, rows in folds
    ]


def expected_score(folds, plan, metric):
    """Return the metric of what the physically pruned models predict, over all rows.

    A smooth one is the mean of the folds' scores, weighted by their rows.
    """
    rule, logits = get_metric(metric), []
    for model, rows in folds:
        pruned = copy.deepcopy(model)
        remove(pruned, plan)
        logits.append(predict(pruned, rows))
    labels = [rows.labels for _, rows in folds]
    if metric == "explained":
        scores = [
            len(own) * rule.compute(each, own) for each, own in zip(logits, labels, strict=True)
        ]
        return sum(scores).item() / sum(map(len, labels))
    return rule.compute(torch.cat(logits), torch.cat(labels)).item()


def test_the_scorers_of_all_folds_share_the_memory():
    found = CrossFitScorer(made_folds(), 0, "accuracy", cpu())
    assert [each._sharing for each in found._scorers] == [3, 3, 3]


@pytest.mark.parametrize("layer", [0, LAYERS - 1])
@pytest.mark.parametrize(("metric", "labels"), METRICS)
def test_a_score_is_the_metric_of_all_pruned_models_together(metric, labels, layer):
    folds = made_folds(labels, removed={layer: [0], (layer + 1) % LAYERS: [2]})
    scorer = CrossFitScorer(folds, layer, metric, cpu())
    assert (scorer.layer, scorer.present) == (layer, (1, 2, 3))
    expected = [expected_score(folds, {layer: removed}, metric) for removed in MASKS]
    assert scorer.score_many(MASKS) == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) > 1


def move_logits(model, scale, shift):
    """Multiply a model's logits, then add to them."""
    with torch.no_grad():
        model.classifier.weight *= scale
        model.classifier.bias *= scale
        model.classifier.bias += torch.tensor(shift)


@pytest.mark.parametrize(
    ("metric", "labels"), [("explained", 2), ("explained", 3), ("r_squared", 1)]
)
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 1.0), (2.0, 0.0), (0.3, -2.0)])
def test_a_smooth_score_does_not_depend_on_the_calibration_of_a_fold_model(
    metric, labels, scale, shift
):
    """Shifting one class or scaling all logits of one fold model changes no score or error."""
    folds = made_folds(labels)
    if labels == 1:
        folds = near_predictions(folds)
    before = CrossFitScorer(folds, 1, metric, cpu()).score_many(MASKS)
    move_logits(folds[1][0], scale, [shift] + [0.0] * (labels - 1))
    after = CrossFitScorer(folds, 1, metric, cpu()).score_many(MASKS)
    assert after == pytest.approx(before, abs=1e-6)
    assert min(before) > 0.01
    assert len(set(before)) == len(MASKS)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_rows_of_every_task_type(kind):
    model = tiny_model("bert", kind=kind, num_labels=num_labels(kind))
    rows = random_kind_rows(kind)
    folds = [(model, rows.select(range(5))), (model, rows.select(range(5, len(rows))))]
    for metric in METRICS_OF[kind]:
        expected = LayerScorer(model, 1, rows, metric, cpu()).score_many(MASKS)
        found = CrossFitScorer(folds, 1, metric, cpu()).score_many(MASKS)
        assert found == pytest.approx(expected, abs=1e-6)


def test_a_smooth_score_of_tags_is_the_mean_over_words():
    model = tiny_model("bert", kind="tokens", num_labels=num_labels("tokens"))
    rows = random_kind_rows("tokens")
    folds = [(model, rows.select(range(5))), (model, rows.select(range(5, len(rows))))]
    scorers = [LayerScorer(model, 1, own, "tag_explained", cpu()) for _, own in folds]
    words = [len(scorer.statistics([()])[0]) for scorer in scorers]
    scores = [scorer.score_many(MASKS) for scorer in scorers]
    expected = [
        (words[0] * one + words[1] * other) / sum(words) for one, other in zip(*scores, strict=True)
    ]
    found = CrossFitScorer(folds, 1, "tag_explained", cpu()).score_many(MASKS)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("metric", "labels"), [("accuracy", 3), ("explained", 2), ("pearson", 1)])
def test_one_fold_scores_like_a_layer_scorer_and_empty_folds_are_ignored(metric, labels):
    (model, rows), (other, _), _ = made_folds(labels)
    whole = LayerScorer(model, 1, rows, metric, cpu())
    for folds in ([(model, rows)], [(other, rows.select([])), (model, rows)]):
        cross_fit = CrossFitScorer(folds, 1, metric, cpu())
        assert cross_fit.score_many(MASKS) == whole.score_many(MASKS)
        assert cross_fit.key == whole.key
        assert cross_fit.present == whole.present


def test_the_key_depends_on_every_fold():
    folds = made_folds()
    changed_rows = [*folds[:2], (folds[2][0], random_rows(14, seed=9))]
    changed_model = [(tiny_model("bert", num_labels=3, seed=9), folds[0][1]), *folds[1:]]
    exchanged = [(folds[1][0], folds[0][1]), (folds[0][0], folds[1][1]), folds[2]]
    several = (folds, changed_rows, changed_model, exchanged, folds[:2], folds[:1])
    keys = [CrossFitScorer(each, 0, "accuracy", cpu()).key for each in several]
    keys.append(CrossFitScorer(folds, 0, "explained", cpu()).key)
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {24}
    assert CrossFitScorer(copy.deepcopy(folds), 0, "accuracy", cpu()).key == keys[0]


def test_an_identity_replaces_the_digest_of_the_weights(monkeypatch):
    def key(*identities):
        pairs = zip(made_folds(), identities, strict=True)
        folds = [Fold(model, rows, identity) for (model, rows), identity in pairs]
        return CrossFitScorer(folds, 0, "accuracy", cpu()).key

    monkeypatch.setattr("auber.scoring.scorer.weights_digest", None)
    assert key("a", "b", "c") == key("a", "b", "c") != key("a", "b", "d")


def test_models_with_different_heads_are_refused():
    folds = made_folds()
    remove(folds[2][0], PruningPlan({1: [0, 3], 0: [2]}))
    message = (
        r"^layer 1: the models of all folds must have the same heads, found \[0, 1, 2, 3\] in fold "
        r"0 and \[1, 2\] in fold 2; remove the same heads from each$"
    )
    with pytest.raises(ModelError, match=message):
        CrossFitScorer(folds, 1, "accuracy", cpu())
    assert CrossFitScorer(folds, 2, "accuracy", cpu()).present == (0, 1, 2, 3)
    remove(folds[1][0], PruningPlan(neurons={2: [0]}))
    message = r"^layer 2: the models of all folds must have the same neurons, found \[0, 1, 2, "
    with pytest.raises(ModelError, match=message):
        CrossFitScorer(folds, 2, "accuracy", cpu())
    with pytest.raises(ModelError, match="^layer 2: the models of all folds must have the same n"):
        CrossFitScorer(folds, 2, "accuracy", cpu())


@pytest.mark.parametrize("count", [0, 2])
def test_without_rows_there_is_nothing_to_score(count):
    folds = [(model, rows.select([])) for model, rows in made_folds()[:count]]
    message = f"^layer 1: at least one fold must have rows, found none in {count} folds; add rows$"
    with pytest.raises(TaskError, match=message):
        CrossFitScorer(folds, 1, "accuracy", cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("metric", ["accuracy", "explained"])
def test_a_gpu_scores_the_same(metric):
    folds = [
        (tiny_model("bert", num_labels=3, hidden_size=64, seed=seed), random_rows(60, seed=seed))
        for seed in (0, 1)
    ]
    expected = CrossFitScorer(folds, 1, metric, cpu()).score_many(MASKS)
    on_gpu = [(model.cuda(), rows) for model, rows in folds]
    scorer = CrossFitScorer(on_gpu, 1, metric, Hardware(torch.device("cuda", 0), "float32", 1))
    for _ in range(2):
        assert scorer.score_many(MASKS) == pytest.approx(expected, abs=0.02)
