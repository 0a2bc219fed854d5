"""Sentence encoders, pruned without labels."""

from __future__ import annotations

import pytest
import torch

import auber
from auber.models.pooling import Modules, Pooling, attach_modules, pooling_of
from auber.models.sentence_files import write_modules
from auber.run.answers import describe_task
from tests.run.test_answers import CONFIG, TEXTS, start


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
