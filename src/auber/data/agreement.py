"""The generated default task: tell whether the verb agrees with its subject across nested attractors.

`the keys to the cabinet near the doors are rusty .` is acceptable; with `is` it is not. Nouns between subject and verb,
and in some sentences one before the subject, pull the other way. The words are few and every plural is regular, so a
small encoder can learn it from nothing in seconds, and overfits while it does: what this library is about.

The rows depend on the seed and the two sizes only; both labels are equally frequent in each split. No two rows share a
frame (the sentence but for the verb's number), so neither a sentence nor its counterpart of the other label stands in
both splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from auber.data.task import Rows, TaskData, check_task
from auber.errors import TaskError
from auber.system import seeds

Item = TypeVar("Item")

LABEL_NAMES = ("unacceptable", "acceptable")
NUM_TRAIN = 600
NUM_DEV = 400
MOST_ROWS = (
    10_000  # far fewer than there are frames, so that drawing until a new one comes up stays quick
)

NOUNS = (
    "apple",
    "bell",
    "bird",
    "boat",
    "book",
    "bottle",
    "cabinet",
    "candle",
    "chair",
    "clock",
    "coin",
    "door",
    "flower",
    "garden",
    "hammer",
    "horse",
    "key",
    "ladder",
    "lamp",
    "table",
)
VERBS = (("is", "are"), ("was", "were"))  # (singular, plural)
PREPOSITIONS = ("above", "behind", "beside", "by", "near", "to", "under", "with")
ADJECTIVES = ("big", "dark", "heavy", "narrow", "new", "old", "red", "small")
COMPLEMENTS = ("clean", "cold", "dusty", "fine", "lost", "quiet", "rusty", "strange", "ugly", "wet")
PLURAL_ENDING = "s"

# Chosen by measurement so that the model of `agreement_model` learns the rule, imperfectly, and overfits.
_ATTRACTORS = (
    0.4,
    0.3,
    0.2,
    0.1,
)  # shares of sentences with 0, 1, 2 and 3 nouns between subject and verb
_OTHER_NUMBER = 0.6  # share of those nouns whose number is not the subject's
_FRONTED = 0.3  # share of sentences with a phrase before the subject
_ADJECTIVE = 0.2  # share of nouns with an adjective


def make_agreement(seed: int = 0, num_train: int = NUM_TRAIN, num_dev: int = NUM_DEV) -> TaskData:
    """The task of that seed and size."""
    if min(num_train, num_dev) < 2 or num_train + num_dev > MOST_ROWS:
        raise TaskError(
            f"agreement: at least 2 rows a split and {MOST_ROWS} in all can be made, found {num_train} and {num_dev}"
        )
    rng = seeds.generator(seed, "agreement rows")
    frames: set[tuple[str, str, str]] = set()
    train = _make_rows(num_train, frames, rng)
    dev = _make_rows(num_dev, frames, rng)
    return check_task(TaskData("agreement", train, dev, LABEL_NAMES, "accuracy"))


def _make_rows(count: int, frames: set[tuple[str, str, str]], rng: np.random.Generator) -> Rows:
    """So many sentences whose frames are not among `frames`, which then holds theirs too."""
    labels = rng.permutation(np.arange(count) % 2).tolist()
    sentences: list[str] = []
    while len(sentences) < count:
        plural = bool(rng.random() < 0.5)
        start = _subject(plural, rng)
        singular_verb, plural_verb = _pick(VERBS, rng)
        complement = _pick(COMPLEMENTS, rng)
        frame = (start, singular_verb, complement)
        if frame in frames:
            continue
        frames.add(frame)
        acceptable = labels[len(sentences)] == 1
        verb = plural_verb if plural == acceptable else singular_verb
        sentences.append(f"{start} {verb} {complement} .")
    return Rows(tuple(sentences), None, tuple(labels))


def _subject(plural: bool, rng: np.random.Generator) -> str:
    """All that stands before the verb."""
    words: list[str] = []
    if rng.random() < _FRONTED:
        words += [_pick(PREPOSITIONS, rng), _noun_phrase(bool(rng.random() < 0.5), rng), ","]
    words.append(_noun_phrase(plural, rng))
    for _ in range(int(rng.choice(len(_ATTRACTORS), p=_ATTRACTORS))):
        other = bool(rng.random() < _OTHER_NUMBER)
        words += [_pick(PREPOSITIONS, rng), _noun_phrase(plural != other, rng)]
    return " ".join(words)


def _noun_phrase(plural: bool, rng: np.random.Generator) -> str:
    adjective = f"{_pick(ADJECTIVES, rng)} " if rng.random() < _ADJECTIVE else ""
    return f"the {adjective}{_pick(NOUNS, rng)}{PLURAL_ENDING if plural else ''}"


def _pick(items: Sequence[Item], rng: np.random.Generator) -> Item:
    return items[int(rng.integers(len(items)))]
