from __future__ import annotations

import warnings

import pytest
import torch
from scipy import stats
from sklearn import metrics as sk

from auber.data.encoding import EncodedRows
from auber.data.task_types import TASK_TYPES
from auber.errors import ConfigError
from auber.metrics.task_metrics import (
    METRICS,
    Metric,
    confusion,
    get_metric,
    predicts_one_class,
    predicts_one_number,
    settle,
    smooth_metric,
)
from tests.kinds import num_labels, random_kind_rows

OF_ROWS = {name: metric for name, metric in METRICS.items() if metric.kind == "sequence"}
OF_TOKENS = {name: metric for name, metric in METRICS.items() if metric.kind != "sequence"}
CPU = torch.device("cpu")
NEARLY = {"explained": 1e-5, "tag_explained": 1e-5}  # no scale is the best where no mistake is made


def classified(rows: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=random)
    logits = torch.randn(rows, classes, generator=random)
    return logits + 0.7 * torch.nn.functional.one_hot(labels, classes), labels


def measured(
    seed: int, rows: int = 200, levels: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    targets = torch.randn(rows, generator=random)
    predictions = targets + torch.randn(rows, generator=random)
    if levels is not None:  # few different values, so many ties
        predictions, targets = (predictions * levels).round(), (targets * levels).round()
    return predictions, targets


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(5))
def test_classification_metrics_equal_those_of_scikit_learn(classes: int, seed: int) -> None:
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


def test_confusion_has_a_row_for_each_true_class() -> None:
    logits, labels = classified(90, 4, 0)
    assert (
        confusion(logits, labels).tolist()
        == sk.confusion_matrix(labels, logits.argmax(-1)).tolist()
    )


