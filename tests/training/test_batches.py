from __future__ import annotations

import numpy as np
import pytest
import torch

from auber.data.encoding import EncodedRows
from auber.metrics.tags import NO_TAG
from auber.training.batches import LengthGroups, RowCollator, cut_batch
from auber.training.outputs import outputs_of
from tests.kinds import METRICS_OF, TOKEN_KINDS, num_labels, random_kind_rows
from tests.tiny_models import tiny_model
from tests.training.test_trainer import SUBJECTS, subject


def pair_lengths(count=1000):
    """Lengths spread like those of RTE's pairs: mean about 67, cut at 128."""
    return np.random.default_rng(0).lognormal(4.0, 0.55, count).clip(8, 128).astype(int).tolist()


def padded_tokens(lengths, order, batch_size):
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    return sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 256, 300, 1000])
def test_every_row_comes_once_an_epoch(count):
    sampler = LengthGroups(pair_lengths(count), 32, seed=1)
    assert len(sampler) == count
    assert sorted(sampler) == list(range(count))


def test_the_order_depends_on_seed_and_epoch_alone():
    lengths = pair_lengths()
    first = list(LengthGroups(lengths, 32, seed=1))
    again = LengthGroups(lengths, 32, seed=1)
    assert list(again) == list(again) == first
    assert list(LengthGroups(lengths, 32, seed=2)) != first
    again.set_epoch(1)
    assert list(again) != first
    again.set_epoch(0)
    assert list(again) == first


def test_groups_pad_far_less_than_random_batches():
    lengths = pair_lengths()
    tokens = sum(lengths)
    random_order = np.random.default_rng(1).permutation(len(lengths)).tolist()
    assert padded_tokens(lengths, random_order, 32) > 1.6 * tokens
    assert padded_tokens(lengths, list(LengthGroups(lengths, 32, seed=1)), 32) < 1.2 * tokens


def test_batches_differ_from_epoch_to_epoch_and_do_not_come_by_length():
    lengths = pair_lengths(320)
    sampler = LengthGroups(lengths, 32, seed=1)
    seen = set()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        order = list(sampler)
        batches = [order[start : start + 32] for start in range(0, 320, 32)]
        seen |= {frozenset(batch) for batch in batches}
        widths = [max(lengths[row] for row in batch) for batch in batches]
        assert widths not in (sorted(widths), sorted(widths, reverse=True))
    assert len(seen) == 30, "no batch comes twice"


def test_the_rows_that_fill_no_batch_are_a_random_draw():
    lengths = [10] * 50 + [100] * 50
    sampler = LengthGroups(lengths, 32, seed=1)
    drawn = []
    for epoch in range(100):
        sampler.set_epoch(epoch)
        drawn += [lengths[row] for row in list(sampler)[96:]]
    assert 0.4 < np.mean(np.array(drawn) == 10) < 0.6


@pytest.mark.parametrize(("length", "width"), [(1, 8), (8, 8), (9, 16), (17, 20), (20, 20)])
def test_widths_are_rounded_up_but_not_beyond_the_longest_row(length, width):
    rows = EncodedRows([[7] * 20, [7] * length], None, torch.tensor([0.5, 1.5]), pad_token_id=9)
    batch = RowCollator(rows, width_multiple=8)([1])
    assert batch["input_ids"].tolist() == [[7] * length + [9] * (width - length)]
    assert batch["attention_mask"].tolist() == [[1] * length + [0] * (width - length)]
    assert batch["labels"].tolist() == [1.5]


@pytest.mark.parametrize("kind", METRICS_OF)
def test_padding_changes_no_loss(kind):
    """Captured batches are padded to a multiple of 32."""
    model = tiny_model(kind=kind, num_labels=num_labels(kind)).train(False)
    rows = random_kind_rows(kind, 40)
    short = [row for row in range(40) if rows.lengths[row] < 10]
    losses = [
        outputs_of(kind).loss(model, RowCollator(rows, multiple)(short)) for multiple in (1, 32)
    ]
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_parts_of_a_batch_make_it_up(name):
    _, rows = subject(name, 11)
    batch = RowCollator(rows)(range(11))
    parts = list(cut_batch(batch, 4))
    assert [len(part["input_ids"]) for part, _ in parts] == [4, 4, 3]
    for key, column in batch.items():
        assert torch.equal(torch.cat([part[key] for part, _ in parts]), column)
    shares = torch.stack([share for _, share in parts])
    assert shares.sum().item() == pytest.approx(1)
    if name in TOKEN_KINDS:  # words and answers are spread unevenly
        assert shares.tolist() != pytest.approx([4 / 11, 4 / 11, 3 / 11])
    if name == "tokens":  # nothing to learn from
        batch["labels"] = torch.full_like(batch["labels"], NO_TAG)
        assert [share.item() for _, share in cut_batch(batch, 6)] == [0, 0]
