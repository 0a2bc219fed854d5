"""What an export must pass: the same logits, or a count of the answers that differ."""

from __future__ import annotations

import copy
import csv
import sys
from types import SimpleNamespace

import pytest
import torch

from auber.errors import AuberError, CheckpointError
from auber.export import TARGETS, export_model
from auber.export.checks import AnswerCheck, check_answers, largest_difference, read_rows
from auber.export.source import Source
from tests.kinds import num_labels
from tests.tiny_models import tiny_model, tiny_tokenizer

TEXTS = ["the film is good", "the film is bad", "bad", "good film"]

# Logits


@pytest.fixture(scope="module")
def source():
    return Source("mine", tiny_model("bert", pad_token_id=0), tiny_tokenizer())


@pytest.fixture
def export(source, monkeypatch):
    """Export to a file, and compute the model's logits with it, or shifted ones."""

    def export(place, shift=0.0):
        def write(source, folder):
            (folder / "weights").write_text("1234")

        def load(source, folder):
            assert (folder / "weights").read_text() == "1234"
            return lambda **batch: SimpleNamespace(logits=source.model(**batch).logits + shift)

        target = SimpleNamespace(write=write, load=load)
        monkeypatch.setitem(sys.modules, "auber.export.nothing", target)
        monkeypatch.setitem(TARGETS, "nothing", "for a test")
        monkeypatch.setattr("auber.export.source.read_source", lambda run: source)
        return export_model("mine", "nothing", out=place)

    return export


def test_a_correct_export_is_kept(export, tmp_path):
    (tmp_path / "new" / "here").mkdir(parents=True)  # an empty folder may exist
    exported = export(tmp_path / "new" / "here", shift=0.0009)
    assert exported.files == {"weights": 4}
    assert exported.check.largest_difference == pytest.approx(0.0009, rel=1e-3)
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "here", "weights"]


@pytest.mark.parametrize(("shift", "found"), [(0.0011, "0.0011"), (float("nan"), "nan")])
def test_other_logits_are_not_kept(export, tmp_path, shift, found):
    message = (
        "^mine: the exported logits must be the model's own to 0.001, found a difference of "
        f"{found}; nothing was kept"
    )
    with pytest.raises(CheckpointError, match=message):
        export(tmp_path / "here", shift)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(export, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        message = (
            f"{place.name}: must be a new or an empty folder; choose another folder for --out$"
        )
        with pytest.raises(CheckpointError, match=message):
            export(place)
    with pytest.raises(
        CheckpointError, match="there: cannot be written .*; choose another folder$"
    ):
        export(tmp_path / "file" / "there")


@pytest.mark.parametrize("shift", [0.25, float("nan")])
def test_the_largest_difference_of_all_batches(source, shift):
    def almost(**batch):
        logits = source.model(**batch).logits.clone()
        if len(logits) == 5:  # in one batch only
            logits[3, 1] += shift
        return SimpleNamespace(logits=logits)

    assert largest_difference(source, almost) == pytest.approx(shift, nan_ok=True)


@pytest.mark.parametrize("side", ["start_logits", "end_logits"])
def test_tokens_are_compared_and_padding_is_not(side):
    model = tiny_model("bert", kind="spans", pad_token_id=0)
    source = Source("mine", model, tiny_tokenizer())

    def shift(batch, at_tokens, at_padding):
        output = model(**batch)
        is_token = batch["attention_mask"].bool()
        getattr(output, side).add_(torch.where(is_token, at_tokens, at_padding))
        return output

    assert largest_difference(source, lambda **batch: shift(batch, 0.0, float("nan"))) == 0
    found = largest_difference(source, lambda **batch: shift(batch, 0.25, 0.0))
    assert found == pytest.approx(0.25, rel=1e-4)


def test_a_model_in_bfloat16_is_compared_in_float32():
    model = tiny_model("bert", pad_token_id=0).to(torch.bfloat16)
    exact = tiny_model("bert", pad_token_id=0).to(torch.bfloat16).float()
    source = Source("mine", model, tiny_tokenizer())
    assert largest_difference(source, lambda **batch: exact(**batch)) == 0
    assert model.dtype == torch.bfloat16


# Answers


def write_texts(path, texts=TEXTS):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["review"], *([text] for text in texts)])
    return path


