"""Runs with extreme numbers: NaN and infinity, models that collapsed, too few rows or heads."""

from __future__ import annotations

import json
import math

import pytest
import torch

import auber
from auber.data.encoding import EncodedRows
from auber.data.task import TaskData
from auber.data.user_rows import make_task
from auber.errors import ModelError, RunError, TaskError
from auber.metrics.task_metrics import get_metric
from auber.scoring import LayerScorer
from auber.search.registry import METHODS
from auber.training.monitor import DivergedError
from tests.kinds import METRICS_OF, TOKEN_KINDS, num_labels, random_kind_rows, small_kind_task
from tests.small import Messages, small_config, small_start, small_task

LAYER_WISE = [name for name, method in METHODS.items() if method.choose_layer is not None]


def prune(task=None, model=None, *, method="greedy", **options):
    given = {
        key: options.pop(key) for key in ("heads", "out", "progress", "resume") if key in options
    }
    config = small_config(**{"first__when": "always", **options})
    start = model or small_start()
    return auber.prune(*start, task=task or small_task(), method=method, config=config, **given)


def sentences(count, *, dev=2, labels=("a", "b"), metric=None) -> TaskData:
    """A task of this many rows whose labels alternate."""
    rows = [
        {"text": f"the {noun} is here .", "label": labels[row % len(labels)]}
        for row, noun in zip(range(count), ["key", "dog", "cat", "car"] * count, strict=False)
    ]
    return make_task(rows, rows[:dev], text="text", label="label", metric=metric)


def warnings_of(caplog):
    return [
        record.getMessage() for record in caplog.records if record.name.startswith("auber.run.")
    ]


def stages_of(folder):
    return sorted(path.name for path in (folder / "stages").iterdir())


# Losses and weights that are no numbers


@pytest.mark.parametrize(
    ("stage", "rates", "kept"),
    [
        ("first tuning", {"first__learning_rate": 1e6}, []),
        ("layer 0: tuning", {"layer__learning_rate": 1e30}, ["first", "first.json"]),
        (
            "last tuning",
            {"last__learning_rate": 1e30},
            ["first", "first.json", "layer-00", "layer-00.json", "layer-01.json", "layer-02.json"],
        ),
    ],
)
def test_a_tuning_that_diverges_ends_the_run_and_leaves_nothing_of_its_stage(
    stage, rates, kept, monkeypatch, tmp_path
):
    # The first head of the first layer goes, so that there is a tuning after a layer.
    monkeypatch.setattr(
        LayerScorer,
        "score_many",
        lambda scorer, masks: [
            float(scorer.layer == 0 and mask == (0,)) for mask in map(tuple, masks)
        ],
    )
    with pytest.raises(
        DivergedError,
        match=rf"^{stage}: .* step \d of \d with learning rate 1e.*; nothing of this stage",
    ):
        prune(out=tmp_path / "run", **rates)
    assert stages_of(tmp_path / "run") == kept
    assert not (tmp_path / "run" / "result.json").exists()
    assert not (tmp_path / "run" / "model").exists()

    # The same again ends the same; another rate is another run, as the message says.
    with pytest.raises(DivergedError, match=rf"^{stage}: "):
        prune(out=tmp_path / "run", resume=True, **rates)
    with pytest.raises(
        RunError,
        match="holds another run: .*learning_rate was 1.* and is now .*another folder for out$",
    ):
        prune(out=tmp_path / "run", resume=True, **dict.fromkeys(rates, 1e-4))


@pytest.mark.parametrize(("method", "heads"), [("auber", None), ("original", None), ("random", 2)])
def test_a_start_with_a_weight_that_is_no_number(method, heads):
    model, tokenizer = small_start()
    model.bert.encoder.layer[1].attention.self.value.weight.data[0, 0] = math.nan
    message = (
        r"^start: the model's weights must be finite numbers, found others in "
        r"bert\.encoder\.layer\.1\..*; check where"
    )
    with pytest.raises(ModelError, match=message):
        prune(model=(model, tokenizer), method=method, heads=heads, first__when="never")


