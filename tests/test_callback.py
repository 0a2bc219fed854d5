"""Prune at the end of a Trainer script: the trainer's model becomes the result."""

from __future__ import annotations

import copy
import functools
import json

import pytest
import torch
from transformers import Trainer, TrainingArguments

import auber
from auber.data.encoding import encode_split, pad_batch
from auber.data.task_types import TASK_TYPES
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.remote_code import MODELING_FILE, modeling_auber
from auber.training.evaluation import evaluate_rows, predict
from tests.kinds import TOKEN_KINDS, small_kind_task
from tests.run.test_fold_models import SETTINGS as CROSSFIT
from tests.small import small_config, small_start, small_task
from tests.tiny_models import tiny_model

pytestmark = pytest.mark.usefixtures("young_garbage")  # a Trainer collects whenever it begins


def make_trainer(folder, callback, model=None, *, kind="sequence", tokenizer=True, **changes):
    """Return a Trainer with encoded rows and a collator."""
    task = small_task() if kind == "sequence" else small_kind_task(kind)
    names = {} if task.label_names is None else {"id2label": dict(enumerate(task.label_names))}
    names = {} if kind == "sequence" else {"num_labels": task.num_labels, **names}
    start, made = small_start(kind=kind, **names)
    arguments = TrainingArguments(
        folder / "trainer",
        max_steps=2,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        **changes,
    )
    return Trainer(
        model or start,
        arguments,
        train_dataset=encode_split(made, task, "train", 24),
        eval_dataset=encode_split(made, task, "dev", 24),
        data_collator=functools.partial(pad_batch, pad_token_id=made.pad_token_id),
        processing_class=made if tokenizer else None,
        callbacks=[callback],
    )


def random_callback(folder, task):
    return auber.AuberCallback(
        task=task, method="random", heads=3, config=small_config(), out=folder / "run"
    )


@pytest.mark.parametrize(
    ("kind", "precision"),
    [("sequence", {}), ("sequence", {"bf16": True}), *((kind, {}) for kind in TOKEN_KINDS)],
    ids=str,
)
def test_the_trainers_model_becomes_the_pruned_one(tmp_path, kind, precision):
    task = small_task() if kind == "sequence" else small_kind_task(kind)
    callback = random_callback(tmp_path, task)
    trainer = make_trainer(tmp_path, callback, kind=kind, **precision)
    model = trainer.model
    trainer.train()
    assert trainer.model is model
    pruned = callback.pruned
    assert pruned.plan.num_heads == 3
    assert encoder_of(model).removed == pruned.plan
    assert checkpoint.weights_digest(model) == checkpoint.weights_digest(pruned.model)
    # The trainer's own forward still has the precision it asked for.
    tolerance = 0.05 if precision else 1e-5
    dev = pruned.result["dev"]
    loss = trainer.evaluate()["eval_loss"]
    if kind == "sequence":  # elsewhere the Trainer weights each batch by its rows, not its words
        assert loss == pytest.approx(dev["loss"], abs=tolerance)
    rows = encode_split(trainer.processing_class, task, "dev", 24)
    assert evaluate_rows(model, rows, task.metric).score == pytest.approx(
        dev["score"], abs=tolerance
    )
    trainer.save_model(tmp_path / "saved")
    assert (tmp_path / "saved" / MODELING_FILE.name).is_file()
    entries = json.loads((tmp_path / "saved" / "config.json").read_text())["auto_map"]
    assert {"AutoModel", TASK_TYPES[kind].auto_class} <= set(entries)
    expected = predict(pruned.model, rows)
    torch.testing.assert_close(predict(model, rows), expected, atol=tolerance, rtol=0)
    for folder in ("saved", "run/model"):
        remote = getattr(modeling_auber, type(model).__name__).from_pretrained(tmp_path / folder)
        for loaded in (checkpoint.load(tmp_path / folder), remote):
            assert torch.equal(predict(loaded, rows), expected)


