"""Pruning without labels: the unpruned model's answers, what a run does with them, and errors."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from safetensors.torch import save

import auber
from auber.cli.screen import describe_result
from auber.data.generated import build_tokenizer, make_agreement, vocabulary
from auber.errors import AuberError, ConfigError, ModelError, RunError
from auber.run import answers, steps
from auber.run.folder import Run
from auber.run.tunings import Tunings
from auber.search.stages import ANSWERS
from auber.training.distillation import Teacher
from tests.kinds import question_records, tagged_records
from tests.run.test_fold_models import SETTINGS as CROSSFIT
from tests.small import Messages, small_config
from tests.tiny_models import tiny_model

CONFIG = small_config()
SENTENCES = make_agreement(0, 200, 24).train.first
RECORDS = [{"text": text, "of": f"group {row // 5}"} for row, text in enumerate(SENTENCES)]
TEXTS = auber.make_texts(RECORDS)
LABELS = {"sequence": 3, "number": 1, "tokens": 3, "spans": 2, "embeddings": 1}


def start(kind="sequence", **changes):
    changes = {"num_labels": LABELS[kind], **changes}
    if kind == "tokens":
        changes["id2label"] = {0: "O", 1: "B-X", 2: "I-X"}
    kind = "sequence" if kind == "number" else kind
    model = tiny_model("bert", kind=kind, vocab_size=len(vocabulary()), pad_token_id=0, **changes)
    return model, build_tokenizer()


def texts_of(kind):
    if kind == "tokens":
        return auber.make_texts(tagged_records(300, 0), text="tokens")
    if kind == "spans":
        return auber.make_texts(question_records(200, 0), text=("question", "context"))
    return TEXTS


def prune(folder, kind="sequence", texts=None, config=CONFIG, **options):
    return auber.prune(
        *start(kind),
        task=texts or texts_of(kind),
        **{"method": "fisher", "keep": 0.8, **options},
        config=config,
        out=folder,
    )


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [
        ("sequence", ["accuracy", "explained"]),
        ("number", ["spearman", "r_squared"]),
        ("tokens", ["entity_f1", "token_accuracy", "tag_explained"]),
        ("spans", ["span_f1", "span_exact"]),
        ("embeddings", ["pair_spearman", "cosine"]),
    ],
)
def test_the_score_is_the_agreement(tmp_path, kind, metrics):
    pruned = prune(tmp_path / "run", kind)
    result = pruned.result
    assert (result["metric"], result["answered"]) == (metrics[0], True)
    found = result["agreement"]["metrics"]
    assert list(found) == metrics
    assert found[metrics[0]] == result["dev"]["score"] == result["after"]["score"]
    assert result["before"]["score"] == pytest.approx(1)
    assert 0.3 < result["dev"]["score"] <= 1
    assert result["rows"]["dev"] == pytest.approx(0.2 * len(texts_of(kind)), abs=2)
    assert {path.name for path in (tmp_path / "run" / "stages").iterdir()} == {
        f"{name}.json" for name in (ANSWERS, "first", "plan", "last")
    }
    measure = "agreement" if kind == "sequence" else metrics[0]
    lines = describe_result(result)
    assert lines[0].startswith(f"dev {measure} with the unpruned model ")
    assert any(line.startswith("agreement with the unpruned model: ") for line in lines)
    score = f"{100 * found[metrics[0]]:.1f}"
    assert f", dev {measure} with the unpruned model is {score} on " in lines[-1]


@pytest.mark.parametrize("change", [{"teacher.hidden": 1.0}, {"teacher.copies": 1}])
def test_tuning_brings_a_number_closer(tmp_path, change):
    """With hidden states or copies, the unpruned model is run."""
    losses = []
    for epochs in (0, 12):
        config = CONFIG.replace({"last.epochs": epochs, "last.watch_fraction": 0.0, **change})
        result = prune(tmp_path / str(epochs), "number", config=config).result
        losses.append(result["train"]["loss"])
    assert losses[1] < 0.8 * losses[0]


@pytest.mark.parametrize("hidden", [0.0, 0.5])
def test_a_pruned_model_learns_from_the_stored_answers(tmp_path, monkeypatch, hidden):
    """The unpruned model is only run for its hidden states."""
    made = []

    def make(model, settings, hardware):
        made.append((model is not None, settings.outputs, settings.hidden))
        return Teacher(model, settings, hardware)

    monkeypatch.setattr(steps, "Teacher", make)
    prune(tmp_path / "run", config=CONFIG.replace({"teacher.hidden": hidden}))
    assert made == [(hidden > 0, 1.0, hidden)]


def test_the_orders_of_groups(tmp_path):
    texts = auber.make_texts(RECORDS, group="of")
    result = prune(tmp_path / "run", "number", texts).result
    orders = result["agreement"]["orders"]
    assert orders["groups"] == 8
    assert 0 < orders["same_first"] <= 1
    assert 0.5 < orders["low_ndcg"] <= orders["ndcg"] < 1
    line = next(line for line in describe_result(result) if "NDCG" in line)
    assert f"within 8 groups: same first row in {100 * orders['same_first']:.1f} %" in line


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return prune(folder, "number")


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """The folder of a run that was stopped between the answers and the tuning."""

    def stop(*_, **__):
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(Tunings, "last", stop)
        with pytest.raises(StoppedError):
            prune(tmp_path / "run", "number")
    assert (tmp_path / "run" / "stages" / "answers.safetensors").is_file()
    return tmp_path / "run"


def test_a_resumed_run_reads_the_answers(stopped, whole, monkeypatch):
    monkeypatch.setattr(answers, "_write", None)
    again = prune(stopped, "number", resume=True)
    assert again.result["model_sha256"] == whole.result["model_sha256"]
    assert again.result["agreement"] == whole.result["agreement"]


def test_damaged_answers(stopped, whole):
    path = stopped / "stages" / "answers.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        RunError,
        match=r"answers\.safetensors: must be the file the run wrote \(sha256 [0-9a-f]{64}\), "
        r"found another \(sha256 [0-9a-f]{64}\): it is damaged or was changed; put a copy of it "
        r"back, or delete it: the unpruned model answers again$",
    ):
        prune(stopped, "number", resume=True)
    path.unlink()
    again = prune(stopped, "number", resume=True)
    assert again.result["model_sha256"] == whole.result["model_sha256"]


SOUND = {"train": torch.zeros(160, 1), "dev": torch.zeros(40, 1)}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"Error while deserializing: .*"),
        (save({"train": SOUND["train"]}), "'dev'"),
        (
            save({**SOUND, "dev": torch.zeros(40, 7)}),
            r"dev must be 40 rows of 1 finite numbers, found \(40, 7\)",
        ),
        (
            save({**SOUND, "train": torch.zeros(3)}),
            r"train must be 160 rows of 1 finite numbers, found \(3,\)",
        ),
        (
            save({**SOUND, "dev": torch.full((40, 1), torch.nan)}),
            r"dev must be 40 rows of 1 finite numbers, found \(40, 1\)",
        ),
    ],
)
def test_answers_from_elsewhere(stopped, content, reason):
    """A stranger's run has the digest of any file."""
    (stopped / "stages" / "answers.safetensors").write_bytes(content)
    path = stopped / "stages" / "answers.json"
    record = json.loads(path.read_text())
    record["answers_sha256"] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(record))
    message = (
        rf"answers\.safetensors: is damaged \({reason}\); delete it: the unpruned model answers "
        "again$"
    )
    with pytest.raises(AuberError, match=message):
        prune(stopped, "number", resume=True)


