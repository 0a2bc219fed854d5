from __future__ import annotations

import logging
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from auber.data.encoding import (
    EncodedRows,
    encode_questions,
    encode_rows,
    encode_words,
    length_batches,
    pad_batch,
)
from auber.data.generated import build_tokenizer
from auber.data.rows import Answer, QuestionRows, Rows, WordRows
from auber.errors import ModelError, TaskError
from auber.metrics.tags import NO_TAG
from tests.tiny_models import tiny_tokenizer

PAIRS = Rows(
    ("the key is wet .", "the doors near the big key are cold ."),
    ("the key", "a key is lost"),
    (1, 0),
)
WORDS = WordRows((("the", "film", "is", "good", "!"), ("bad", "zoo")), ((0, 1, 2, 3, 4), (5, 6)))
NAMES = ("O", "B-A", "I-A", "B-B", "I-B", "B-C", "I-C")
CONTEXT = "zoo film is good the zoo"
ASKED = QuestionRows(("is it",), (CONTEXT,), ((Answer("good the", 12), Answer("zoo", 21)),))


@pytest.fixture(scope="module")
def wordpiece():
    return build_tokenizer()


@pytest.fixture(scope="module")
def encoded(wordpiece):
    return encode_rows(wordpiece, PAIRS, 64, is_regression=False)


def test_rows_are_the_tokenizers_without_padding(wordpiece, encoded):
    assert len(encoded) == 2
    for row in range(2):
        expected = dict(wordpiece(PAIRS.first[row], PAIRS.second[row]))
        assert encoded[row] == {**expected, "labels": PAIRS.labels[row]}
        assert encoded.lengths[row] == len(expected["input_ids"])
    assert (encoded.labels.dtype, encoded.num_cut) == (torch.int64, 0)


def test_pairs_are_cut_at_the_longer_text(wordpiece):
    cut = encode_rows(wordpiece, PAIRS, 9, is_regression=False)
    assert (cut.lengths, cut.num_cut) == ([9, 9], 2)
    assert wordpiece.decode(cut[0]["input_ids"]) == "[CLS] the key is wet [SEP] the key [SEP]"


def test_single_texts_and_regression_targets(wordpiece):
    rows = encode_rows(wordpiece, Rows(("the key",), None, (2.5,)), 64, is_regression=True)
    assert rows[0]["labels"] == 2.5
    assert rows.labels.dtype == torch.float32
    assert pad_batch([rows[0]], 0)["labels"].dtype == torch.float32


def test_a_tokenizer_may_have_no_segments(wordpiece):
    def plain(*texts, **options):
        return wordpiece(*texts, return_token_type_ids=False, **options)

    plain.pad_token_id = 0
    rows = encode_rows(plain, PAIRS, 64, is_regression=False)
    assert rows.token_types is rows.select([1]).token_types is None
    assert rows[0].keys() == {"input_ids", "attention_mask", "labels"}
    assert pad_batch([rows[0], rows[1]], 0).keys() == rows[0].keys()


def test_the_hash_is_pinned_and_depends_on_the_order(encoded):
    pinned = EncodedRows([[2, 7, 3], [2, 3]], [[0, 0, 1], [0, 1]], torch.tensor([1, 0]))
    expected = "9b8916b379ee7a21fe246875e339d25bcf3adb44c78ac6abbd9a063f389854b8"
    assert pinned.content_hash == expected
    assert encoded.content_hash != encoded.select([1, 0]).content_hash


