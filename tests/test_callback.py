"""Prune at the end of a Trainer script: the trainer's model becomes the result."""

from __future__ import annotations

import copy
import functools
import json
import re

import pytest
import torch
from transformers import Trainer, TrainingArguments

import auber
from auber.data.encoding import encode_split, pad_batch
from auber.data.task_types import TASK_TYPES
from auber.data.user_rows import make_task
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.remote_code import MODELING_FILE, modeling_auber
from auber.training.evaluation import evaluate_rows, predict
from tests.kinds import TOKEN_KINDS, small_kind_task
from tests.run.test_fold_models import SETTINGS as CROSSFIT
from tests.small import small_config, small_start, small_task
from tests.tiny_models import tiny_model

pytestmark = pytest.mark.usefixtures("young_garbage")  # a Trainer collects whenever it begins

LABELS = {"id2label": {0: "wrong", 1: "right"}, "label2id": {"wrong": 0, "right": 1}}


def tokenised(rows, tokenizer):
    encoded = tokenizer(list(rows.first), truncation=True, max_length=24)
    return [
        {"input_ids": ids, "label": label}
        for ids, label in zip(encoded["input_ids"], rows.labels, strict=True)
    ]


def make_trainer(folder, callback, model=None, **changes):
    task = small_task()
    start, tokenizer = small_start(
        **{key: value for key, value in changes.items() if key in LABELS}
    )
    arguments = TrainingArguments(
        folder / "trainer",
        max_steps=2,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        **{
            key: value for key, value in changes.items() if key not in (*LABELS, "processing_class")
        },
    )
    return Trainer(
        model or start,
        arguments,
        train_dataset=tokenised(task.train, tokenizer),
        eval_dataset=tokenised(task.dev, tokenizer),
        processing_class=changes.get("processing_class", tokenizer),
        callbacks=[callback],
    )


@pytest.fixture
def callback(tmp_path):
    return auber.AuberCallback(
        task=small_task(), method="random", heads=3, config=small_config(), out=tmp_path / "run"
    )


@torch.no_grad()
def logits_of(model, batch):
    return model.eval()(**batch).logits


@pytest.mark.parametrize("precision", [{}, {"bf16": True}], ids=["float32", "bfloat16"])
def test_the_trainers_model_becomes_the_pruned_one(tmp_path, callback, precision):
    trainer = make_trainer(tmp_path, callback, **precision)
    model = trainer.model
    trainer.train()
    assert trainer.model is model
    pruned = callback.pruned
    assert pruned.plan.num_removed == 3
    assert encoder_of(model).removed == pruned.plan
    assert checkpoint.weights_digest(model) == checkpoint.weights_digest(pruned.model)
    # the trainer goes on with it, and so does whoever loads what either has written
    tolerance = (
        0.05 if precision else 1e-5
    )  # the trainer's own forward is still the one it asked for
    assert trainer.evaluate()["eval_loss"] == pytest.approx(
        pruned.result["dev"]["loss"], abs=tolerance
    )
    trainer.save_model(tmp_path / "saved")
    assert (tmp_path / "saved" / MODELING_FILE.name).is_file()
    entries = json.loads((tmp_path / "saved" / "config.json").read_text())["auto_map"]
    assert {"AutoModel", "AutoModelForSequenceClassification"} <= set(entries)
    batch = trainer.processing_class(
        list(small_task().dev.first[:5]), padding=True, return_tensors="pt"
    )
    expected = logits_of(pruned.model, batch)
    torch.testing.assert_close(logits_of(model, batch), expected, atol=tolerance, rtol=0)
    for folder in ("saved", "run/model"):
        assert torch.equal(logits_of(checkpoint.load(tmp_path / folder), batch), expected)
        remote = modeling_auber.BertForSequenceClassification.from_pretrained(tmp_path / folder)
        assert torch.equal(logits_of(remote, batch), expected)


