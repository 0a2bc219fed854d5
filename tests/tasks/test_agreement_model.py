from __future__ import annotations

from pathlib import Path

import pytest
import torch

from auber.tasks.agreement import make_agreement
from auber.tasks.agreement_model import build_model, build_tokenizer


def test_the_tokenizer_knows_every_word_and_the_plural() -> None:
    tokenizer = build_tokenizer()
    assert tokenizer.tokenize("The keys near the door are rusty .") == [
        "the", "key", "##s", "near", "the", "door", "are", "rusty", "."
    ]  # fmt: skip
    data = make_agreement(seed=3)
    encoded = tokenizer(list(data.train.first + data.dev.first))["input_ids"]
    assert not any(tokenizer.unk_token_id in ids for ids in encoded)
    assert max(map(len, encoded)) <= tokenizer.model_max_length
    assert encoded[0][0] == tokenizer.cls_token_id
    assert encoded[0][-1] == tokenizer.sep_token_id


def test_the_tokenizer_comes_back_from_its_folder(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    sentence = "by the old doors , the key is wet ."
    assert AutoTokenizer.from_pretrained(tmp_path)(sentence)["input_ids"] == tokenizer(sentence)["input_ids"]


def test_the_weights_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = build_model(seed=0), build_model(seed=0), build_model(seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
    assert not torch.equal(first.classifier.weight, other.classifier.weight)


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_shapes(num_labels: int) -> None:
    tokenizer = build_tokenizer()
    model = build_model(num_labels).eval()
    assert (model.config.num_hidden_layers, model.config.num_attention_heads) == (4, 8)
    with torch.no_grad():
        assert model(**tokenizer(["the key is wet ."], return_tensors="pt")).logits.shape == (1, num_labels)
