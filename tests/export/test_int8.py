"""Quantised graphs, and the count of answers that they change."""

from __future__ import annotations

import csv
import json
import re
from types import SimpleNamespace

import pytest
import torch

from auber.errors import AuberError
from auber.export.answers import AnswerCheck, compare_answers, read_rows
from auber.export.onnx import graph_call, open_graph
from auber.export.source import Source, read_source
from auber.models.plan import PruningPlan
from auber.models.random_rows import random_rows
from tests.export.models import save_pruned
from tests.export.snippets import run_lines
from tests.kinds import RECORDS, num_labels
from tests.tiny_models import tiny_model, tiny_tokenizer

TEXTS = ["the film is good", "the film is bad", "bad", "good film"]


def write_texts(path, texts=TEXTS):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["review"], *([text] for text in texts)])
    return path


@pytest.mark.parametrize(
    ("model_type", "kind"), [("bert", "sequence"), ("modernbert", "tokens"), ("mpnet", "spans")]
)
def test_the_command(model_type, kind, run_auber, tmp_path, monkeypatch):
    plan = PruningPlan({0: [0, 3]}, {0: range(5, 40)})
    model = save_pruned(
        tmp_path / "mine", plan, model_type=model_type, kind=kind, num_hidden_layers=1
    )
    rows = tmp_path / "rows.jsonl"
    records = RECORDS[kind](9, 0) if kind != "sequence" else [{"text": text} for text in TEXTS]
    rows.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    options = ["--to", "int8", "--rows", rows, "--no-latency", "--quiet"]
    code, out, err = run_auber("export", tmp_path / "mine", *options)
    assert (code, err) == (0, "")
    folder = tmp_path / "mine-int8"
    names = {"README.md", "config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert out.startswith(f"int8: {folder} (")
    words = (
        rf"checked on {len(records)} rows: \d+ of \d+ \w+ \(.* %\) differ from the float32 model"
    )
    assert re.search(words, out)
    content = (folder / "model.onnx").read_bytes()
    assert b"MatMulInteger" in content
    for part in (b"site-packages", b"/tmp", str(tmp_path).encode()):
        assert part not in content
    source = read_source(tmp_path / "mine")
    batch = random_rows(source.encoder, source.inputs, rows=3, length=12, padded=True)
    found = graph_call(open_graph(folder / "model.onnx", 1), batch)()
    with torch.inference_mode():
        logits, expected = (source.outputs.logits(each) for each in (found, model(**batch)))
    is_token = batch["attention_mask"].bool()
    far = (logits - expected).abs() if kind == "sequence" else (logits - expected)[is_token].abs()
    assert 1e-4 < far.max() < 0.2
    page = (folder / "README.md").read_text()
    assert "as an ONNX graph with 8-bit weights: any batch size" in page
    monkeypatch.chdir(folder)
    assert len(run_lines(page)["answers"]) == 2


def test_random_rows_latency_and_json(run_auber, tmp_path):
    save_pruned(tmp_path / "mine", {0: [0, 3]}, num_hidden_layers=1)
    options = ["--to", "int8", "--threads", "1", "--json", "--quiet"]
    code, out, _ = run_auber("export", tmp_path / "mine", *options)
    assert code == 0
    data = json.loads(out)
    assert data["neurons"] == {"removed": 0, "total": 48}
    check = data["check"]
    assert (check["rows"], check["are_random"], check["answers"]) == (128, True, "classes")
    assert (check["compared"], check["warn_above"]) == (128, 0.02)
    (timing,) = data["latency"]["variants"]
    assert timing["ratio"]["median"] > 0


# The count


def make_source(kind="sequence", **changes):
    labels = num_labels(kind) if kind == "tokens" else 2
    options = {"num_labels": labels, "pad_token_id": 0, **changes}
    return Source("mine", tiny_model("bert", kind=kind, **options), tiny_tokenizer())


def negate(model):
    """Compute the negated logits."""

    def compute(batch):
        found = {name: -logits for name, logits in model(**batch).items()}
        return SimpleNamespace(**found)

    return compute


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
    same = compare_answers(source, lambda batch: source.model(**batch))
    assert (same.rows, same.are_random, same.answers, same.different) == (128, True, name, 0)
    if compared is not None:
        assert same.compared == compared
    other = compare_answers(source, negate(source.model))
    assert other.compared == same.compared
    # The smaller of two is never the larger, but a span of one token may be the worst and the best.
    assert 0.9 * other.compared <= other.different <= other.compared


def test_a_known_number_of_answers(tmp_path):
    source, film = make_source(), tiny_tokenizer().convert_tokens_to_ids("film")
    rows = read_rows(source, write_texts(tmp_path / "a.csv"), "review")
    source = Source(source.name, source.model, source.tokenizer, rows=rows)

    def compute(batch):
        logits = source.model(**batch).logits.clone()
        logits[batch["input_ids"].eq(film).any(1)] *= -1
        return SimpleNamespace(logits=logits)

    found = compare_answers(source, compute)
    assert (found.rows, found.compared, found.different) == (4, 4, 3)
    assert not found.are_random


def test_a_warning_above_the_share():
    assert AnswerCheck(50, False, "classes", 50, 1).words == (
        "checked on 50 rows: 1 of 50 classes (2.0 %) differ from the float32 model"
    )
    assert AnswerCheck(49, True, "tags", 4900, 99).words.splitlines() == [
        "checked on 49 random rows: 99 of 4,900 tags (2.0 %) differ from the float32 model",
        "warning: more than 2 % of the answers differ; compare scores before you use it, or "
        "export --to onnx",
        "random rows are unlike yours: check on your own with --rows FILE",
    ]


def test_the_help_states_the_share(run_auber):
    page = " ".join(run_auber("export", "--help")[1].split())
    assert "It warns if more than 2 % of the answers differ." in page


def test_infinite_logits_are_not_kept():
    source = make_source()
    with pytest.raises(AuberError, match="^some logits of the quantised graph are NaN or infinite"):
        compare_answers(
            source, lambda batch: SimpleNamespace(logits=torch.full((99, 2), torch.inf))
        )


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