def kind_trainer(folder, callback, kind):
    """Return a Trainer for tags or answers: encoded rows and a collator."""
    task = callback.task
    names = None if task.label_names is None else dict(enumerate(task.label_names))
    labels = {"num_labels": task.num_labels} | ({"id2label": names} if names else {})
    model, tokenizer = small_start(kind=kind, **labels)
    arguments = TrainingArguments(
        folder / "trainer",
        max_steps=2,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    rows = {split: encode_split(tokenizer, task, split, 24) for split in ("train", "dev")}
    return Trainer(
        model,
        arguments,
        train_dataset=rows["train"],
        eval_dataset=rows["dev"],
        data_collator=functools.partial(pad_batch, pad_token_id=tokenizer.pad_token_id),
        processing_class=tokenizer,
        callbacks=[callback],
    )


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_taggers_and_models_that_find_answers(kind, tmp_path):
    callback = auber.AuberCallback(
        task=small_kind_task(kind),
        method="random",
        heads=3,
        config=small_config(),
        out=tmp_path / "run",
    )
    trainer = kind_trainer(tmp_path, callback, kind)
    model = trainer.model
    trainer.train()
    pruned = callback.pruned
    assert trainer.model is model
    assert encoder_of(model).removed == pruned.plan
    assert pruned.plan.num_removed == 3
    assert checkpoint.weights_digest(model) == checkpoint.weights_digest(pruned.model)
    rows = encode_split(trainer.processing_class, callback.task, "dev", 24)
    assert evaluate_rows(model, rows, callback.task.metric).score == pruned.result["dev"]["score"]
    assert trainer.evaluate()["eval_loss"] > 0  # the trainer goes on with it
    trainer.save_model(tmp_path / "saved")
    entries = json.loads((tmp_path / "saved" / "config.json").read_text())["auto_map"]
    assert TASK_TYPES[kind].auto_class in entries
    for folder in ("saved", "run/model"):
        remote = getattr(modeling_auber, type(model).__name__).from_pretrained(tmp_path / folder)
        for loaded in (checkpoint.load(tmp_path / folder), remote):
            assert torch.equal(predict(loaded, rows), predict(pruned.model, rows))


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_model_of_another_kind_is_noticed(kind, tmp_path):
    callback = auber.AuberCallback(task=small_kind_task(kind), config=small_config())
    assert_refused(
        make_trainer(tmp_path, callback),
        rf"^task own: is of kind {kind} and needs a model \.\.\.{TASK_TYPES[kind].ending}, "
        rf"found BertForSequenceClassification; "
        rf"give a model of that kind \({TASK_TYPES[kind].auto_class}\)$",
    )


def test_tags_in_another_order_are_noticed(tmp_path):
    callback = auber.AuberCallback(task=small_kind_task("tokens"), config=small_config())
    trainer = kind_trainer(tmp_path, callback, "tokens")
    trainer.model.config.id2label = dict(enumerate(reversed(callback.task.label_names)))
    assert_refused(
        trainer,
        r"BertForTokenClassification: its classifier orders the labels .*; give the task "
        r"that order \(--labels .*\)$",
    )


def test_what_was_trained_is_what_is_pruned(tmp_path, callback, monkeypatch):
    """The search starts from the trainer's weights, and from no further first tuning."""
    trainer = make_trainer(tmp_path, callback)
    seen = {}

    def look(model, tokenizer, **options):
        seen.update(options, weights=checkpoint.weights_digest(model), tokenizer=tokenizer)
        return auber.Pruned(model, tokenizer, auber.PruningPlan(), {})

    monkeypatch.setattr("auber.callback.prune", look)
    before = checkpoint.weights_digest(trainer.model)
    trainer.train()
    assert seen["weights"] == checkpoint.weights_digest(trainer.model) != before
    assert (seen["method"], seen["heads"], seen["out"]) == ("random", 3, tmp_path / "run")
    assert seen["task"] == small_task()
    assert type(trainer.model).__module__.startswith("transformers.")  # nothing was removed


def test_a_tasks_name_is_enough(monkeypatch):
    monkeypatch.setattr("auber.callback.load_task", lambda name: {"agreement": small_task()}[name])
    assert auber.AuberCallback(task="agreement").task == small_task()


def test_mistakes_show_when_the_callback_is_made():
    task = small_task()
    with pytest.raises(auber.AuberError, match=r"^Unknown method 'rondom'. Did you mean 'random'"):
        auber.AuberCallback(task=task, method="rondom")
    with pytest.raises(auber.AuberError, match=r"^Unknown preset 'papre'. Did you mean 'paper'"):
        auber.AuberCallback(task=task, config="papre")
    message = (
        r"^AuberCallback: protocol must be seen or crossfit, found heldout: the trainer has "
        r"tuned on the rows to hold out; leave the"
    )
    with pytest.raises(auber.AuberError, match=message):
        auber.AuberCallback(task=task, config=small_config(protocol="heldout"))


FOLD_MODELS = small_config(**{**CROSSFIT, "reward__head": 1.0})


@pytest.mark.parametrize("precision", [{}, {"bf16": True}], ids=["float32", "bfloat16"])
def test_fold_models_are_trained_from_the_model_before_the_training(tmp_path, precision):
    callback = auber.AuberCallback(task=small_task(), config=FOLD_MODELS, out=tmp_path / "run")
    trainer = make_trainer(tmp_path, callback, **precision)
    before = copy.deepcopy(trainer.model)
    trainer.train()
    assert callback.pruned.plan.num_removed > 0
    assert encoder_of(trainer.model).removed == callback.pruned.plan
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["origin"] == checkpoint.weights_digest(before) != record["weights"]
    assert callback.pruned.result["cost"]["scout_steps"] > 0


def test_a_resumed_training_has_no_model_from_before(tmp_path):
    first = make_trainer(
        tmp_path, auber.AuberCallback(task=small_task(), method="original", config=small_config())
    )
    first.args.save_strategy = "steps"
    first.args.save_steps = 1
    first.train()
    callback = auber.AuberCallback(task=small_task(), config=FOLD_MODELS, out=tmp_path / "run")
    message = (
        r"^AuberCallback: the training goes on after step 1, and fold models are trained from "
        r"the model before the first; give config="
    )
    with pytest.raises(auber.AuberError, match=message):
        make_trainer(tmp_path, callback).train(
            resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-1")
        )
    assert not (tmp_path / "run").exists()


def assert_refused(trainer, message):
    before = (
        checkpoint.weights_digest(trainer.model) if hasattr(trainer.model, "classifier") else None
    )
    with pytest.raises(auber.AuberError, match=message):
        trainer.train()
    if before is not None:
        assert checkpoint.weights_digest(trainer.model) == before  # not a step was taken


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "random"},
            "^method 'random' must be given the number of heads to remove; give --heads P",
        ),
        (
            {"method": "random", "heads": 100},
            r"^--heads must be from 0 to 9 \(one head stays in each layer\), found 100",
        ),
        ({"heads": 99, "config": small_config(**CROSSFIT)}, "^search.heads must be from 0 to 9"),
        (
            {"config": small_config(**CROSSFIT, reward__shards=2)},
            "^reward.shards must be 1 under protocol crossfit, where each fold model has its "
            "own rows, found 2",
        ),
        (
            {"config": small_config(**CROSSFIT, first__when="always")},
            "^first.when must be auto or never for a model that is trained already, found always$",
        ),
        (
            {"config": small_config(search__layers="9")},
            "^search.layers must name layers of the model, which has 3",
        ),
    ],
)
def test_a_model_that_cannot_be_pruned_is_not_trained(tmp_path, options, message):
    callback = auber.AuberCallback(
        **{"task": small_task(), "config": small_config(), "out": tmp_path / "run", **options}
    )
    assert_refused(make_trainer(tmp_path, callback), message)


