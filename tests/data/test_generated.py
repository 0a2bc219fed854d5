from __future__ import annotations

import pytest
import torch

from auber.data.generated import (
    NOUNS,
    NUM_DEV,
    NUM_TRAIN,
    PREPOSITIONS,
    VERBS,
    build_model,
    build_tokenizer,
    make_agreement,
)


@pytest.fixture(scope="module")
def task():
    return make_agreement(seed=0)


def is_acceptable(sentence):
    """Judge by the words alone: the subject is the first noun outside a fronted phrase."""
    words = sentence.split()
    if words[0] in PREPOSITIONS:
        words = words[words.index(",") + 1 :]
    subject = next(word for word in words if word in NOUNS or word.removesuffix("s") in NOUNS)
    return subject.endswith("s") == any(plural in words for _, plural in VERBS)


def test_sizes_and_labels(task):
    assert (len(task.train), len(task.dev)) == (NUM_TRAIN, NUM_DEV)
    assert task.label_names == ("unacceptable", "acceptable")
    assert (task.metric, task.majority_share) == ("accuracy", 0.5)
    assert sum(task.train.labels) == NUM_TRAIN / 2
    for rows in (task.train, task.dev):
        assert [is_acceptable(text) for text in rows.first] == [label == 1 for label in rows.labels]


def test_the_rows_depend_on_seed_and_sizes(task):
    # python -c "from auber.data.generated import *; print(make_agreement().content_hash)"
    assert task.content_hash == "cf21ad080f79bbb7212ed5dc9c95fb119ce82ec2ace1f2cc9e562727a5b626a1"
    assert make_agreement(seed=0) == task
    assert make_agreement(seed=1).train != task.train
    small = make_agreement(seed=0, num_train=7, num_dev=3)
    assert (len(small.train), len(small.dev)) == (7, 3)


def test_the_weights_depend_only_on_the_seed():
    state = torch.get_rng_state()
    first, again, other = build_model(seed=0), build_model(seed=0), build_model(3, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
    assert not torch.equal(first.bert.pooler.dense.weight, other.bert.pooler.dense.weight)
    assert (first.config.num_hidden_layers, first.config.num_attention_heads) == (4, 8)
    batch = build_tokenizer()(["the key is wet ."], return_tensors="pt")
    assert other(**batch).logits.shape == (1, 3)
