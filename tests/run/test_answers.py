"""Pruning without labels: the unpruned model's answers, what a run does with them, and errors."""

from __future__ import annotations

import pytest

import auber
from auber.data.generated import build_tokenizer, make_agreement, vocabulary
from tests.kinds import question_records, tagged_records
from tests.small import small_config
from tests.tiny_models import tiny_model

CONFIG = small_config()
TEXTS = auber.make_texts([{"text": text} for text in make_agreement(0, 200, 24).train.first])


def start(kind="sequence", **changes):
    changes = {"num_labels": {"sequence": 1, "tokens": 3, "spans": 2}[kind], **changes}
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