def test_mistakes_show_before_the_training(tmp_path, callback, monkeypatch):
    assert_refused(
        make_trainer(tmp_path, callback, processing_class=None),
        r"^AuberCallback: needs the tokenizer; give Trainer\(processing_class=tokenizer\)$",
    )
    assert_refused(
        make_trainer(tmp_path, callback, tiny_model(num_labels=3)),
        r"^the trainer's BertForSequenceClassification: its trained classifier has 3 labels, "
        r"the task has 2; choose the task",
    )
    assert_refused(
        make_trainer(tmp_path, callback, tiny_model(bare=True)),
        r"^BertModel has no classifier; fine-tune it first, or load it as "
        r"\.\.\.ForSequenceClassification or ",
    )
    assert_refused(
        make_trainer(tmp_path, callback, tiny_model(kind="tokens")),
        r"^task agreement: is of kind sequence and needs a model .*, found "
        r"BertForTokenClassification; give a model of that kind",
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("")
    assert_refused(
        make_trainer(tmp_path, callback),
        re.escape(f"{tmp_path / 'run'}: must be a new or an empty folder; choose another"),
    )
    (tmp_path / "run" / "run.json").write_text("{}")
    assert_refused(
        make_trainer(tmp_path, callback),
        re.escape(f"{tmp_path / 'run'}: holds a run already; give AuberCallback another out"),
    )
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    trainer = make_trainer(tmp_path, callback)
    with pytest.raises(
        auber.AuberError,
        match=r"^AuberCallback: the trainer must run in one process, found 2; save the",
    ):
        callback.on_train_begin(
            trainer.args,
            trainer.state,
            trainer.control,
            model=trainer.model,
            processing_class=trainer.processing_class,
        )


def test_labels_in_another_order_are_noticed(tmp_path):
    rows = [{"text": "the film is good", "label": "right"}, {"text": "bad", "label": "wrong"}]
    task = make_task(rows, rows[:1])  # counts its classes in sorted order: right, wrong
    callback = auber.AuberCallback(task=task, config=small_config())
    assert_refused(
        make_trainer(tmp_path, callback, **LABELS),
        r"its classifier orders the labels wrong, right, the task right, wrong; give the "
        r"task that order \(--labels .*\)$",
    )