def make_source(kind="sequence", **changes):
    labels = num_labels(kind) if kind == "tokens" else 2
    options = {"num_labels": labels, "pad_token_id": 0, **changes}
    return Source("mine", tiny_model("bert", kind=kind, **options), tiny_tokenizer())


class Negated(torch.nn.Module):
    """Compute the negated logits."""

    device = torch.device("cpu")

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **batch):
        found = {name: -logits for name, logits in self.model(**batch).items()}
        return SimpleNamespace(**found)


@pytest.mark.parametrize(
    ("kind", "changes", "name", "compared"),
    [
        ("sequence", {}, "classes", 128),
        ("sequence", {"num_labels": 1}, "orders of two rows", 128 * 127 // 2),
        ("tokens", {}, "tags", None),
        ("spans", {}, "spans", 128),
    ],
)
def test_answers_of_every_kind_are_counted(kind, changes, name, compared):
    source = make_source(kind, **changes)
    same = check_answers(source, source.model, None)
    assert (same.rows, same.are_random, same.answers, same.different) == (128, True, name, 0)
    if compared is not None:
        assert same.compared == compared
    other = check_answers(source, Negated(source.model), None)
    assert other.compared == same.compared
    # The smaller of two is never the larger, but a span of one token may be the worst and the best.
    assert 0.9 * other.compared <= other.different <= other.compared


def test_a_known_number_of_answers(tmp_path):
    source, film = make_source(), tiny_tokenizer().convert_tokens_to_ids("film")
    rows = read_rows(source, write_texts(tmp_path / "a.csv"), "review")

    class Changed(Negated):
        def forward(self, **batch):
            logits = self.model(**batch).logits.clone()
            logits[batch["input_ids"].eq(film).any(1)] *= -1
            return SimpleNamespace(logits=logits)

    found = check_answers(source, Changed(source.model), rows)
    assert (found.rows, found.compared, found.different) == (4, 4, 3)
    assert not found.are_random


def test_a_warning_above_the_share():
    assert "0 of 0 tags (0.0 %) differ" in AnswerCheck(1, False, "tags", 0, 0).words
    assert AnswerCheck(50, False, "classes", 50, 1).words == (
        "checked on 50 rows: 1 of 50 classes (2.0 %) differ from the float32 model"
    )
    assert AnswerCheck(49, True, "tags", 4900, 99).words.splitlines() == [
        "checked on 49 random rows: 99 of 4,900 tags (2.0 %) differ from the float32 model",
        "warning: more than 2 % of the answers differ; compare scores before you use it, or "
        "export --to onnx",
        "random rows are unlike yours: check on your own with --rows FILE",
    ]


def test_infinite_logits_are_not_kept():
    source = make_source()
    with torch.no_grad():
        broken = copy.deepcopy(source.model)
        broken.classifier.bias.fill_(torch.inf)
    message = "^mine: some logits of the quantised graph are NaN or infinite; nothing was kept"
    with pytest.raises(AuberError, match=message):
        check_answers(source, broken, None)


@pytest.mark.parametrize(
    ("kind", "name", "content", "text", "message"),
    [
        ("sequence", "a.csv", "review\nx\ny\n", None, "a.csv: Unknown column 'text'"),
        ("sequence", "a.csv", "text\nx\n", None, "at least two rows are needed, found 1; add some"),
        (
            "sequence",
            "a.jsonl",
            '{"text": 3}\n',
            None,
            "line 1, column 'text': must be text, found",
        ),
        ("sequence", "a.csv", 'text\nx\n" "\n', None, "line 3, column 'text': the text is empty"),
        (
            "spans",
            "a.csv",
            "a\nx\ny\n",
            "a",
            "--text: rows of kind spans have the text columns que",
        ),
        ("tokens", "a.csv", "tokens\nx\ny\n", None, "line 2, column 'tokens': has no words"),
    ],
)
def test_rows_that_cannot_be_read(kind, name, content, text, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(AuberError, match=message):
        read_rows(make_source(kind), tmp_path / name, text)
