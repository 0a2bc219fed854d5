from __future__ import annotations

import pytest

from auber.data.generated import NOUNS, NUM_DEV, NUM_TRAIN, PREPOSITIONS, VERBS, make_agreement
from auber.data.task import TaskData
from auber.errors import TaskError


@pytest.fixture(scope="module")
def data() -> TaskData:
    return make_agreement(seed=0)


def frame(sentence: str) -> str:
    """The sentence with its verb in the singular."""
    singular = {form: forms[0] for forms in VERBS for form in forms}
    return " ".join(singular.get(word, word) for word in sentence.split())


def judged(sentence: str) -> bool:
    """Acceptability worked out from the words alone: the subject is the first noun outside a fronted phrase."""
    words = sentence.split()
    if words[0] in PREPOSITIONS:
        words = words[words.index(",") + 1 :]
    subject = next(word for word in words if word in NOUNS or word.removesuffix("s") in NOUNS)
    plural_verb = any(plural in words for _, plural in VERBS)
    return subject.endswith("s") == plural_verb


def test_sizes_and_labels(data: TaskData) -> None:
    assert (len(data.train), len(data.dev)) == (NUM_TRAIN, NUM_DEV)
    assert (data.label_names, data.metric, data.majority_share) == (
        ("unacceptable", "acceptable"),
        "accuracy",
        0.5,
    )
    assert sum(data.train.labels) == NUM_TRAIN / 2
    assert data.train.second is None


def test_every_label_is_what_the_grammar_says(data: TaskData) -> None:
    for rows in (data.train, data.dev):
        assert [judged(sentence) for sentence in rows.first] == [
            label == 1 for label in rows.labels
        ]


def test_no_frame_stands_twice(data: TaskData) -> None:
    frames = [frame(sentence) for sentence in data.train.first + data.dev.first]
    assert len(set(frames)) == len(frames)


def test_the_noun_nearest_to_the_verb_does_not_give_the_label_away(data: TaskData) -> None:
    """Agreement with that noun, a tempting rule, is right much less often than a trained model."""
    right = 0
    for sentence, label in zip(data.dev.first, data.dev.labels, strict=True):
        words = sentence.split()[:-3]  # up to the verb
        plural_verb = sentence.split()[-3] in {plural for _, plural in VERBS}
        right += (words[-1].endswith("s") == plural_verb) == (label == 1)
    assert 0.5 < right / len(data.dev) < 0.75


def test_the_seed_decides(data: TaskData) -> None:
    assert make_agreement(seed=0) == data
    assert make_agreement(seed=1).train != data.train
    small = make_agreement(seed=0, num_train=7, num_dev=3)
    assert (len(small.train), len(small.dev)) == (7, 3)


@pytest.mark.parametrize(("train", "dev"), [(1, 10), (10, 0), (9_000, 2_000)])
def test_sizes_that_cannot_be_made_are_refused(train: int, dev: int) -> None:
    message = (
        f"agreement: at least 2 rows a split and 10000 in all can be made, found {train} and {dev}"
    )
    with pytest.raises(TaskError, match=message):
        make_agreement(num_train=train, num_dev=dev)
