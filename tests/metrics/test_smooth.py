from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from auber.metrics.smooth import class_rows, explained_by_row, tag_rows
from auber.metrics.task_metrics import get_metric
from tests.kinds import num_labels, random_kind_rows
from tests.metrics.test_task_metrics import classified


def explained(logits, labels):
    return get_metric("explained").compute(logits, labels).item()


def drawn(rows, classes, strength, falling, seed):
    """Return logits with some knowledge of the labels, whose classes are increasingly rare.

    Some rows are far more confident than others.
    """
    random = torch.Generator().manual_seed(seed)
    weights = falling ** torch.arange(classes)
    labels = torch.multinomial(weights, rows, replacement=True, generator=random)
    noise = torch.randn(rows, classes, generator=random)
    noise = noise * torch.randn(rows, 1, generator=random).exp()
    return noise + strength * torch.nn.functional.one_hot(labels, classes), labels


def explained_by_scipy(logits, labels):
    """Return the same by a general optimizer, without absent classes."""
    classes, truth = np.unique(labels.numpy(), return_inverse=True)
    inputs = logits.double().numpy()[:, classes]
    frequencies = np.bincount(truth) / len(truth)

    def loss(fit):
        outputs = fit[0] * inputs + fit[1:]
        likelihoods = outputs - logsumexp(outputs, axis=1, keepdims=True)
        wrong = (np.exp(likelihoods) - np.eye(len(classes))[truth]) / len(truth)
        gradient = np.concatenate([[(wrong * inputs).sum()], wrong.sum(0)])
        return -likelihoods[np.arange(len(truth)), truth].mean(), gradient

    start = np.concatenate([[0], np.log(frequencies)])
    bounds = [(0, None)] + [(None, None)] * len(classes)
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10}
    best = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options).fun
    return float(1 + best / (frequencies @ np.log(frequencies)))


@pytest.mark.parametrize("falling", [1.0, 0.4])
@pytest.mark.parametrize("strength", [-1, 0.0, 0.3, 2, 5])
@pytest.mark.parametrize("classes", [2, 3, 9])
@pytest.mark.parametrize("rows", [60, 1500])
def test_it_is_what_a_general_optimizer_finds(rows, classes, strength, falling):
    logits, labels = drawn(rows, classes, strength, falling, seed=classes)
    value = explained(logits, labels)
    assert value == pytest.approx(explained_by_scipy(logits, labels), abs=1e-6)
    if abs(strength) >= 1:  # weaker ones may be drawn either way
        assert (value > 0.05) == (strength > 0)


@pytest.mark.parametrize("classes", [50, 77])
def test_of_many_classes_with_rare_ones_too(classes):
    random = np.random.default_rng(0)
    frequencies = random.dirichlet(np.ones(classes))  # the rarest classes have a row or none
    labels = random.choice(classes, 2000, p=frequencies)
    guesses = np.where(
        random.random(2000) < 0.85, labels, random.choice(classes, 2000, p=frequencies)
    )
    logits = random.normal(size=(2000, classes)) / 2
    logits[np.arange(2000), guesses] += random.normal(6, 1, size=2000)
    logits, labels = torch.tensor(logits), torch.tensor(labels)
    expected = explained_by_scipy(logits, labels)
    assert explained(logits, labels) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 4])
def test_scale_biases_and_what_softmax_forgets_cost_nothing(classes):
    logits, labels = classified(400, classes, 0)
    value = explained(logits, labels)
    assert 0.05 < value < 0.5
    biases, of_rows = torch.linspace(-3, 5, classes), torch.linspace(-9, 9, 400)[:, None]
    for other in (
        logits * 1e-6,
        logits * 1e9,
        logits + biases,
        logits + of_rows,
        7 * logits.double() - 1000 * biases,
    ):
        assert explained(other, labels) == pytest.approx(value, abs=1e-6)


