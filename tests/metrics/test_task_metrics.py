from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from scipy import stats
from sklearn import metrics as sk

from auber.data.encoding import EncodedRows
from auber.errors import ConfigError
from auber.metrics.task_metrics import (
    METRICS,
    confusion,
    get_metric,
    predicts_one_class,
    predicts_one_number,
    smooth_metric,
)
from tests.kinds import num_labels, random_kind_rows

CPU = torch.device("cpu")
# The logits explain almost everything: rows that are separated perfectly have no best scale.
NEARLY = {"explained": 1e-5, "tag_explained": 1e-5}


each_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@contextlib.contextmanager
def no_waiting():
    """Raise an error if the GPU is waited for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that it does not detect every wait
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def classified(rows, classes, seed):
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=random)
    logits = torch.randn(rows, classes, generator=random)
    return logits + 0.7 * torch.nn.functional.one_hot(labels, classes), labels


def measured(seed, rows=200, levels=None):
    random = torch.Generator().manual_seed(seed)
    targets = torch.randn(rows, generator=random)
    predictions = targets + torch.randn(rows, generator=random)
    if levels is not None:  # few different values, so many ties
        predictions, targets = (predictions * levels).round(), (targets * levels).round()
    return predictions, targets


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(5))
def test_classification_metrics_equal_those_of_scikit_learn(classes, seed):
    logits, labels = classified(150, classes, seed)
    true, predicted = labels.numpy(), logits.argmax(-1).numpy()
    average = "binary" if classes == 2 else "macro"
    expected = {
        "accuracy": sk.accuracy_score(true, predicted),
        "f1": sk.f1_score(true, predicted, average=average, zero_division=0),
        "matthews": sk.matthews_corrcoef(true, predicted),
    }
    for name, value in expected.items():
        score = get_metric(name).compute(logits, labels)
        assert score.dtype == torch.float64
        assert score.shape == ()
        assert score.item() == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("levels", [None, 1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_those_of_scipy_with_and_without_ties(levels, seed):
    predictions, targets = measured(seed, levels=levels)
    for name, expected in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        value = pytest.approx(expected(predictions.double(), targets.double()).statistic, abs=1e-10)
        assert get_metric(name).compute(predictions, targets).item() == value
        assert get_metric(name).compute(predictions[:, None], targets).item() == value


@pytest.mark.parametrize(("mean", "spread"), [(1e6, 1.0), (-1e6, 1.5), (1.7e9, 1e3), (1.7e9, 1e9)])
def test_targets_may_vary_little_beside_their_mean(mean, spread):
    predictions, targets = measured(0)
    targets = (mean + spread * targets.double()).float()  # such as times in seconds
    assert len(targets.unique()) > 10
    value = stats.pearsonr(predictions.double(), targets.double()).statistic
    assert 0.1 < value < 0.99
    pearson, explained = get_metric("pearson"), get_metric("r_squared")
    assert pearson.compute(predictions, targets).item() == pytest.approx(value, abs=1e-9)
    squared = pytest.approx(value**2, abs=1e-9)
    assert explained.compute(predictions, targets).item() == squared
    rows = explained.statistics(predictions, targets)
    assert explained.by_row(rows).mean().item() == squared
    assert not explained.is_blind(targets, 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_undefined_classification_values_are_zero(classes):
    logits = torch.zeros(6, classes)
    logits[:, 0] = 1  # class 0 is always predicted
    labels = torch.tensor([0, 0, 1, 1, 0, 1])
    assert get_metric("matthews").compute(logits, labels).item() == 0
    assert get_metric("accuracy").compute(logits, labels).item() == 0.5
    nothing_right = get_metric("f1").compute(logits, torch.ones_like(labels))
    assert nothing_right.item() == 0
    assert get_metric("matthews").compute(logits, torch.zeros_like(labels)).item() == 0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_correlation_with_a_constant_is_zero(name, value):
    constant = torch.full((1001,), value)
    varied = torch.linspace(-1, 1, 1001)
    assert get_metric(name).compute(constant, varied).item() == 0
    assert get_metric(name).compute(varied, constant).item() == 0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_of_not_a_number_is_not_a_number(name):
    predictions = torch.tensor([0.1, torch.nan, 0.3, 0.2])
    assert get_metric(name).compute(predictions, torch.arange(4.0)).isnan()


def right_logits(rows, kind):
    """Return logits that answer every row that has an answer."""
    logits = torch.zeros(sum(rows.lengths), num_labels(kind))
    start = 0
    for row, length in enumerate(rows.lengths):
        features = rows[row]
        if kind == "tokens":
            for token, tag in enumerate(features["labels"]):
                if tag >= 0:
                    logits[start + token, tag] = 1
        elif features["start_positions"] >= 0:
            logits[start + features["start_positions"], 0] = 1
            logits[start + features["end_positions"], 1] = 1
        start += length
    return logits


def example(metric):
    """Return outputs and truth for a metric, and both again in three shards."""
    if metric.kind == "sequence":
        outputs, labels = measured(3, levels=4) if metric.is_regression else classified(200, 3, 3)
        parts = slice(0, 30), slice(30, 31), slice(31, 200)
        return outputs, labels, [(outputs[part], labels[part]) for part in parts]
    rows = random_kind_rows(metric.kind, 40)
    random = torch.Generator().manual_seed(0)
    if metric.kind == "embeddings":
        truth = rows.truth(CPU)
        outputs = truth + 0.1 * torch.randn(truth.shape, generator=random)
        parts = slice(0, 3), slice(3, 4), slice(4, 40)
        return outputs, truth, [(outputs[part], truth[part]) for part in parts]
    logits = torch.randn(sum(rows.lengths), num_labels(metric.kind), generator=random)
    are_right = torch.rand(len(logits), 1, generator=random).round()  # about half of the time
    logits += 3 * right_logits(rows, metric.kind) * are_right
    by_row = logits.split(rows.lengths)
    shards = [
        (torch.cat([by_row[row] for row in part]), rows.select(part).truth(CPU))
        for part in (range(3), range(3, 4), range(4, 40))
    ]
    return logits, rows.truth(CPU), shards


@each_metric
def test_no_rows_score_zero(metric):
    if metric.kind == "sequence":
        truth = torch.zeros(0, dtype=torch.int64)
    else:
        truth = random_kind_rows(metric.kind, 0).truth(CPU)
    shape = (0,) if metric.is_regression else (0, num_labels(metric.kind))
    if metric.kind == "embeddings":
        shape = truth.shape
    assert metric.compute(torch.zeros(shape), truth).item() == 0


@each_metric
def test_shards_combine_to_the_whole(metric):
    outputs, truth, shards = example(metric)
    whole = metric.compute(outputs, truth)
    assert 0.05 < whole.item() < 0.95
    found = metric.finish(metric.combine([metric.statistics(*shard) for shard in shards]))
    torch.testing.assert_close(found, whole, rtol=0, atol=0 if metric.exact else 1e-12)


@each_metric
def test_perfect_is_one_and_half_precision_is_taken(metric):
    if metric.kind == "sequence":
        truth = torch.arange(30) % 3
        outputs = truth if metric.is_regression else torch.nn.functional.one_hot(truth, 3)
    elif metric.kind == "embeddings":
        outputs = truth = random_kind_rows("embeddings", 40).truth(CPU).bfloat16().float()
    else:
        rows = random_kind_rows(metric.kind, 40)
        rows = rows.select([row for row in range(40) if rows[row].get("start_positions", 0) >= 0])
        assert len(rows) > 15
        outputs, truth = right_logits(rows, metric.kind), rows.truth(CPU)
    nearly_one = pytest.approx(1, abs=NEARLY.get(metric.name, 1e-12))
    assert metric.compute(outputs.bfloat16(), truth).item() == nearly_one


@each_metric
def test_rows_of_another_kind_are_refused(metric):
    other = random_kind_rows("spans" if metric.kind == "tokens" else "tokens", 3)
    message = rf"^metric '{metric.name}' needs (logits|vectors) .*(Tag|Span)Truth; choose"
    with pytest.raises(ConfigError, match=message):
        metric.compute(torch.zeros(sum(other.lengths), 2), other.truth(CPU))


def test_entities_need_tags_that_spell_them():
    rows = random_kind_rows("tokens", 3)
    rows = EncodedRows(rows.input_ids, None, type(rows.targets)(rows.targets.tags, None))
    logits = torch.zeros(sum(rows.lengths), 5)
    with pytest.raises(ConfigError, match=r"^metric 'entity_f1' needs logits \(tokens, tags\) and"):
        get_metric("entity_f1").compute(logits, rows.truth(CPU))
    assert get_metric("token_accuracy").compute(logits, rows.truth(CPU)).item() > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sign", [1, -1])
def test_r_squared_is_that_of_a_line_that_never_falls(sign, seed):
    predictions, targets = measured(seed)
    line = stats.linregress(predictions, targets)
    metric, predicted = get_metric("r_squared"), sign * predictions
    expected = pytest.approx(max(sign, 0) * line.rvalue**2)
    assert metric.compute(predicted, targets).item() == expected
    fitted = line.intercept + line.slope * predictions.double() if sign > 0 else targets.mean()
    shares = 1 - (targets.double() - fitted) ** 2 / targets.double().var(correction=0)
    found = metric.by_row(torch.stack((predicted, targets), dim=1).double())
    assert found.numpy() == pytest.approx(shares.numpy(), abs=1e-6)


def test_r_squared_without_variance_is_zero():
    metric = get_metric("r_squared")
    ones, varied = torch.ones(5), torch.arange(5.0)
    for predictions, targets in ((ones, varied), (varied, ones)):
        assert metric.compute(predictions, targets).item() == 0
        shares = metric.by_row(metric.statistics(predictions, targets))
        assert shares.mean().item() == pytest.approx(0)


@pytest.mark.parametrize("name", sorted({smooth_metric(name) for name in METRICS}))
def test_what_is_smooth_is_the_mean_of_what_the_rows_give(name):
    metric = get_metric(name)
    outputs, truth, _ = example(metric)
    values = metric.by_row(metric.statistics(outputs, truth))
    assert values.ndim == 1
    assert values.mean().item() == pytest.approx(metric.compute(outputs, truth).item(), abs=1e-9)


@pytest.mark.gpu
@each_metric
def test_a_gpu_gives_the_same_without_waiting(metric):
    outputs, truth, _ = example(metric)
    on_gpu, by_row = (outputs.cuda(), truth.to("cuda")), metric.by_row
    with no_waiting():
        score = metric.compute(*on_gpu)
        shares = None if by_row is None else by_row(metric.statistics(*on_gpu))
    assert score.is_cuda
    assert score.item() == pytest.approx(metric.compute(outputs, truth).item(), abs=1e-12)
    if shares is not None:
        expected = by_row(metric.statistics(outputs, truth)).numpy()
        # At the optimum the mean is flat, but single rows show the last digits of the two solvers.
        assert shares.cpu().numpy() == pytest.approx(expected, abs=1e-7)


def test_a_label_that_is_no_class_is_not_counted_as_another():
    with pytest.raises((IndexError, RuntimeError)):
        confusion(torch.zeros(2, 2), torch.tensor([0, 2]))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("accuracy", (4,)),
        ("accuracy", (4, 1)),
        ("pearson", (4, 2)),
        ("f1", (4, 2, 2)),
        ("f1", (3, 2)),
    ],
)
def test_logits_of_the_wrong_shape_are_refused(name, shape):
    message = rf"^metric '{name}' needs logits .* found .*; choose a metric that fits the task$"
    with pytest.raises(ConfigError, match=message):
        get_metric(name).compute(torch.zeros(shape), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("get", [get_metric, smooth_metric])
def test_an_unknown_metric_is_refused(get):
    known = ", ".join(sorted(METRICS))
    message = rf"^Unknown metric 'acuracy'\. Did you mean 'accuracy'\? Known: {known}$"
    with pytest.raises(ConfigError, match=message):
        get("acuracy")


def test_one_class_for_all_rows():
    assert predicts_one_class(torch.tensor([[0.1, 0.9], [0.2, 0.3]]))
    assert not predicts_one_class(torch.tensor([[0.1, 0.9], [0.4, 0.3]]))
    assert not predicts_one_class(torch.tensor([[0.1, 0.9]]))  # one row tells nothing


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_one_number_for_all_rows(value):
    constant = torch.full((1001, 1), value)
    assert predicts_one_number(constant)
    assert not predicts_one_number(constant[:1])
    constant[7] += 0.01 * (value + 1)
    assert not predicts_one_number(constant)
    assert not predicts_one_number(constant * torch.nan)
