from __future__ import annotations

import pytest
import torch

import auber
from auber.bench.catalogue import ROWS, SIZES, Request
from auber.bench.subjects import (
    _BALANCING_ROWS,
    make_model,
    make_rows_task,
    make_subject,
    make_tokenizer,
)
from auber.errors import CheckpointError, ConfigError
from auber.training.evaluation import predict
from tests.small import cpu, small_config
from tests.tiny_models import tiny_model, tiny_tokenizer


def test_the_reward_set_has_the_rows_asked_for(subject):
    assert len(subject.rows) == 40
    assert len(subject.task.train) == 60
    assert subject.task.metric == "matthews"
    assert set(subject.rows.labels.tolist()) == {0, 1}
    assert sum(subject.rows.lengths) / 40 == pytest.approx(11, rel=0.15)
    ids = subject.rows.input_ids[0]
    assert (ids[0], ids[-1]) == (2, 3)
    assert 1 not in {token for row in subject.rows.input_ids for token in row}, "no word is unknown"


def test_pairs_have_two_segments():
    tokenizer = make_tokenizer(make_model(SIZES["tiny"], 0).config)
    task = make_rows_task(ROWS["rte"], 20, 0, tokenizer)
    rows = auber.data.encoding.encode_rows(tokenizer, task.train, 128, False)
    assert sorted(rows.lengths) == ROWS["rte"].lengths(30)
    assert all(set(types) == {0, 1} for types in rows.token_types)


def test_the_seed_decides_all():
    model, same, other = (make_model(SIZES["tiny"], seed) for seed in (0, 0, 1))
    assert all(
        torch.equal(one, two)
        for one, two in zip(model.parameters(), same.parameters(), strict=True)
    )
    assert not torch.equal(model.classifier.weight, other.classifier.weight)
    tokenizer = make_tokenizer(model.config)
    tasks = [make_rows_task(ROWS["cola"], 20, seed, tokenizer).content_hash for seed in (0, 0, 1)]
    assert tasks[0] == tasks[1] != tasks[2]


def test_both_answers_occur(subject):
    answers = predict(subject.model, subject.rows).argmax(1)
    assert 0.2 < answers.double().mean() < 0.8


def test_a_model_without_segments_and_with_another_padding_token():
    model = tiny_model("roberta", max_position_embeddings=140, type_vocab_size=1)
    tokenizer = make_tokenizer(model.config)
    assert tokenizer.pad_token_id == 1
    encoded = tokenizer("w7 w9", "w8")
    assert "token_type_ids" not in encoded
    assert 7 in encoded["input_ids"]
    assert 1 not in encoded["input_ids"]


def test_a_saved_model_takes_the_place_of_a_size(tmp_path):
    model = tiny_model("bert", max_position_embeddings=128, pad_token_id=0)
    auber.save(model, tiny_tokenizer(), tmp_path / "own")
    request = Request(model=str(tmp_path / "own"), rows="cola", count=12)
    config = small_config(max_length=128)
    subject = make_subject(request, config, cpu())
    assert (subject.name, subject.encoder.num_layers, len(subject.rows)) == ("own", 3, 12)
    assert torch.equal(subject.model.classifier.weight, model.classifier.weight)
    with pytest.raises(
        ConfigError,
        match="^max_length must be at most 128, the positions own has, found 256; add --set max_length=128$",
    ):
        make_subject(request, config.replace({"max_length": 256}), cpu())
    with pytest.raises(CheckpointError, match="none: there is no such folder; give the one"):
        make_subject(Request(model=str(tmp_path / "none")), config, cpu())


def test_positions_that_no_token_can_have_are_not_counted(tmp_path):
    """RoBERTa's table has one for the padding token and one before it; rows padded to all 28 would fall off its end."""
    auber.save(tiny_model("roberta"), tiny_tokenizer(), tmp_path / "own")
    request = Request(model=str(tmp_path / "own"), rows="cola", count=12)
    assert make_subject(request, small_config(max_length=26), cpu()).encoder.most_tokens == 26
    with pytest.raises(
        ConfigError,
        match="^max_length must be at most 26, the positions own has, found 28; add --set max_length=26$",
    ):
        make_subject(request, small_config(max_length=28), cpu())


def test_relative_positions_do_not_run_out(tmp_path):
    auber.save(tiny_model("modernbert"), tiny_tokenizer(), tmp_path / "own")
    request = Request(model=str(tmp_path / "own"), rows="cola", count=12)
    assert make_subject(request, small_config(max_length=64), cpu()).config.max_length == 64


def test_half_of_the_rows_get_each_answer_and_rounding_decides_none(subject):
    logits = predict(subject.model, subject.rows.select(range(_BALANCING_ROWS)))
    ahead = logits[:, 1] - logits[:, 0]
    assert (ahead > 0).sum() == _BALANCING_ROWS // 2
    assert ahead.abs().min() > 1e-5
