"""Sentence encoders: vectors and folders are those of sentence-transformers."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
import torch.nn.functional as F

from auber.data.encoding import encode_split
from auber.data.rows import TextRows
from auber.data.task import TaskData
from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.models.plan import PruningPlan
from auber.models.pooling import Modules, Pooling, pooling_of
from auber.models.sentence_files import read_modules
from auber.models.surgery import remove
from auber.training.evaluation import predict
from tests.models.conftest import edit_config
from tests.tiny_models import HIDDEN, MODEL_TYPES, tiny_config, tiny_model, tiny_tokenizer

TEXTS = ("the film is good", "bad", "the the the good film is bad bad")
PLAN = PruningPlan({0: [1], 2: [0, 2]}, {1: range(40)})
SETTINGS = {"max_seq_length": 12, "do_lower_case": False}


def make_folder(folder, mode="mean", *, normalize=True, model_type="bert"):
    """Save a sentence encoder with sentence-transformers itself."""
    with warnings.catch_warnings(action="ignore"):  # of what is imported
        from sentence_transformers import SentenceTransformer, models

    checkpoint.save(
        tiny_model(model_type, bare=True, pad_token_id=0), tiny_tokenizer(), folder / "bare"
    )
    modules = [models.Transformer(str(folder / "bare")), models.Pooling(HIDDEN, mode)]
    if normalize:
        modules.append(models.Normalize())
    encoder = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the "})
    encoder.save(str(folder / "encoder"))
    return folder / "encoder", torch.from_numpy(encoder.encode(list(TEXTS)))


def load(folder):
    return checkpoint.load_classifier(folder, num_labels=HIDDEN, kind="embeddings")


def vectors(model, tokenizer):
    rows = TextRows(TEXTS, tuple(torch.zeros(len(TEXTS), HIDDEN).numpy()))
    task = TaskData("texts", rows, rows, None, "cosine")
    return predict(model, encode_split(tokenizer, task, "dev", 24))


def assert_near(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_the_vectors_are_those_of_sentence_transformers(mode, normalize, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder, expected = make_folder(tmp_path, mode, normalize=normalize)
    loaded = load(folder)
    assert loaded.is_trained
    assert pooling_of(loaded.model) == Pooling(mode, normalize)
    assert_near(vectors(loaded.model, loaded.tokenizer), expected)
    checkpoint.save(loaded.model, loaded.tokenizer, tmp_path / "again")
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    assert_near(torch.from_numpy(again.encode(list(TEXTS))), expected)
    assert again.prompts["query"] == "the "
    model = checkpoint.load(tmp_path / "again")
    assert_near(vectors(model, loaded.tokenizer), expected)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_pruned_one_keeps_its_modules(model_type, tmp_path):
    folder, _ = make_folder(tmp_path, "max", model_type=model_type)
    loaded = load(folder)
    remove(loaded.model, PLAN)
    checkpoint.save(loaded.model, loaded.tokenizer, tmp_path / "pruned")
    for again in (load(tmp_path / "pruned").model, checkpoint.load(tmp_path / "pruned")):
        assert pooling_of(again) == Pooling("max", is_normalized=True)
        found = vectors(again, loaded.tokenizer)
        assert torch.equal(found, vectors(loaded.model, loaded.tokenizer))


@pytest.mark.parametrize("bare", [True, False])
def test_a_plain_encoder_is_pooled_by_its_mean_and_normalised(bare, tmp_path, caplog):
    from transformers import BertForMaskedLM

    model = tiny_model(bare=True) if bare else BertForMaskedLM(tiny_config("bert")).eval()
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    loaded = load(tmp_path)
    expected = f"{tmp_path}: has no modules.json: its embeddings are taken as the mean of a text's"
    (message,) = [each.message for each in caplog.records if each.name.startswith("auber")]
    assert message.startswith(expected)
    assert type(loaded.model).__name__ == "BertModel"
    ids = torch.tensor([tiny_tokenizer()(TEXTS[0])["input_ids"]])
    with torch.no_grad():
        hidden = model.base_model(ids)[0][0]
    assert_near(vectors(loaded.model, loaded.tokenizer)[0], F.normalize(hidden.mean(0), dim=0))
    digests = {checkpoint.weights_digest(load(tmp_path).model) for _ in range(2)}
    assert len(digests) == 1, "weights that are missing, as of a pooler, are always the same"
    checkpoint.save(loaded.model, loaded.tokenizer, tmp_path / "saved")
    assert read_modules(tmp_path / "saved") == Modules(Pooling("mean", is_normalized=True), {})


def test_the_form_of_earlier_versions(tmp_path):
    folder, expected = make_folder(tmp_path, "cls")
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.{kind}"}
        for number, (path, kind) in enumerate(
            [
                ("", "models.Transformer"),
                ("1_Pooling", "models.Pooling"),
                ("2_N", "models.Normalize"),
            ]
        )
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    old = {"word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": True}
    old |= {"pooling_mode_mean_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
    (folder / "sentence_bert_config.json").write_text(json.dumps(SETTINGS))
    loaded = load(folder)
    assert_near(vectors(loaded.model, loaded.tokenizer), expected)
    checkpoint.save(loaded.model, None, tmp_path / "saved")
    settings = json.loads((tmp_path / "saved" / "sentence_bert_config.json").read_text())
    assert settings == SETTINGS


def test_a_pooling_without_a_mode_is_the_mean(tmp_path):
    """As in sentence-transformers, where the mean is the default."""
    folder, expected = make_folder(tmp_path, "mean")
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": HIDDEN}))
    loaded = load(folder)
    assert_near(vectors(loaded.model, loaded.tokenizer), expected)


def edit_modules(folder, change):
    modules = json.loads((folder / "modules.json").read_text())
    change(modules)
    (folder / "modules.json").write_text(json.dumps(modules))


def module(kind, path=""):
    return {"idx": 3, "name": "3", "path": path, "type": kind}


# fmt: off
REFUSED = [
    (lambda each: each.append(module("sentence_transformers.models.Dense", "3_Dense")),
     "its module Dense is not supported; use a model that pools by mean, cls or max, with no fur"),
    (lambda each: each.append(module("mine.Normalize")),
     "its module mine.Normalize is not supported; use a model that pools by mean, cls or max"),
    (lambda each: each.pop(1),
     "its modules.json must list Transformer, Pooling and possibly Normalize, found Tran"),
    (lambda each: each[0].update(path="0_Transformer"),
     "its encoder must lie in the folder itself, found it in '0_Transformer'; load it with Sent"),
    (lambda each: each[1].update(path="../other"),
     r"its modules.json is damaged \(path '../other'\); "),
    (lambda each: each[1].update(path="nothing"),
     "has no nothing/config.json; save the model again"),
    (lambda each: each[1].pop("type"),
     r"its modules.json is damaged \('type'\); save the model again"),
]
# fmt: on


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_modules_that_cannot_be_kept(change, message, tmp_path):
    folder, _ = make_folder(tmp_path)
    edit_modules(folder, change)
    with pytest.raises(CheckpointError, match=f"^{folder}: {message}"):
        load(folder)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode": ["mean", "max"]}, "mean, max"),
        ({"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        ({"pooling_mode": "mean", "include_prompt": False}, "mean, without the prompt"),
    ],
)
def test_another_pooling_is_refused_by_name(config, found, tmp_path):
    folder, _ = make_folder(tmp_path)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    message = f"^{folder}: pools by {found}, which is not supported; use a model that pools by mean"
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_a_model_with_a_head_is_no_sentence_encoder(tmp_path):
    checkpoint.save(tiny_model(), tiny_tokenizer(), tmp_path)
    message = (
        r"has a head \(BertForSequenceClassification\), and embeddings need an encoder without"
    )
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


def test_an_incomplete_encoder_is_refused(tmp_path):
    checkpoint.save(tiny_model(bare=True), tiny_tokenizer(), tmp_path)
    edit_config(tmp_path, num_hidden_layers=4)
    with pytest.raises(CheckpointError, match="the weights lack encoder.layer.3.attention"):
        load(tmp_path)


def test_modules_are_read_from_the_hub(tmp_path, monkeypatch):
    folder, _ = make_folder(tmp_path, "max")
    asked = []

    def cached_file(name, file, *, revision, **_):
        asked.append((name, revision))
        return str(folder / file) if (folder / file).is_file() else None

    monkeypatch.setattr("transformers.utils.hub.cached_file", cached_file)
    modules = read_modules("me/mine@v1")
    assert modules.pooling == Pooling("max")
    assert list(modules.settings) == [
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    ]
    assert set(asked) == {("me/mine", "v1")}
    (folder / "modules.json").unlink()
    assert read_modules("me/mine@v1") is None
