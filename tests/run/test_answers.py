"""Pruning without labels: the unpruned model's answers, what a run does with them, and errors."""

from __future__ import annotations

import pytest
import torch

import auber
from auber.data.generated import build_tokenizer, make_agreement, vocabulary
from auber.models.pooling import Modules, Pooling, attach_modules, pooling_of
from auber.models.sentence_files import write_modules
from auber.run.answers import describe_task
from tests.kinds import question_records, tagged_records
from tests.small import small_config
from tests.tiny_models import tiny_model

CONFIG = small_config()
TEXTS = auber.make_texts([{"text": text} for text in make_agreement(0, 200, 24).train.first])


def start(kind="sequence", **changes):
    changes = {"num_labels": {"tokens": 3, "spans": 2}.get(kind, 1), **changes}
    if kind == "tokens":
        changes["id2label"] = {0: "O", 1: "B-X", 2: "I-X"}
    model = tiny_model("bert", kind=kind, vocab_size=len(vocabulary()), pad_token_id=0, **changes)
    return model, build_tokenizer()


def texts_of(kind):
    if kind == "tokens":
        return auber.make_texts(tagged_records(400, 0), text="tokens")
    if kind == "spans":
        return auber.make_texts(question_records(200, 0), text=("question", "context"))
    return TEXTS


@pytest.mark.parametrize(
    ("kind", "labels", "metric"),
    [
        ("sequence", 1, "spearman"),
        ("sequence", 3, "accuracy"),
        ("tokens", 3, "entity_f1"),
        ("spans", 2, "span_f1"),
        ("embeddings", 1, "pair_spearman"),
    ],
)
def test_a_run_agrees_with_the_unpruned_model(tmp_path, kind, labels, metric):
    model, tokenizer = start(kind, num_labels=labels)
    pruned = auber.prune(
        model, tokenizer, task=texts_of(kind), method="fisher", keep=0.8, config=CONFIG,
        out=tmp_path / "run",
    )  # fmt: skip
    result = pruned.result
    assert (result["metric"], result["answered"]) == (metric, True)
    assert result["before"]["score"] == pytest.approx(1)
    assert 0.3 < result["after"]["score"] <= 1
    assert result["rows"]["dev"] == pytest.approx(0.2 * len(texts_of(kind)), abs=2)
    assert not (tmp_path / "run" / "stages" / "answers.safetensors").exists()


def test_a_sentence_encoder_is_saved_with_its_modules(tmp_path):
    from sentence_transformers import SentenceTransformer

    model, tokenizer = start("embeddings")
    attach_modules(model, Modules(Pooling("max", is_normalized=False), {}))
    auber.save(model, tokenizer, tmp_path / "model")
    out = tmp_path / "run"
    auber.prune(
        tmp_path / "model", task=TEXTS, method="fisher", keep="0.8,0.6", config=CONFIG, out=out
    )
    for place in (out / "model", out / "models" / "0.6"):
        pruned, texts = auber.load(place), list(TEXTS.columns[0][:3])
        assert pooling_of(pruned) == Pooling("max", is_normalized=False)
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = pruned(**batch).last_hidden_state
        expected = pooling_of(pruned).pool(hidden, batch["attention_mask"])
        plain = SentenceTransformer(str(out / "model"), device="cpu", trust_remote_code=True)
        if place == out / "model":
            torch.testing.assert_close(torch.from_numpy(plain.encode(texts)), expected)


def test_an_architecture_of_any_kind_with_modules_is_a_sentence_encoder(tmp_path):
    from transformers import BertForMaskedLM

    model, tokenizer = start("embeddings")
    masked = BertForMaskedLM(model.config)
    masked.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        auber.AuberError, match=r"has no trained head \(BertForMaskedLM\), so it has"
    ):
        describe_task(TEXTS, tmp_path)
    write_modules(Modules(Pooling(), {}), tmp_path, 32)
    assert describe_task(TEXTS, tmp_path).kind == "embeddings"


def test_a_sentence_encoder_reads_one_column():
    pairs = auber.make_texts(
        [{"a": text, "b": text} for text in TEXTS.columns[0]], text=("a", "b"), name="pairs"
    )
    message = (
        r"^texts pairs: a model \.\.\.Model needs one column of texts, found 2 of texts; name the "
        "columns with --text, by default text$"
    )
    with pytest.raises(auber.AuberError, match=message):
        describe_task(pairs, start("embeddings")[0])


def test_an_encoder_that_gives_one_vector_is_refused(tmp_path):
    model, tokenizer = start("embeddings")
    with torch.no_grad():
        norm = model.encoder.layer[-1].output.LayerNorm
        norm.weight.zero_()
    message = "^the unpruned model: gives every text the same answer, one vector, so there is noth"
    with pytest.raises(auber.AuberError, match=message):
        auber.prune(model, tokenizer, task=TEXTS, method="fisher", keep=0.8, config=CONFIG)
