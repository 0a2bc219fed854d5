"""`prune`, `finetune` and `evaluate` on a tiny model."""

from __future__ import annotations

import json

import pytest
import torch

import auber
from auber.config import make_config
from auber.data.encoding import encode_rows
from auber.data.generated import build_tokenizer
from auber.errors import CheckpointError, ConfigError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.training.evaluation import predict
from tests.small import SETTINGS, Messages, small_config, small_start, small_task
from tests.tiny_models import tiny_model

TASK = small_task()
CONFIG = small_config()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A fine-tuned start that several prunings share."""
    folder = tmp_path_factory.mktemp("runs") / "start"
    auber.finetune(*small_start(), task=TASK, config=CONFIG, out=folder)
    return folder


@pytest.fixture(scope="module")
def pruned(start):
    folder = start.parent / "auber"
    return folder, auber.prune(start, task=TASK, config=CONFIG, out=folder)


def prune(start, method="auber", **arguments):
    return auber.prune(start, **{"task": TASK, "method": method, "config": CONFIG, **arguments})


def read(path):
    return json.loads(path.read_text())


def test_a_run_leaves_a_model_that_scores_what_it_reports(pruned):
    folder, outcome = pruned
    result = read(folder / "result.json")
    assert result == json.loads(json.dumps(outcome.result))
    assert result["heads"]["removed"] == outcome.plan.num_heads
    assert read(folder / "plan.json") == outcome.plan.to_json()
    scores = auber.evaluate(folder, task=TASK, config=CONFIG)
    assert scores.score == result["dev"]["score"]
    assert scores.loss == pytest.approx(result["dev"]["loss"], abs=1e-6)
    rows = encode_rows(auber.load_tokenizer(folder / "model"), TASK.dev, 24, False)
    loaded = auber.load(folder / "model")
    assert torch.equal(predict(loaded, rows), predict(outcome.model, rows))


def test_dev_is_evaluated_once(pruned):
    lines = (pruned[0] / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines].count("dev_evaluation") == 1


def test_the_result_describes_the_run(pruned):
    folder, outcome = pruned
    result, cost = outcome.result, outcome.result["cost"]
    assert (result["method"], result["protocol"], result["seed"]) == ("auber", "seen", 0)
    assert (result["model"], result["labels"]) == ("BertForSequenceClassification", 2)
    assert result["rows"] == {"train": 60, "dev": 24}
    assert result["gap"] == pytest.approx(result["train"]["score"] - result["dev"]["score"])
    assert cost["rewards_asked"] >= cost["rewards_computed"] > 0
    assert cost["rewards_computed"] == len((folder / "scores.jsonl").read_text().splitlines())
    assert result["tuned_layers"] == [
        layer for layer in range(3) if outcome.plan.heads.get(layer, ())
    ]
    assert result["config"]["agent.episodes"] == 6
    assert result["provenance"]["versions"]["torch"] == torch.__version__
    assert len(read(folder / "splits.json")["layers"]) == 3


def test_random_matches_another_run(pruned, start):
    folder, outcome = pruned
    matched = prune(start, "random", heads=folder)
    assert matched.plan.num_heads == outcome.plan.num_heads
    assert matched.result["tuned_layers"] == outcome.result["tuned_layers"]
    assert matched.result["cost"]["tuning_steps"] > 0
    assert matched.result["cost"]["rewards_asked"] == 0
    assert all(len(heads) < 4 for heads in matched.plan.heads.values())


def test_the_controls_remove_nothing(pruned, start):
    folder, outcome = pruned
    original = prune(start, "original")
    assert original.plan.num_heads == original.result["cost"]["tuning_steps"] == 0
    assert original.result["dev"] == read(start / "result.json")["dev"]
    control = prune(start, "original+tuning", heads=folder)
    assert control.plan.num_heads == 0
    assert control.result["tuned_layers"] == outcome.result["tuned_layers"]


def test_a_live_model_is_not_changed():
    model, tokenizer = small_start()
    before = checkpoint.weights_digest(model)
    rows = [{"text": f"the key is {word}", "label": word} for word in ("good", "bad") * 10]
    task = auber.make_task(rows, rows[:6])
    found = prune(model, tokenizer=tokenizer, task=task, config=small_config(agent__episodes=2))
    assert checkpoint.weights_digest(model) == before
    assert type(found.model) is type(model)


def test_a_pruned_model_can_be_pruned_again(pruned):
    folder, outcome = pruned
    config = small_config(last__epochs=0)
    again = prune(str(folder / "model"), "random", heads=1, config=config)
    assert again.plan.num_heads == outcome.plan.num_heads + 1 > 1
    assert all(
        {*heads} <= {*again.plan.heads.get(layer, ())}
        for layer, heads in outcome.plan.heads.items()
    )


def test_without_a_method_heads_and_neurons_go_to_a_half(start):
    settings = {key: SETTINGS[key] for key in ("threads", "max_length", "last.epochs")}
    settings |= {"first.require_learned": False, "last.learning_rate": 1e-3}
    messages = Messages()
    found = prune(start, None, config=make_config(settings=settings), progress=messages)
    assert found.result["method"] == "fisher"
    assert 0.45 < found.result["after"]["multiply_adds"] <= 0.5
    assert found.plan.heads
    assert found.plan.neurons
    assert messages.said[0] == (
        "no size was given, so half of the multiply-adds are kept (keep 0.5)"
    )


def test_a_live_model_needs_its_tokenizer():
    for call in (auber.prune, auber.finetune, auber.evaluate):
        with pytest.raises(ConfigError, match="a live model needs its tokenizer"):
            call(small_start()[0], task=TASK, config=CONFIG)


def long_rows():
    """Return rows of which the last is longer than a tiny model has positions."""
    rows = [{"text": f"the key is {word}", "label": word} for word in ("good", "bad") * 10]
    return [*rows, {"text": "the key " * 100, "label": "good"}]


def test_rows_must_fit_the_positions_of_the_model():
    model, tokenizer = small_start()
    most = encoder_of(model).most_tokens
    given = {"task": auber.make_task(long_rows()[:-1], long_rows())}
    message = (
        rf"^task own: a dev row has 202 tokens and BertForSequenceClassification positions for "
        rf"{most}; set max_length={most}$"
    )
    long = {**given, "config": small_config(max_length=512)}
    for call, more in (
        (auber.prune, {"method": "random", "heads": 1}),
        (auber.finetune, {}),
        (auber.evaluate, {}),
    ):
        with pytest.raises(ConfigError, match=message):
            call(model, tokenizer, **long, **more)
    auber.evaluate(model, tokenizer, **given, config=small_config(max_length=most))
    auber.evaluate(model, tokenizer, **long, split="train")  # all its rows are short


@pytest.mark.parametrize("model_type", ["modernbert", "deberta-v2"])
def test_relative_positions_have_no_limit(model_type):
    assert encoder_of(tiny_model(model_type)).most_tokens is None


def test_labels_in_another_order_are_refused(tmp_path):
    model, tokenizer = small_start()
    names = TASK.label_names
    model.config.id2label = dict(enumerate(reversed(names)))
    checkpoint.save(model, tokenizer, tmp_path / "model")
    order = (
        rf": its classifier orders the labels {names[1]}, {names[0]}, the task {names[0]}, "
        rf"{names[1]}; .*\(labels {names[1]},{names[0]}\)$"
    )
    with pytest.raises(CheckpointError, match=f"^{tmp_path / 'model'}{order}"):
        auber.evaluate(tmp_path / "model", task=TASK, config=CONFIG)
    with pytest.raises(CheckpointError, match=f"^the live BertForSequenceClassification{order}"):
        auber.evaluate(model, tokenizer, task=TASK, config=CONFIG)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_labels": 3},
            "trained classifier has 3 labels, the task has 2; choose the task it was trained on",
        ),
        (
            {"vocab_size": 20},
            "tokenizer has 59 tokens, its model 20; use the tokenizer the model was trained with",
        ),
    ],
)
def test_a_live_model_must_fit_the_task(changes, message):
    model = tiny_model("bert", **{"vocab_size": 59, "pad_token_id": 0, **changes})
    for call in (auber.prune, auber.finetune, auber.evaluate):
        with pytest.raises(
            CheckpointError, match=f"^the live BertForSequenceClassification: its {message}"
        ):
            call(model, build_tokenizer(), task=TASK, config=CONFIG)


def test_a_live_model_is_tuned_in_float32_as_its_folder_is(tmp_path):
    dtype = torch.bfloat16
    model, tokenizer = small_start()
    model.to(dtype)
    checkpoint.save(model, tokenizer, tmp_path / "model")
    config = small_config(first__when="always", first__epochs=1)
    live, stored = (
        auber.finetune(*given, task=TASK, config=config)
        for given in ((model, tokenizer), (tmp_path / "model",))
    )
    assert model.dtype == dtype
    assert live.model.dtype == torch.float32
    assert live.result["dev"] == stored.result["dev"]
    assert checkpoint.weights_digest(live.model) == checkpoint.weights_digest(stored.model)
    assert live.model.config.id2label == dict(enumerate(TASK.label_names))


@pytest.mark.parametrize("is_live", [True, False])
def test_classes_with_other_names_are_matched_with_one_warning(is_live, tmp_path, caplog):
    model, tokenizer = small_start()
    model.config.id2label = {0: "bad", 1: "good"}
    checkpoint.save(model, tokenizer, tmp_path / "model")
    given = (model, tokenizer) if is_live else (tmp_path / "model",)
    auber.evaluate(*given, task=TASK, config=CONFIG)
    config = small_config(agent__episodes=1, last__epochs=0, layer__epochs=0)
    auber.prune(*given, task=TASK, method="greedy", config=config, out=tmp_path / "run")
    name = "BertForSequenceClassification"
    names = [f"the live {name}", name] if is_live else [tmp_path / "model", "model"]
    words = (
        f"its classes are bad, good, the task's {', '.join(TASK.label_names)}; they are matched "
        f"in this order"
    )
    found = [record.getMessage() for record in caplog.records if "classes" in record.getMessage()]
    assert found == [f"{each}: {words}" for each in names]
    caplog.clear()
    auber.evaluate(tmp_path / "run", task=TASK, config=CONFIG)
    assert "classes" not in caplog.text, "the run's model has the task's names"
