from __future__ import annotations

from pathlib import Path

import pytest
import torch

from auber.data.encoding import EncodedRows, encode_rows, pad_batch
from auber.data.generated import (
    BATCH_SIZE,
    EPOCHS,
    LEARNING_RATE,
    MAX_LENGTH,
    build_model,
    build_tokenizer,
    make_agreement,
)
from auber.metrics.task_metrics import get_metric


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
    assert (
        AutoTokenizer.from_pretrained(tmp_path)(sentence)["input_ids"]
        == tokenizer(sentence)["input_ids"]
    )


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
        assert model(**tokenizer(["the key is wet ."], return_tensors="pt")).logits.shape == (
            1,
            num_labels,
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_model_learns_and_overfits(seed: int) -> None:
    """The demonstration needs a start that is neither at chance nor perfect, and that knows train better than dev."""
    data, tokenizer, model = make_agreement(seed), build_tokenizer(), build_model(seed=seed)
    train, dev = (
        encode_rows(tokenizer, rows, MAX_LENGTH, is_regression=False)
        for rows in (data.train, data.dev)
    )
    order = torch.Generator().manual_seed(seed)
    steps = EPOCHS * -(-len(train) // BATCH_SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)

    def batch(rows: EncodedRows, indices: list[int]) -> dict[str, torch.Tensor]:
        return pad_batch([rows[index] for index in indices], tokenizer.pad_token_id)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # dropout
        model.train()
        for _ in range(EPOCHS):
            for indices in torch.randperm(len(train), generator=order).split(BATCH_SIZE):
                optimizer.zero_grad()
                model(**batch(train, indices.tolist())).loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()

    model.eval()
    scores = []
    for rows in (train, dev):
        everything = batch(rows, list(range(len(rows))))
        labels = everything.pop("labels")
        with torch.no_grad():
            scores.append(get_metric("accuracy").compute(model(**everything).logits, labels).item())
    train_score, dev_score = scores
    assert 0.75 < dev_score < 0.97
    assert train_score - dev_score > 0.03
