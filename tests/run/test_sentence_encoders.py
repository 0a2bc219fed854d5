"""Sentence encoders pruned from texts alone."""

from __future__ import annotations

import pytest
import torch

import auber
from auber.data.generated import build_tokenizer
from auber.models.pooling import Modules, Pooling, attach_modules, pooling_of
from auber.models.sentence_files import write_modules
from auber.run.answers import describe_task
from tests.run.test_answers import CONFIG, SENTENCES, TEXTS, start


def prune(model, **options):
    given = {"task": TEXTS, "method": "fisher", "keep": 0.8, "config": CONFIG, **options}
    tokenizer = None if not hasattr(model, "config") else build_tokenizer()
    return auber.prune(model, tokenizer, **given)


def save_encoder(folder, pooling):
    model, tokenizer = start("embeddings")
    attach_modules(model, Modules(pooling, {}))
    auber.save(model, tokenizer, folder)
    return folder


def test_every_size_is_saved_with_its_modules(tmp_path):
    from sentence_transformers import SentenceTransformer

    pooling = Pooling("max", is_normalized=False)
    model = save_encoder(tmp_path / "model", pooling)
    prune(model, keep="0.8,0.6", out=tmp_path / "run")
    texts = list(SENTENCES[:3])
    for place in (tmp_path / "run" / "models").iterdir():
        pruned = auber.load(place)
        assert pooling_of(pruned) == pooling
        batch = build_tokenizer()(texts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = pruned(**batch).last_hidden_state
        expected = pooling.pool(hidden, batch["attention_mask"])
        found = SentenceTransformer(str(place), device="cpu", trust_remote_code=True).encode(texts)
        torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-5)


def test_a_search_and_a_pruned_model_that_is_pruned_again(tmp_path):
    model = save_encoder(tmp_path / "model", Pooling("cls"))
    first = prune(model, method="auber", keep=None, out=tmp_path / "first")
    assert first.result["heads"]["removed"] > 0
    again = prune(tmp_path / "first" / "model", keep=0.6)
    assert first.plan.num_heads <= again.plan.num_heads
    assert pooling_of(again.model) == Pooling("cls")


def test_an_architecture_of_any_kind_with_modules(tmp_path):
    from transformers import BertForMaskedLM

    model, tokenizer = start("embeddings")
    BertForMaskedLM(model.config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        auber.AuberError, match=r"has no trained head \(BertForMaskedLM\), so it has"
    ):
        describe_task(TEXTS, tmp_path)
    write_modules(Modules(Pooling(), {}), tmp_path, 32)
    assert describe_task(TEXTS, tmp_path).kind == "embeddings"


def test_a_sentence_encoder_reads_one_column():
    rows = [{"a": text, "b": text} for text in SENTENCES]
    pairs = auber.make_texts(rows, text=("a", "b"), name="pairs")
    message = (
        r"^texts pairs: a model \.\.\.Model needs one column of texts, found 2 of texts; name the "
        "columns with --text, by default text$"
    )
    with pytest.raises(auber.AuberError, match=message):
        describe_task(pairs, start("embeddings")[0])


def test_an_encoder_that_gives_one_vector_is_refused(caplog):
    model, _ = start("embeddings")
    with torch.no_grad():
        model.encoder.layer[-1].output.LayerNorm.weight.zero_()
    message = "^the unpruned model: gives every text the same answer, one vector, so there is noth"
    with pytest.raises(auber.AuberError, match=message):
        prune(model)
    assert "the live BertModel: has no modules.json: its embeddings are taken as" in caplog.text