def test_weights_too_large_to_compute_with_are_not_reported_as_a_score():
    model, tokenizer = small_start()
    for parameter in model.bert.encoder.layer[0].parameters():
        parameter.data *= 1e30
    message = (
        r"^evaluating: the loss on train must be a finite number, found (nan|inf): the model's "
        r"weights are finite but"
    )
    with pytest.raises(ModelError, match=message):
        prune(model=(model, tokenizer), method="original", first__when="never")


# Models that have collapsed


@pytest.mark.parametrize("metric", ["accuracy", "pearson", "spearman"])
def test_one_answer_for_every_row_is_recorded(metric):
    is_class = metric == "accuracy"
    model, tokenizer = small_start(**({} if is_class else {"num_labels": 1}))
    model.classifier.weight.data.zero_()
    task = small_task() if is_class else sentences(12, dev=6, labels=(0.0, 1.0, 2.5), metric=metric)
    result = prune(task, (model, tokenizer), method="original", first__when="never").result
    assert result["dev"]["one_class"]
    assert result["train"]["one_class"]
    assert result["dev"]["score"] == (0.5 if is_class else 0)


# Rows that tell nothing


@pytest.mark.parametrize(
    ("metric", "blind", "seeing", "num_labels"),
    [
        ("accuracy", [], [0], 2),
        ("f1", [0, 0], [0, 1], 2),
        ("f1", [], [0, 0], 3),
        ("matthews", [1, 1], [0, 1], 2),
        ("pearson", [0.5, 0.5, 0.5], [0.5, 0.25], 1),
        ("pearson", [0.5], [0.5, 0.25], 1),
        ("spearman", [3.0], [3.0, 4.0], 1),
    ],
)
def test_rows_on_which_every_model_scores_the_same(metric, blind, seeing, num_labels):
    measure, generator = get_metric(metric), torch.Generator().manual_seed(0)
    dtype = torch.float32 if measure.is_regression else torch.int64
    for labels, expected in ((blind, True), (seeing, False)):
        truth = torch.tensor(labels, dtype=dtype)
        assert measure.is_blind(truth, num_labels) is expected
        drawn = torch.randn(40, len(labels), num_labels, generator=generator)
        scores = {round(measure.compute(logits, truth).item(), 9) for logits in drawn}
        assert (scores == {0.0}) is expected, scores


@pytest.mark.parametrize(
    ("kind", "metric"), [(kind, metric) for kind in TOKEN_KINDS for metric in METRICS_OF[kind]]
)
def test_tokens_on_which_every_model_scores_the_same(kind, metric):
    rows, measure = random_kind_rows(kind, 6), get_metric(metric)
    labels, device = num_labels(kind), torch.device("cpu")
    assert not measure.is_blind(rows.truth(device), labels)
    if kind == "spans":
        blind = type(rows.targets)([[] for _ in range(6)], rows.targets.contexts)
    else:
        outside = 0 if metric == "entity_f1" else -100
        blind = type(rows.targets)(
            [[outside] * length for length in rows.lengths], rows.targets.scheme
        )
    rows = EncodedRows(rows.input_ids, None, blind)
    assert measure.is_blind(rows.truth(device), labels)
    drawn = torch.randn(10, sum(rows.lengths), labels, generator=torch.Generator().manual_seed(0))
    assert {measure.compute(logits, rows.truth(device)).item() for logits in drawn} == {0.0}


def test_a_reward_set_that_tells_no_masks_apart_is_warned_of_once(caplog):
    """Regression targets have no class, so that the reward set may be a single row."""
    messages = Messages()
    task = sentences(12, dev=3, labels=(0.0, 1.0, 2.5), metric="spearman")
    pruned = prune(task, small_start(num_labels=1), reward__max_rows=1, progress=messages)
    assert warnings_of(caplog) == [
        "layer 0: reward set: spearman needs two different targets, not to be found in 1 "
        "row, so every model scores 0 and rewards "
        "cannot tell masks apart; raise reward.fraction or reward.max_rows, or give more rows"
    ]
    assert messages.said == [
        f"layer {layer}: all 5 masks scored the same (0.0000), so the rewards do not distinguish "
        "heads"
        for layer in range(3)
    ]
    assert pruned.plan.num_heads == 0