def test_logits_without_knowledge_or_with_the_opposite_explain_nothing():
    logits, labels = classified(300, 3, 0)
    assert explained(-logits, labels) == 0
    assert explained(torch.full_like(logits, 0.1), labels) == 0
    constant = torch.tensor([0.1, 0.7, -1e3]).expand(300, 3)
    assert explained(constant, labels) == 0
    rounded = constant * (1 + 1e-8 * labels[:, None].double())
    assert explained(rounded, labels) == 0


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4, 1e30])
def test_perfectly_separated_rows_come_close_to_one(classes, size):
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % classes
    logits = torch.nn.functional.one_hot(labels, classes).float()
    logits += torch.rand(300, classes, generator=random) / 2
    value = explained(size * logits, labels)
    assert 1 - 1e-4 < value <= 1
    mistaken = labels.clone()
    mistaken[0] = (labels[0] + 1) % classes
    assert value - 0.2 < explained(size * logits, mistaken) < value - 0.005


def test_one_confident_row_does_not_make_it_diverge():
    logits, labels = classified(500, 2, 2)
    value = explained(logits, labels)
    for size in (1e2, 1e4, 1e8):
        for right in (True, False):
            far = logits.clone()
            far[0] = size * torch.nn.functional.one_hot(labels[0] if right else 1 - labels[0], 2)
            assert 0 <= explained(far, labels) <= 1
            if right and size < 1e4:
                assert explained(far, labels) == pytest.approx(value, abs=0.01)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_class_without_rows_counts_as_left_out(missing):
    logits, labels = classified(300, 3, 5)
    kept = labels != missing
    logits, labels = logits[kept], labels[kept]
    others = [number for number in range(3) if number != missing]
    value = explained(logits, labels)
    without = explained(logits[:, others], (labels == others[1]).long())
    assert value == pytest.approx(without, abs=1e-9)
    assert value > 0.05
    logits[:, missing] *= 1e6
    assert explained(logits, labels) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("strange", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_no_numbers_give_none(strange):
    logits, labels = classified(50, 3, 0)
    labels = labels.clamp_max(1)
    for column in range(3):  # the last class has no rows
        broken = logits.clone()
        broken[7, column] = strange
        assert np.isnan(explained(broken, labels))
    assert explained(broken, torch.ones_like(labels)) == 0, "equal labels cannot be explained"


def test_of_tags_only_the_places_of_words_count():
    truth = random_kind_rows("tokens", 60).truth(torch.device("cpu"))
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(int(truth.places.max()) + 1, num_labels("tokens"), generator=random)
    logits[truth.places, truth.tags] += 1
    value = get_metric("tag_explained").compute(logits, truth).item()
    assert 0.05 < value < 0.5
    assert value == explained(logits[truth.places], truth.tags)
    assert len(tag_rows(logits, truth)) == len(truth.places) < len(logits)


@pytest.mark.parametrize("name", ["explained", "tag_explained"])
def test_it_is_blind_where_all_labels_are_the_same(name):
    metric = get_metric(name)
    if metric.kind == "sequence":
        assert metric.is_blind(torch.ones(4, dtype=torch.int64), 2)
        assert not metric.is_blind(torch.tensor([1, 1, 0]), 2)
    else:
        rows = random_kind_rows("tokens", 5)
        assert not metric.is_blind(rows.truth(torch.device("cpu")), 5)
        alike = type(rows.targets)([[1] * length for length in rows.lengths], None)
        assert metric.is_blind(alike.truth(range(5), rows.lengths, torch.device("cpu")), 5)


def test_rows_that_explain_nothing_give_what_their_class_does():
    logits, labels = drawn(100, 2, -1, 0.5, seed=2)  # the wrong way round
    values = explained_by_row(class_rows(logits, labels))
    assert len(values.unique()) == 2
    assert values.mean().item() == pytest.approx(0, abs=1e-12)


def test_rows_of_one_class_and_rows_that_are_no_numbers():
    logits, labels = drawn(20, 2, 1, 0.5, seed=3)
    assert explained_by_row(class_rows(logits, torch.zeros_like(labels))).eq(0).all()
    logits[3, 0] = torch.nan
    assert explained_by_row(class_rows(logits, labels)).isnan().all()
