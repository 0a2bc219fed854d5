from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

from auber.data.targets import Tags
from auber.metrics.tags import NO_TAG, Scheme, entity_counts, read_scheme, sort_tags
from auber.metrics.task_metrics import get_metric
from tests.kinds import TAGS

CPU = torch.device("cpu")


def entities(tags):
    """Return the entities of one sentence, word by word."""
    found, start, kind = set(), None, None
    for place, tag in enumerate([*tags, "O"]):
        goes_on = tag.startswith("I-") and tag[2:] == kind
        if start is not None and not goes_on:
            found.add((start, place - 1, kind))
            start = kind = None
        if tag != "O" and not goes_on:
            start, kind = place, tag[2:]
    return found


def score(true, predicted):
    names = sort_tags({tag for tags in (*true, *predicted) for tag in tags})
    rows = Tags([[names.index(tag) for tag in tags] for tags in true], read_scheme(names))
    logits = F.one_hot(
        torch.tensor([names.index(tag) for tags in predicted for tag in tags]), len(names)
    ).float()
    truth = rows.truth(range(len(true)), [len(tags) for tags in true], CPU)
    return get_metric("entity_f1").compute(logits, truth).item()


@pytest.mark.parametrize("seed", range(30))
def test_counts_equal_those_of_the_plain_definition(seed):
    draw = random.Random(seed)
    lengths = [draw.randint(1, 9) for _ in range(12)]
    # mostly one type, so that neighbours often are of the same
    true, predicted = (
        [draw.choices(TAGS, (2, 2, 3, 1, 1), k=length) for length in lengths] for _ in range(2)
    )
    predicted = [
        tags if draw.random() < 0.4 else other for tags, other in zip(true, predicted, strict=True)
    ]
    wanted = [entities(tags) for tags in true], [entities(tags) for tags in predicted]
    right = sum(len(one & other) for one, other in zip(*wanted, strict=True))
    found, there = (sum(map(len, each)) for each in reversed(wanted))
    rows = Tags([[TAGS.index(tag) for tag in tags] for tags in true], read_scheme(TAGS))
    numbers = torch.tensor([TAGS.index(tag) for tags in predicted for tag in tags])
    counts = entity_counts(
        F.one_hot(numbers, len(TAGS)), rows.truth(range(len(true)), lengths, CPU)
    )
    assert counts.tolist() == [right, found, there]
    assert right > 0


@pytest.mark.parametrize(
    ("true", "predicted", "expected"),
    [
        # the example on seqeval's front page
        (
            [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]],
            [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]],
            0.5,
        ),
        # I- behind nothing begins an entity, as conlleval reads it
        ([["O", "I-PER", "I-PER", "O"]], [["O", "B-PER", "I-PER", "O"]], 1.0),
        ([["I-PER", "I-LOC"]], [["B-PER", "B-LOC"]], 1.0),
        # two neighbours of one type are not one entity
        ([["B-PER", "B-PER"]], [["B-PER", "I-PER"]], 0.0),
        # an entity does not go on in the next sentence
        ([["O", "B-PER"], ["I-PER", "O"]], [["O", "B-PER"], ["B-PER", "O"]], 1.0),
        # the right words of another type, and too few of them
        ([["B-PER", "I-PER", "O"]], [["B-LOC", "I-LOC", "O"]], 0.0),
        ([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]], 0.0),
        ([["O", "O"]], [["O", "O"]], 0.0),
    ],
)
def test_examples(true, predicted, expected):
    assert score(true, predicted) == pytest.approx(expected)


def test_tokens_without_a_tag_are_passed_over():
    rows = Tags([[NO_TAG, 1, NO_TAG, 2, NO_TAG]], read_scheme(TAGS))
    logits = F.one_hot(torch.tensor([3, 1, 0, 2, 4]), len(TAGS)).float()
    assert entity_counts(logits, rows.truth([0], [5], CPU)).tolist() == [1, 1, 1]
    assert get_metric("token_accuracy").compute(logits, rows.truth([0], [5], CPU)).item() == 1


def test_what_tags_mean():
    scheme = Scheme((1, 0, 2, 1), (False, False, True, True))
    assert read_scheme(("I-X-Y", "O", "B-Z", "B-X-Y")) == scheme
    for strange in ("NOUN", "E-PER", "B-", "B", "o"):
        assert read_scheme(("O", strange)) is None


def test_the_order_of_tags():
    assert sort_tags({"I-PER", "B-LOC"}) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert sort_tags({"VERB", "NOUN"}) == ("NOUN", "VERB")