# Heads that are all alike, and heads that are alone


@pytest.mark.parametrize("method", LAYER_WISE)
def test_a_model_of_one_head_a_layer_is_tuned_and_loses_none(method, tmp_path):
    messages = Messages()
    pruned = prune(
        model=small_start(num_attention_heads=1),
        method=method,
        progress=messages,
        out=tmp_path / "run",
    )
    assert messages.said == [
        "nothing to remove: one head must stay in each layer, and layers 0, 1, 2 had only one; "
        "the model is tuned and evaluated as it is"
    ]
    assert pruned.plan.num_heads == 0
    assert pruned.result["cost"]["rewards_asked"] == 0
    assert pruned.result["cost"]["tuning_steps"] == 4 + 4  # the first tuning and the last
    assert pruned.result["tuned_layers"] == []


def test_a_layer_of_one_head_is_passed_over_and_the_others_are_not(tmp_path):
    model, tokenizer = small_start()
    auber.remove(model, {1: [0, 1, 3]})
    messages = Messages()
    prune(model=(model, tokenizer), progress=messages, out=tmp_path / "run")
    assert (
        messages.said[0]
        == "layer 1: skipped, because one head must stay in each layer and there is only one"
    )
    searched = [
        "search" in json.loads((tmp_path / "run" / "stages" / f"layer-{layer:02}.json").read_text())
        for layer in range(3)
    ]
    assert searched == [True, False, True]


# Rows that are few


@pytest.mark.parametrize("kind", ["sequence", *TOKEN_KINDS])
def test_batches_of_one_row(kind):
    task = sentences(6) if kind == "sequence" else small_kind_task(kind, train=6, dev=2)
    model = small_start(kind=kind, num_labels=task.num_labels)
    one = dict.fromkeys(("first__batch_size", "layer__batch_size", "last__batch_size"), 1)
    result = prune(task, model, last__watch_fraction=0.5, **one).result
    assert math.isfinite(result["dev"]["loss"])
    assert result["cost"]["tuning_steps"] >= 2 * 6 + 2 * 3


def test_fewer_rows_than_a_batch_make_one_step_an_epoch():
    result = prune(sentences(6), method="original+tuning", last__watch_fraction=0.5).result
    assert result["cost"]["tuning_steps"] == 2 + 3 * 1 + 2


def test_one_row_of_each_class_is_enough_where_the_settings_let_it():
    few = {"reward__fraction": 1.0, "last__watch_fraction": 0.5}
    assert prune(sentences(2, dev=1), **few).result["rows"] == {"train": 2, "dev": 1}


@pytest.mark.parametrize(
    ("count", "changes", "message"),
    [
        (
            2,
            {},
            "train, rows to watch: at least one row is needed, there would be none; "
            "raise last.watch_fraction or give more rows",
        ),
        (
            2,
            {"last__watch_fraction": 0.5},
            "reward set: at least one row of each of the 2 classes is needed, it would have "
            "1 of 2 rows; raise reward.fraction",
        ),
        (
            4,
            {"protocol": "heldout"},
            "reward set: .* it would have 1 of 4 rows; choose protocol seen or give more rows",
        ),
        (
            20,
            {"reward__max_rows": 1},
            "reward set: .* reward.max_rows allows 1; raise it",
        ),
    ],
)
def test_too_few_rows_are_refused_before_anything_is_computed(count, changes, message, monkeypatch):
    monkeypatch.setattr("auber.run.tunings.tune", None)
    with pytest.raises(TaskError, match=f"^{message}"):
        prune(sentences(count, dev=1), **changes)