def test_the_trainers_model_gets_a_target_size(tmp_path):
    options = {"method": "fisher", "config": small_config()}
    callback = auber.AuberCallback(task=small_task(), keep=0.5, **options)
    trainer = make_trainer(tmp_path, callback)
    trainer.train()
    assert callback.pruned.plan.neurons
    assert encoder_of(trainer.model).removed == callback.pruned.plan
    rows = encode_split(trainer.processing_class, small_task(), "dev", 24)
    expected = predict(callback.pruned.model, rows)
    torch.testing.assert_close(predict(trainer.model, rows), expected, atol=1e-5, rtol=0)
    with pytest.raises(
        auber.AuberError, match="^AuberCallback: several sizes need a folder, found none"
    ):
        auber.AuberCallback(task=small_task(), keep=[0.8, 0.5], **options)


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


def test_fold_models_are_trained_from_the_model_before_the_training(tmp_path):
    callback = auber.AuberCallback(task=small_task(), config=FOLD_MODELS, out=tmp_path / "run")
    trainer = make_trainer(tmp_path, callback, bf16=True)
    before = copy.deepcopy(trainer.model)
    trainer.train()
    assert callback.pruned.plan.num_heads > 0
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
        r"^AuberCallback: training resumes after step 1, and fold models are trained from the "
        r"model before the first step; give config="
    )
    with pytest.raises(auber.AuberError, match=message):
        make_trainer(tmp_path, callback).train(
            resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-1")
        )
    assert not (tmp_path / "run").exists()


def assert_refused(trainer, message):
    before = copy.deepcopy(trainer.model.state_dict())
    with pytest.raises(auber.AuberError, match=message):
        trainer.train()
    after = trainer.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in after), "not a step was taken"


# fmt: off
REFUSED = [
    ({"method": "confidence"}, {},
     "method 'confidence' must be given what to remove; give keep SHARE, heads P"),
    ({"config": small_config(**CROSSFIT, reward__shards=2)}, {},
     "reward.shards must be 1 under protocol crossfit, where each fold model has its own rows, "
     "found 2"),
    ({"config": small_config(**CROSSFIT, first__when="always")}, {},
     "first.when must be auto or never for a model that is trained already, found always$"),
    ({}, {"num_labels": 3}, "the trainer's BertForSequenceClassification: its trained classifier"),
    ({}, {"bare": True}, "task agreement: is of kind sequence and needs a model .*, found BertM"),
    ({}, {"kind": "tokens"}, "task agreement: is of kind sequence and needs a model .*, found "),
]
# fmt: on


@pytest.mark.parametrize(("options", "model", "message"), REFUSED)
def test_a_model_that_cannot_be_pruned_is_not_trained(tmp_path, options, model, message):
    given = {"task": small_task(), "config": small_config(), "out": tmp_path / "run", **options}
    callback = auber.AuberCallback(**given)
    trainer = make_trainer(tmp_path, callback, tiny_model(**model) if model else None)
    assert_refused(trainer, f"^{message}")


def test_mistakes_show_before_the_training(tmp_path, monkeypatch):
    callback = random_callback(tmp_path, small_task())
    assert_refused(
        make_trainer(tmp_path, callback, tokenizer=False),
        r"^AuberCallback: needs the tokenizer; give Trainer\(processing_class=tokenizer\)$",
    )
    (tmp_path / "run").mkdir()
    for name, message in (
        ("mine.txt", "must be a new or an empty folder; choose another"),
        ("run.json", "holds a run already; give AuberCallback another folder \\(out\\)"),
    ):
        (tmp_path / "run" / name).write_text("{}")
        assert_refused(make_trainer(tmp_path, callback), rf"^{tmp_path}/run: {message}")
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    trainer = make_trainer(tmp_path, callback)
    given = {"model": trainer.model, "processing_class": trainer.processing_class}
    message = r"^AuberCallback: the trainer must run in one process, found 2; save the"
    with pytest.raises(auber.AuberError, match=message):
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, **given)


def test_texts_without_labels(tmp_path):
    """The trained model is pruned to its own answers, under crossfit too."""
    texts = auber.make_texts([{"text": text} for text in small_task(120).train.first])
    callback = auber.AuberCallback(
        task=texts, method="auber", config=small_config(**CROSSFIT), out=tmp_path / "run"
    )
    trainer = make_trainer(tmp_path, callback)
    trainer.train()
    result = callback.pruned.result
    assert result["answered"]
    assert result["before"]["score"] == 1
    assert encoder_of(trainer.model).removed == callback.pruned.plan