def test_a_folder_in_the_place_of_the_answers(stopped):
    path = stopped / "stages" / "answers.safetensors"
    path.unlink()
    path.mkdir()
    with pytest.raises(
        AuberError, match=r"answers\.safetensors: cannot be read \(.*delete it: the"
    ):
        prune(stopped, "number", resume=True)


def test_a_run_that_was_killed_before_it_stored_the_answers(tmp_path, whole, monkeypatch):
    def stop(*_, **__):
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish_stage", stop)
        with pytest.raises(StoppedError):
            prune(tmp_path / "run", "number")
    again = prune(tmp_path / "run", "number", resume=True)
    assert again.result["model_sha256"] == whole.result["model_sha256"]


def test_other_texts_or_another_model_are_another_run(stopped):
    other = auber.make_texts(RECORDS[:150])
    with pytest.raises(RunError, match="holds another run: its rows were others"):
        prune(stopped, "number", other, resume=True)
    with pytest.raises(RunError, match="holds another run: its model had other weights"):
        auber.prune(
            *start("number", seed=1), task=TEXTS, method="fisher", keep=0.8, config=CONFIG,
            out=stopped, resume=True,
        )  # fmt: skip


def test_sizes_and_a_tolerance(tmp_path):
    messages = Messages()
    config = CONFIG.replace({"size.tolerance": 20.0})
    result = prune(
        tmp_path / "run", "number", config=config, keep=(0.9, 0.45), progress=messages
    ).result
    unpruned, *pruned = result["sizes"]
    assert unpruned["keep"] == 1
    assert unpruned["tuning"]["steps"] == 0  # it agrees with itself
    assert unpruned["held_out"]["score"] == pytest.approx(1)
    assert pruned[0]["keep"] == 0.9
    assert pruned[0]["held_out"]["loss"] == pytest.approx(
        100 * (1 - pruned[0]["held_out"]["score"]), abs=0.01
    )
    assert not any("may have seen" in message for message in messages.said)