@pytest.mark.parametrize("levels", [None, 1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_those_of_scipy_with_and_without_ties(
    levels: int | None, seed: int
) -> None:
    predictions, targets = measured(seed, levels=levels)
    for name, expected in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        value = expected(predictions.double(), targets.double()).statistic
        assert get_metric(name).compute(predictions, targets).item() == pytest.approx(
            value, abs=1e-10
        )
        assert get_metric(name).compute(predictions[:, None], targets).item() == pytest.approx(
            value, abs=1e-10
        )


def test_pearson_survives_a_mean_far_from_zero() -> None:
    predictions, targets = measured(0)
    value = stats.pearsonr(predictions.double() + 1000, targets.double() + 2000).statistic
    found = get_metric("pearson").compute(predictions.double() + 1000, targets.double() + 2000)
    assert found.item() == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize(("mean", "spread"), [(1e6, 1.0), (-1e6, 1.5), (1.7e9, 1e3), (1.7e9, 1e9)])
def test_targets_may_vary_little_beside_their_mean(mean: float, spread: float) -> None:
    """Such as times in seconds."""
    predictions, targets = measured(0)
    targets = (mean + spread * targets.double()).float()
    assert len(targets.unique()) > 10
    value = stats.pearsonr(predictions.double(), targets.double()).statistic
    assert 0.1 < value < 0.99
    assert get_metric("pearson").compute(predictions, targets).item() == pytest.approx(
        value, abs=1e-9
    )
    explained = get_metric("r_squared")
    assert explained.compute(predictions, targets).item() == pytest.approx(value**2, abs=1e-9)
    assert explained.by_row is not None
    assert explained.by_row(
        explained.statistics(predictions, targets)
    ).mean().item() == pytest.approx(value**2, abs=1e-9)
    assert not explained.is_blind(targets, 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_undefined_classification_values_are_zero(classes: int) -> None:
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
def test_correlation_with_a_constant_is_zero(name: str, value: float) -> None:
    constant = torch.full((1001,), value)
    varied = torch.linspace(-1, 1, 1001)
    assert get_metric(name).compute(constant, varied).item() == 0
    assert get_metric(name).compute(varied, constant).item() == 0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_of_not_a_number_is_not_a_number(name: str) -> None:
    predictions = torch.tensor([0.1, torch.nan, 0.3, 0.2])
    assert get_metric(name).compute(predictions, torch.arange(4.0)).isnan()


@pytest.mark.parametrize("metric", OF_ROWS.values(), ids=OF_ROWS.keys())
def test_no_rows_score_zero(metric: Metric) -> None:
    logits = torch.zeros(0) if metric.is_regression else torch.zeros(0, 2)
    assert metric.compute(logits, torch.zeros(0, dtype=torch.int64)).item() == 0


@pytest.mark.parametrize("metric", OF_ROWS.values(), ids=OF_ROWS.keys())
def test_shards_combine_to_the_whole(metric: Metric) -> None:
    outputs, labels = measured(3, levels=4) if metric.is_regression else classified(200, 3, 3)
    shards = [
        metric.statistics(outputs[part], labels[part])
        for part in (slice(0, 30), slice(30, 31), slice(31, 200))
    ]
    whole = metric.compute(outputs, labels)
    torch.testing.assert_close(metric.finish(metric.combine(shards)), whole, rtol=0, atol=1e-12)
    if metric.exact:
        torch.testing.assert_close(
            metric.finish(shards[0] + shards[1] + shards[2]), whole, rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("metric", OF_ROWS.values(), ids=OF_ROWS.keys())
def test_perfect_is_one_and_half_precision_is_taken(metric: Metric) -> None:
    labels = torch.arange(30) % 3
    logits = (
        labels.bfloat16()
        if metric.is_regression
        else torch.nn.functional.one_hot(labels, 3).bfloat16()
    )
    assert metric.compute(logits, labels).item() == pytest.approx(
        1, abs=NEARLY.get(metric.name, 1e-12)
    )


def token_rows(metric: Metric, count: int = 40) -> tuple[EncodedRows, torch.Tensor]:
    """Rows whose answers a metric compares, and logits that are right about half of the time."""
    rows = random_kind_rows(metric.kind, count)
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(sum(rows.lengths), num_labels(metric.kind), generator=random)
    return rows, logits + 3 * right_logits(rows, metric.kind) * torch.rand(
        len(logits), 1, generator=random
    ).round()


def right_logits(rows: EncodedRows, kind: str) -> torch.Tensor:
    """Logits that answer every row, where it has an answer."""
    logits = torch.zeros(sum(rows.lengths), num_labels(kind))
    start = 0
    for row, length in enumerate(rows.lengths):
        features = rows[row]
        if kind == "tokens":
            for token, tag in enumerate(features["labels"]):
                if tag >= 0:
                    logits[start + token, tag] = 1
        elif features["start_positions"] >= 0:
            logits[start + features["start_positions"], 0] = logits[
                start + features["end_positions"], 1
            ] = 1
        start += length
    return logits


@pytest.mark.parametrize("metric", OF_TOKENS.values(), ids=OF_TOKENS.keys())
def test_no_tokens_score_zero(metric: Metric) -> None:
    rows = random_kind_rows(metric.kind, 0)
    assert metric.compute(torch.zeros(0, num_labels(metric.kind)), rows.truth(CPU)).item() == 0


@pytest.mark.parametrize("metric", OF_TOKENS.values(), ids=OF_TOKENS.keys())
def test_shards_of_tokens_combine_to_the_whole(metric: Metric) -> None:
    rows, logits = token_rows(metric)
    whole = metric.compute(logits, rows.truth(CPU))
    assert 0.05 < whole.item() < 0.95
    by_row = logits.split(rows.lengths)
    parts = (range(3), range(3, 4), range(4, len(rows)))
    shards = [
        metric.statistics(torch.cat([by_row[row] for row in part]), rows.select(part).truth(CPU))
        for part in parts
    ]
    found = metric.finish(metric.combine(shards))
    torch.testing.assert_close(found, whole, rtol=0, atol=0 if metric.exact else 1e-12)


@pytest.mark.parametrize("metric", OF_TOKENS.values(), ids=OF_TOKENS.keys())
def test_perfect_tokens_are_one_and_half_precision_is_taken(metric: Metric) -> None:
    rows = random_kind_rows(metric.kind, 40)
    answered = [
        row
        for row in range(len(rows))
        if "labels" in rows[row] or rows[row]["start_positions"] >= 0
    ]
    rows = rows.select(answered)
    assert len(rows) > 15
    score = metric.compute(right_logits(rows, metric.kind).bfloat16(), rows.truth(CPU)).item()
    assert score == pytest.approx(1, abs=NEARLY.get(metric.name, 0))


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_rows_of_another_kind_are_refused(metric: Metric) -> None:
    other = random_kind_rows("spans" if metric.kind == "tokens" else "tokens", 3)
    with pytest.raises(
        ConfigError,
        match=rf"^metric '{metric.name}' needs logits .*(Tag|Span)Truth; choose a metric that",
    ):
        metric.compute(torch.zeros(sum(other.lengths), 2), other.truth(CPU))


def test_entities_need_tags_that_spell_them() -> None:
    rows = random_kind_rows("tokens", 3)
    rows = EncodedRows(rows.input_ids, None, type(rows.targets)(rows.targets.tags, None))
    logits = torch.zeros(sum(rows.lengths), 5)
    with pytest.raises(
        ConfigError, match=r"^metric 'entity_f1' needs logits \(tokens, tags\) and tagged words"
    ):
        get_metric("entity_f1").compute(logits, rows.truth(CPU))
    assert get_metric("token_accuracy").compute(logits, rows.truth(CPU)).item() > 0


@pytest.mark.gpu
@pytest.mark.parametrize("metric", OF_TOKENS.values(), ids=OF_TOKENS.keys())
def test_a_gpu_gives_the_same_of_tokens_without_waiting(metric: Metric) -> None:
    rows, logits = token_rows(metric)
    expected, truth, on_gpu = (
        metric.compute(logits, rows.truth(CPU)),
        rows.truth(torch.device("cuda")),
        logits.cuda(),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it does not find every wait
            torch.cuda.set_sync_debug_mode("error")
        score = metric.compute(on_gpu, truth)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert score.is_cuda
    assert score.item() == pytest.approx(expected.item(), abs=1e-12)


def test_every_kind_has_its_default_metric() -> None:
    assert all(METRICS[kind.metric].kind == name for name, kind in TASK_TYPES.items())


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_a_smooth_metric_scores_the_same_tasks_and_is_smooth_itself(metric: Metric) -> None:
    smooth = get_metric(smooth_metric(metric.name))
    assert smooth.compares == metric.compares
    assert not smooth.exact, "it counts"
    assert not smooth.reads_entities
    assert smooth_metric(smooth.name) == smooth.name


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sign", [1, -1])
def test_r_squared_is_that_of_a_line_that_never_falls(sign: int, seed: int) -> None:
    predictions, targets = measured(seed)
    line = stats.linregress(predictions, targets)
    metric, rows = (
        get_metric("r_squared"),
        torch.stack((sign * predictions, targets), dim=1).double(),
    )
    assert metric.compute(sign * predictions, targets).item() == pytest.approx(
        max(sign, 0) * line.rvalue**2
    )
    residuals = targets.double() - (
        line.intercept + line.slope * predictions.double() if sign > 0 else targets.mean()
    )
    expected = 1 - residuals**2 / targets.double().var(correction=0)
    assert metric.by_row is not None
    assert metric.by_row(rows).numpy() == pytest.approx(expected.numpy(), abs=1e-6)


def test_r_squared_of_what_does_not_vary() -> None:
    metric = get_metric("r_squared")
    assert metric.by_row is not None
    for predictions, targets in (
        (torch.ones(5), torch.arange(5.0)),
        (torch.arange(5.0), torch.ones(5)),
    ):
        assert metric.compute(predictions, targets).item() == 0
        assert metric.by_row(
            metric.statistics(predictions, targets)
        ).mean().item() == pytest.approx(0)


@pytest.mark.parametrize("name", sorted({smooth_metric(name) for name in METRICS}))
def test_what_is_smooth_is_the_mean_of_what_the_rows_give(name: str) -> None:
    metric = get_metric(name)
    if metric.kind == "sequence":
        outputs, truth = measured(1) if metric.is_regression else classified(90, 3, 1)
    else:
        rows, outputs = token_rows(metric)
        truth = rows.truth(CPU)
    assert metric.by_row is not None
    values = metric.by_row(metric.statistics(outputs, truth))
    assert values.ndim == 1
    assert values.mean().item() == pytest.approx(metric.compute(outputs, truth).item(), abs=1e-9)


@pytest.mark.parametrize(("rows", "moves"), [(10_922, True), (10_923, False)])
def test_small_statistics_are_finished_on_the_host(
    rows: int, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three numbers a row; a fit of many small steps on few numbers is what a GPU is slowest at."""
    moved = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: (moved.append(self.shape), self)[1])
    metric, labels = get_metric("explained"), torch.arange(rows) % 2
    outputs = [torch.stack((labels * 0.0, labels * gain), dim=1) for gain in (0.0, 1.0)]
    scores = metric.finish_all(torch.stack([metric.statistics(each, labels) for each in outputs]))
    assert moved == ([torch.Size((2, rows, 3))] if moves else [])
    assert scores == pytest.approx([0.0, 1.0], abs=1e-3)


@pytest.mark.gpu
def test_what_a_gpu_has_gathered_is_finished_alike_there_and_here() -> None:
    metric = get_metric("explained")
    outputs, labels = classified(200, 3, 3)
    gathered = metric.statistics(outputs.cuda(), labels.cuda())
    assert not settle(gathered[None]).is_cuda
    assert settle(gathered.repeat(60, 1)[None]).is_cuda
    assert metric.finish_all(gathered[None])[0] == pytest.approx(
        metric.finish(gathered).item(), abs=1e-12
    )


def test_no_smooth_metric_of_an_unknown_one() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown metric 'acuracy'\."):
        smooth_metric("acuracy")


@pytest.mark.gpu
@pytest.mark.parametrize("metric", OF_ROWS.values(), ids=OF_ROWS.keys())
def test_a_gpu_gives_the_same_without_waiting(metric: Metric) -> None:
    outputs, labels = measured(3, levels=4) if metric.is_regression else classified(200, 3, 3)
    on_gpu = outputs.cuda(), labels.cuda()
    by_row = metric.by_row
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it does not find every wait
            torch.cuda.set_sync_debug_mode("error")
        score = metric.compute(*on_gpu)
        values = None if by_row is None else by_row(metric.statistics(*on_gpu))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert score.is_cuda
    assert score.item() == pytest.approx(metric.compute(outputs, labels).item(), abs=1e-12)
    if by_row is not None:
        assert values is not None
        # Where a fit ends the mean over the rows is flat, the single rows are not: they tell the last digits of its two solvers.
        assert values.cpu().numpy() == pytest.approx(
            by_row(metric.statistics(outputs, labels)).numpy(), abs=1e-7
        )


def test_a_label_that_is_no_class_is_not_counted_as_another() -> None:
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
def test_logits_of_the_wrong_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ConfigError, match=rf"metric '{name}' needs logits .* found .*; choose a metric that fits"
    ):
        get_metric(name).compute(torch.zeros(shape), torch.zeros(4, dtype=torch.int64))


def test_an_unknown_metric_names_its_neighbour() -> None:
    known = "accuracy, entity_f1, explained, f1, matthews, pearson, r_squared, span_exact, span_f1, spearman, tag_explained, token_accuracy"
    message = rf"^Unknown metric 'acuracy'\. Did you mean 'accuracy'\? Known: {known}$"
    with pytest.raises(ConfigError, match=message):
        get_metric("acuracy")


def test_one_class_for_all_rows() -> None:
    assert predicts_one_class(torch.tensor([[0.1, 0.9], [0.2, 0.3]]))
    assert not predicts_one_class(torch.tensor([[0.1, 0.9], [0.4, 0.3]]))
    assert not predicts_one_class(torch.tensor([[0.1, 0.9]]))  # one row tells nothing


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_one_number_for_all_rows(value: float) -> None:
    constant = torch.full((1001, 1), value)
    assert predicts_one_number(constant)
    assert not predicts_one_number(constant[:1])
    constant[7] += 0.01 * (value + 1)
    assert not predicts_one_number(constant)
    assert not predicts_one_number(constant * torch.nan)
