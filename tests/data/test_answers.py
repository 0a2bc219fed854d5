"""Words and questions as tokens, whatever way a tokenizer cuts them."""

from __future__ import annotations

import logging

import pytest
import torch

from auber.data.encoding import encode_questions, encode_rows, encode_split, encode_words
from auber.data.rows import Answer, QuestionRows, WordRows
from auber.data.user_rows import make_task
from auber.errors import ModelError, TaskError
from auber.metrics.tags import NO_TAG
from tests.kinds import random_kind_rows, small_kind_task
from tests.tiny_models import tiny_tokenizer

WORDS = WordRows((("the", "film", "is", "good", "!"), ("bad", "zoo")), ((0, 1, 2, 3, 4), (5, 6)))
NAMES = ("O", "B-A", "I-A", "B-B", "I-B", "B-C", "I-C")
CONTEXT = "zoo film is good the zoo"
ASKED = QuestionRows(("is it",), (CONTEXT,), ((Answer("good the", 12), Answer("zoo", 21)),))


def trained_tokenizer(kind):
    """A tokenizer of another make, trained on the words of these tests: byte-level, or with marks for spaces."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "metaspace":
        made = Tokenizer(models.BPE(unk_token="<unk>"))
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=45, special_tokens=special, show_progress=False)
    else:
        made = Tokenizer(models.BPE())
        made.decoder = decoders.ByteLevel()
        made.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=False, trim_offsets=kind == "trimmed"
        )
        trainer = trainers.BpeTrainer(
            vocab_size=275,
            special_tokens=special,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    texts = [" ".join(words) for words in WORDS.words] + [CONTEXT, "is it"]
    made.train_from_iterator(texts * 20, trainer)
    pair = [("<s>", made.token_to_id("<s>")), ("</s>", made.token_to_id("</s>"))]
    byte_level = (
        [processors.ByteLevel(trim_offsets=kind == "trimmed")] if kind != "metaspace" else []
    )
    template = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", pair)
    made.post_processor = processors.Sequence([*byte_level, template])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


TOKENIZERS = {
    "wordpiece": tiny_tokenizer,
    "trimmed": lambda: trained_tokenizer("trimmed"),
    "untrimmed": lambda: trained_tokenizer("untrimmed"),
    "metaspace": lambda: trained_tokenizer("metaspace"),
}


@pytest.fixture(params=TOKENIZERS, scope="module")
def tokenizer(request):
    return TOKENIZERS[request.param]()


def test_a_words_tag_stands_at_its_first_token(tokenizer):
    rows = encode_words(tokenizer, WORDS, 64, NAMES)
    for row, (words, tags) in enumerate(zip(WORDS.words, WORDS.tags, strict=True)):
        placed = rows[row]["labels"]
        assert [tag for tag in placed if tag != NO_TAG] == list(tags)
        tokens = tokenizer.convert_ids_to_tokens(rows.input_ids[row])
        assert len(tokens) == len(placed)
        starts = [place for place, tag in enumerate(placed) if tag != NO_TAG]
        assert starts[0] == 1, "behind the token every row begins with"
        for number, (start, end) in enumerate(
            zip(starts, [*starts[1:], len(tokens) - 1], strict=True)
        ):
            piece = tokenizer.convert_tokens_to_string(tokens[start:end])
            assert piece.replace(" ", "").strip() == words[number] or words[number] == "!"


def test_pieces_of_a_word_have_no_tag():
    rows = encode_words(tiny_tokenizer(), WORDS, 64, NAMES)
    assert rows[1]["labels"] == [NO_TAG, 5, 6, NO_TAG, NO_TAG, NO_TAG]  # [CLS] bad z ##o ##o [SEP]


def test_words_that_are_cut_off_are_counted(caplog):
    with caplog.at_level(logging.WARNING):
        rows = encode_words(tiny_tokenizer(), WORDS, 5, NAMES)
    assert rows.lengths == [5, 5]
    assert [tag for tag in rows[0]["labels"] if tag != NO_TAG] == [0, 1, 2]
    assert caplog.messages == [
        "2 of 7 words have no token within max_length 5 and are neither learned nor scored; raise max_length"
    ]


def test_an_answer_is_the_tokens_that_share_its_characters(tokenizer):
    rows = encode_questions(tokenizer, ASKED, 64, "qa: train")
    for (start, end), text in zip(rows.targets.spans[0], ("good the", "zoo"), strict=True):
        first, last = rows.targets.contexts[0]
        assert first <= start <= end <= last
        tokens = tokenizer.convert_ids_to_tokens(rows.input_ids[0][start : end + 1])
        assert tokenizer.convert_tokens_to_string(tokens).replace(" ", "") == text.replace(" ", "")
    assert rows[0]["start_positions"] == rows.targets.spans[0][0][0]
    assert rows[0]["end_positions"] == rows.targets.spans[0][0][1]
    context = tokenizer.convert_ids_to_tokens(rows.input_ids[0][first : last + 1])
    assert tokenizer.convert_tokens_to_string(context).replace(" ", "") == CONTEXT.replace(" ", "")


def test_an_answer_that_is_cut_in_two_is_none(caplog):
    with caplog.at_level(logging.WARNING):
        whole, cut, none = (
            encode_questions(tiny_tokenizer(), ASKED, length, "qa: train")
            for length in (16, 12, 11)
        )
    # [CLS] is i ##t [SEP] z ##o ##o film is good the z ##o ##o [SEP]
    assert whole.targets.spans[0] == [(10, 11), (12, 14)]
    assert cut.targets.spans == [[]]
    assert none.targets.spans == [[]]
    assert cut[0]["start_positions"] == cut[0]["end_positions"] == -100
    message = "qa: train: 1 of 1 rows have no answer within max_length 12: they teach nothing and count as missed; raise max_length"
    assert message in caplog.messages


def test_a_question_that_fills_the_window_is_refused():
    message = r"^qa: train row 0: the question's 3 tokens and 3 special ones leave no room for the context within max_length 6;"
    with pytest.raises(TaskError, match=message):
        encode_questions(tiny_tokenizer(), ASKED, 6, "qa: train")


def test_a_tokenizer_that_does_not_know_its_characters_is_refused():
    class Slow:
        pad_token_id, is_fast = 0, False

    for encode in (
        lambda: encode_words(Slow(), WORDS, 8, NAMES),
        lambda: encode_questions(Slow(), ASKED, 8, "qa"),
    ):
        with pytest.raises(
            ModelError,
            match=r"^the tokenizer Slow does not say which characters a token stands for",
        ):
            encode()


@pytest.mark.parametrize("kind", ["tokens", "spans"])
def test_rows_of_these_kinds_have_no_label_for_a_row(kind):
    rows = random_kind_rows(kind)
    assert not rows.is_regression
    with pytest.raises(
        TaskError,
        match=rf"^rows of kind {kind} have no label for a whole row; give rows of kind sequence$",
    ):
        _ = rows.labels
    with pytest.raises(
        TaskError,
        match=rf"^rows of kind sequence are needed here, found rows of kind {kind}; give texts",
    ):
        encode_rows(tiny_tokenizer(), small_kind_task(kind).train, 32, False)


@pytest.mark.parametrize("kind", ["tokens", "spans"])
def test_selected_rows_keep_their_answers(kind):
    rows = random_kind_rows(kind)
    part = rows.select([3, 1])
    assert [part[0], part[1]] == [rows[3], rows[1]]
    assert part.content_hash != rows.select([1, 3]).content_hash
    assert rows.select(range(len(rows))).content_hash == rows.content_hash


def test_the_kind_of_a_task_decides_how_it_is_encoded():
    rows = [{"text": "good film", "label": "yes"}, {"text": "bad", "label": "no"}]
    task = make_task(rows, rows)
    assert torch.equal(encode_split(tiny_tokenizer(), task, "dev", 16).labels, torch.tensor([1, 0]))
    for kind in ("tokens", "spans"):
        task = small_kind_task(kind)
        for split, count in (("train", 60), ("dev", 20)):
            encoded = encode_split(tiny_tokenizer(), task, split, 64)
            assert (encoded.kind, len(encoded)) == (kind, count)