@pytest.mark.parametrize(
    ("method", "keep", "options"),
    [
        ("exchange", 0.45, {"search.rewards": 20}),
        ("michel", 0.7, {}),
        ("voita", 0.7, {"voita.epochs": 1, "voita.trials": 2}),
    ],
)
def test_rankings(tmp_path, method, keep, options):
    result = prune(
        tmp_path / "run", "number", config=CONFIG.replace(options), method=method, keep=keep
    ).result
    assert result["neurons"]["removed"]
    assert result["dev"]["score"] < 1


@pytest.mark.parametrize("config", [CONFIG, small_config(**CROSSFIT)], ids=["seen", "crossfit"])
def test_a_search(tmp_path, config):
    """Under crossfit, the fold models are the unpruned model: it was tuned on no row."""
    messages = Messages()
    result = prune(
        tmp_path / "run", "number", config=config, method="auber", keep=None, progress=messages
    ).result
    assert result["cost"].get("scout_steps", 0) == 0
    assert result["cost"]["rewards_computed"] > 0
    assert not any("may have seen" in message for message in messages.said)


# What is refused


def constant(model):
    with torch.no_grad():
        model.classifier.weight.zero_()
    return model


def broken(model):
    with torch.no_grad():
        model.classifier.bias.fill_(torch.nan)
    return model


@pytest.mark.parametrize(
    ("spoil", "changes", "message"),
    [
        (
            constant,
            {},
            "the unpruned model: gives every text the same answer, LABEL_",
        ),
        (
            broken,
            {},
            "the unpruned model: its outputs for train must be finite numbers, found others; give "
            "a model whose weights are sound",
        ),
        (
            None,
            {"problem_type": "multi_label_classification"},
            "the live BertForSequenceClassification: gives several classes to a text (problem_type "
            "multi_label_classification); models with one class for each are supported",
        ),
    ],
)
def test_models_whose_answers_are_not_kept(spoil, changes, message):
    model, tokenizer = start(**changes)
    if spoil is not None:
        model = spoil(model)
    with pytest.raises(ModelError) as error:
        auber.prune(model, tokenizer, task=TEXTS, method="fisher", keep=0.8, config=CONFIG)
    assert str(error.value).startswith(message)


def test_a_model_with_an_untrained_head(tmp_path):
    from transformers import BertForMaskedLM

    model, tokenizer = start()
    BertForMaskedLM(model.config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelError) as error:
        auber.prune(tmp_path / "model", task=TEXTS, config=CONFIG)
    assert str(error.value) == (
        f"{tmp_path / 'model'}: has no trained head (BertForMaskedLM), so it has no answers to "
        "texts; give a model ...ForSequenceClassification, ...ForTokenClassification, "
        "...ForQuestionAnswering, a sentence encoder, or rows with labels to tune it on"
    )


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        (
            {"origin": tiny_model("bert")},
            {},
            "an origin is for fold models that learn from labels, found texts without; leave it "
            "out",
        ),
        (
            {},
            {"first.when": "always"},
            "first.when must be auto or never without labels, of which there are none to tune on, "
            "found always",
        ),
        (
            {},
            {"max_length": 200},
            "task own: a train row has 102 tokens and BertForSequenceClassification positions for "
            "28; set max_length=28",
        ),
    ],
)
def test_settings_that_texts_cannot_have(options, settings, message):
    texts = auber.make_texts([{"text": f"{text} {text} {text} {text}"} for text in SENTENCES])
    config = CONFIG.replace({"protocol": "crossfit"} if options else settings)
    with pytest.raises(ConfigError) as error:
        auber.prune(
            *start(), task=texts, config=config, method="auber" if options else "fisher", **options
        )
    assert str(error.value) == message
