"""The generated task, subject-verb agreement, with its tokenizer and a small untrained encoder.

`the keys to the cabinet near the doors are rusty .` is acceptable; with `is` it is not. Nouns
between subject and verb, and sometimes one before the subject, distract.

The rows depend only on the seed and the sizes. Both labels are equally frequent in each split. No
two rows share a frame (the sentence without the number of its verb), so neither a sentence nor its
counterpart with the other label is in both splits.

The plural ending is a token of its own (`key`, `##s`), so number is learned once and not for each
noun. Trained with the settings below, the model reaches 84 to 93 % on the dev rows of seeds 0 to 4
and 99 % on the training rows, in about 16 s on one CPU core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from auber.data.rows import Rows
from auber.data.task import TaskData, check_task
from auber.system import seeds

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification, BertTokenizerFast

Item = TypeVar("Item")

LABEL_NAMES = ("unacceptable", "acceptable")
NUM_TRAIN = 600
NUM_DEV = 400

NOUNS = (
    "apple", "bell", "bird", "boat", "book", "bottle", "cabinet", "candle", "chair", "clock",
    "coin", "door", "flower", "garden", "hammer", "horse", "key", "ladder", "lamp", "table",
)  # fmt: skip
VERBS = (("is", "are"), ("was", "were"))  # (singular, plural)
PREPOSITIONS = ("above", "behind", "beside", "by", "near", "to", "under", "with")
ADJECTIVES = ("big", "dark", "heavy", "narrow", "new", "old", "red", "small")
COMPLEMENTS = ("clean", "cold", "dusty", "fine", "lost", "quiet", "rusty", "strange", "ugly", "wet")
PLURAL_ENDING = "s"

# Chosen by measurement: the model below learns the rule, imperfectly, and overfits.
_DISTRACTORS = (0.4, 0.3, 0.2, 0.1)  # P(0, 1, 2 or 3 nouns between subject and verb)
_OTHER_NUMBER = 0.6  # P(such a noun has not the subject's number)
_FRONTED = 0.3  # P(a phrase before the subject)
_ADJECTIVE = 0.2  # P(an adjective before a noun)

# The model and its training.
NUM_LAYERS = 4
NUM_HEADS = 8
HIDDEN_SIZE = 64
MAX_LENGTH = 64
EPOCHS = 25
LEARNING_RATE = 1e-3
BATCH_SIZE = 32

_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def make_agreement(seed: int = 0, num_train: int = NUM_TRAIN, num_dev: int = NUM_DEV) -> TaskData:
    """Return the task of this seed and these sizes."""
    rng = seeds.generator(seed, "agreement rows")
    frames: set[tuple[str, str, str]] = set()
    train = _make_rows(num_train, frames, rng)
    dev = _make_rows(num_dev, frames, rng)
    return check_task(TaskData("agreement", train, dev, LABEL_NAMES, "accuracy"))


def _make_rows(count: int, frames: set[tuple[str, str, str]], rng: np.random.Generator) -> Rows:
    """Return sentences whose frames are not in `frames`, and add theirs to it."""
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
    """Return everything before the verb."""
    words: list[str] = []
    if rng.random() < _FRONTED:
        words += [_pick(PREPOSITIONS, rng), _noun_phrase(bool(rng.random() < 0.5), rng), ","]
    words.append(_noun_phrase(plural, rng))
    for _ in range(int(rng.choice(len(_DISTRACTORS), p=_DISTRACTORS))):
        other = bool(rng.random() < _OTHER_NUMBER)
        words += [_pick(PREPOSITIONS, rng), _noun_phrase(plural != other, rng)]
    return " ".join(words)


def _noun_phrase(plural: bool, rng: np.random.Generator) -> str:
    adjective = f"{_pick(ADJECTIVES, rng)} " if rng.random() < _ADJECTIVE else ""
    return f"the {adjective}{_pick(NOUNS, rng)}{PLURAL_ENDING if plural else ''}"


def _pick(items: Sequence[Item], rng: np.random.Generator) -> Item:
    return items[int(rng.integers(len(items)))]


def vocabulary() -> dict[str, int]:
    """Return every token with its number."""
    verbs = [form for forms in VERBS for form in forms]
    words = {"the", ",", ".", *NOUNS, *verbs, *PREPOSITIONS, *ADJECTIVES, *COMPLEMENTS}
    tokens = (*_SPECIAL_TOKENS, f"##{PLURAL_ENDING}", *sorted(words))
    return {token: number for number, token in enumerate(tokens)}


def build_tokenizer() -> BertTokenizerFast:
    """Return a WordPiece tokenizer that knows only the words of the task."""
    from transformers import BertTokenizerFast

    # vocab, not vocab_file, which transformers 5 ignores silently.
    return BertTokenizerFast(vocab=vocabulary(), do_lower_case=True, model_max_length=MAX_LENGTH)


def build_model(num_labels: int = len(LABEL_NAMES), seed: int = 0) -> BertForSequenceClassification:
    """Return an untrained BERT classifier, whose weights depend only on the seed."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    tokens = vocabulary()
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=NUM_HEADS,
        intermediate_size=2 * HIDDEN_SIZE,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=tokens["[PAD]"],
        num_labels=num_labels,
        # BERT's 0.02 is meant for width 768. At this width, training would memorise first.
        initializer_range=0.05,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.derive(seed, "agreement model"))
        return BertForSequenceClassification(config)
