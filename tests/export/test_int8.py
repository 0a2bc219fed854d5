"""Whole exports of quantised graphs, through the command line."""

from __future__ import annotations

import json
import re

import pytest
import torch

from auber.export.onnx import Graph
from auber.export.source import read_source
from auber.models.plan import PruningPlan
from auber.models.random_rows import random_rows
from tests.export.models import save_pruned
from tests.export.snippets import run_lines
from tests.kinds import RECORDS

TEXTS = ["the film is good", "the film is bad", "bad", "good film"]


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [("bert", "sequence"), ("modernbert", "tokens"), ("mpnet", "spans"), ("bert", "embeddings")],
)
def test_the_command(model_type, kind, run_auber, tmp_path, monkeypatch):
    plan = PruningPlan({0: [0, 3]}, {0: range(5, 40)})
    model = save_pruned(
        tmp_path / "mine", plan, model_type=model_type, kind=kind, num_hidden_layers=1
    )
    rows = tmp_path / "rows.jsonl"
    records = RECORDS[kind](9, 0) if kind in RECORDS else [{"text": text} for text in TEXTS]
    rows.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    options = ["--to", "int8", "--rows", rows, "--no-latency", "--quiet"]
    code, out, err = run_auber("export", tmp_path / "mine", *options)
    assert (code, err) == (0, "")
    folder = tmp_path / "mine-int8"
    names = {"README.md", "config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert out.startswith(f"int8: {folder} (")
    words = rf"checked on {len(records)} rows: \d+ of \d+ [a-z ]+ \(.* %\) differ from the float32"
    assert re.search(words, out)
    content = (folder / "model.onnx").read_bytes()
    assert b"MatMulInteger" in content
    for part in (b"site-packages", b"/tmp", str(tmp_path).encode()):
        assert part not in content
    source = read_source(tmp_path / "mine")
    batch = random_rows(source.encoder, source.inputs, rows=3, length=12, padded=True)
    found = Graph(folder / "model.onnx", 1)(**batch)
    with torch.inference_mode():
        logits, expected = (
            source.outputs.pack(source.outputs.logits(each), batch["attention_mask"])
            for each in (found, model(**batch))
        )
    assert 1e-4 < (logits - expected).abs().max() < 0.2
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