@given(st.lists(st.integers(1, 128)), st.integers(1, 2000))
def test_batches_hold_every_row_once_within_the_budget(lengths, budget):
    batches = length_batches(lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget


def test_a_batch_is_as_wide_as_its_longest_row(wordpiece, encoded):
    collate = partial(pad_batch, pad_token_id=wordpiece.pad_token_id)
    (batch,) = DataLoader(encoded, batch_size=2, collate_fn=collate)
    reference = wordpiece(
        list(PAIRS.first), list(PAIRS.second), padding=True, return_tensors="pt"
    )  # fmt: skip
    assert batch.keys() == {"input_ids", "token_type_ids", "attention_mask", "labels"}
    assert all(torch.equal(batch[key], value) for key, value in reference.items())
    assert torch.equal(batch["labels"], torch.tensor([1, 0]))


def test_rows_may_be_tensors():
    rows = [
        {"input_ids": torch.tensor([1, 2, 3]), "labels": 0.5},
        {"input_ids": torch.tensor([4]), "labels": 1.0},
    ]
    batch = pad_batch(rows, pad_token_id=9)
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert batch["labels"].tolist() == [0.5, 1.0]


def trained_tokenizer(style):
    """Train a byte-level tokenizer, or one with marks for spaces, on the words of these tests."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    options = {"special_tokens": special, "show_progress": False}
    byte_level = []
    if style == "metaspace":
        made = Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=45, **options)
    else:
        made = Tokenizer(models.BPE())
        trim = {"trim_offsets": style == "trimmed"}
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, **trim)
        made.decoder = decoders.ByteLevel()
        byte_level = [processors.ByteLevel(**trim)]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=275, initial_alphabet=alphabet, **options)
    texts = [" ".join(words) for words in WORDS.words] + [CONTEXT, "is it"]
    made.train_from_iterator(texts * 20, trainer)
    pair = [("<s>", made.token_to_id("<s>")), ("</s>", made.token_to_id("</s>"))]
    template = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", pair)
    made.post_processor = processors.Sequence([*byte_level, template])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


@pytest.fixture(params=["wordpiece", "trimmed", "untrimmed", "metaspace"], scope="module")
def tokenizer(request):
    return tiny_tokenizer() if request.param == "wordpiece" else trained_tokenizer(request.param)


def joined(tokenizer, ids):
    """Return the text of tokens without spaces."""
    tokens = tokenizer.convert_ids_to_tokens(ids)
    return tokenizer.convert_tokens_to_string(tokens).replace(" ", "")


def test_a_words_tag_is_at_its_first_token(tokenizer):
    rows = encode_words(tokenizer, WORDS, 64, NAMES, "words")
    for row, (words, tags) in enumerate(zip(WORDS.words, WORDS.labels, strict=True)):
        ids, placed = rows.input_ids[row], rows[row]["labels"]
        assert [tag for tag in placed if tag != NO_TAG] == list(tags)
        assert len(ids) == len(placed)
        starts = [place for place, tag in enumerate(placed) if tag != NO_TAG]
        assert starts[0] == 1, "behind the token that begins every row"
        ends = [*starts[1:], len(ids) - 1]
        for word, start, end in zip(words, starts, ends, strict=True):
            assert joined(tokenizer, ids[start:end]).strip() == word or word == "!"


def test_words_that_are_cut_off_are_counted(caplog):
    with caplog.at_level(logging.WARNING):
        rows = encode_words(tiny_tokenizer(), WORDS, 5, NAMES, "a.conll")
    assert rows.lengths == [5, 5]
    assert [tag for tag in rows[0]["labels"] if tag != NO_TAG] == [0, 1, 2]
    assert caplog.messages == [
        "a.conll: 2 of 7 words have no token within max_length 5 and are neither learned "
        "nor scored; raise max_length"
    ]


def test_an_answer_is_the_tokens_that_overlap_it(tokenizer):
    rows = encode_questions(tokenizer, ASKED, 64, "qa: train")
    ids, (first, last) = rows.input_ids[0], rows.targets.contexts[0]
    for (start, end), text in zip(rows.targets.spans[0], ("good the", "zoo"), strict=True):
        assert first <= start <= end <= last
        assert joined(tokenizer, ids[start : end + 1]) == text.replace(" ", "")
    positions = rows[0]["start_positions"], rows[0]["end_positions"]
    assert positions == rows.targets.spans[0][0]
    assert joined(tokenizer, ids[first : last + 1]) == CONTEXT.replace(" ", "")


def test_an_answer_that_is_cut_in_two_is_dropped(caplog):
    with caplog.at_level(logging.WARNING):
        whole, cut, none = (
            encode_questions(tiny_tokenizer(), ASKED, length, "qa: train")
            for length in (16, 12, 11)
        )
    # [CLS] is i ##t [SEP] z ##o ##o film is good the z ##o ##o [SEP]
    assert whole.targets.spans[0] == [(10, 11), (12, 14)]
    assert cut.targets.spans == none.targets.spans == [[]]
    assert cut[0]["start_positions"] == cut[0]["end_positions"] == -100
    message = (
        "qa: train: 1 of 1 rows have no answer within max_length 12: they teach nothing and count "
        "as missed; raise max_length"
    )
    assert message in caplog.messages


def test_a_question_that_fills_the_window_is_refused():
    message = (
        "^qa: train row 0: the question's 3 tokens and 3 special ones leave no room for the "
        "context within max_length 6; raise max_length or shorten the question$"
    )
    with pytest.raises(TaskError, match=message):
        encode_questions(tiny_tokenizer(), ASKED, 6, "qa: train")


def test_tokenizers_that_cannot_be_used_are_refused():
    slow = SimpleNamespace(pad_token_id=0, is_fast=False)
    message = "^the tokenizer SimpleNamespace does not report which characters a token stands for, "
    with pytest.raises(ModelError, match=message):
        encode_words(slow, WORDS, 8, NAMES, "words")
    with pytest.raises(ModelError, match=message):
        encode_questions(slow, ASKED, 8, "qa")
    unpadded = SimpleNamespace(pad_token_id=None)
    message = "^the tokenizer SimpleNamespace has no padding token, .*; set tokenizer.pad_token$"
    with pytest.raises(ModelError, match=message):
        encode_rows(unpadded, PAIRS, 64, is_regression=False)


def test_copies_with_noise():
    ids = [[2, 10 + row, 20 + row, 3, *range(100, 150)] for row in range(4)]
    rows = EncodedRows(ids, None, torch.tensor([0, 1, 1, 0]))

    def read(noisy):
        return [noisy[row]["input_ids"] for row in range(len(noisy))]

    noisy = rows.with_noise(2, 0.2, [2, 3], seed=5)
    assert noisy.labels.tolist() == [0, 1, 1, 0] * 3
    first, second = read(noisy), read(noisy)
    for found in (first, second):
        assert found[:4] == ids
        copies = torch.tensor(found[4:])
        differs = copies != torch.tensor(ids * 2)
        assert not differs[:, [0, 3]].any()
        assert 0.1 < differs.float().mean() < 0.3
        assert set(copies.flatten().tolist()) <= {token for row in ids for token in row}
        assert not torch.equal(copies[:4], copies[4:])
    assert first[4:] != second[4:], "the noise changes at each reading"
    assert read(rows.with_noise(2, 0.2, [2, 3], seed=5)) == first
    assert read(rows.with_noise(2, 0.2, [2, 3], seed=6)) != first
