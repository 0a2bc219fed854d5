from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
import torch

from auber.data.task_types import TASK_TYPES
from auber.errors import ConfigError
from auber.export import graph
from auber.export.graph import GIVES, graph_call, open_graph, write_graph
from auber.models.encoders import encoder_of
from auber.models.random_rows import random_rows
from auber.models.surgery import remove_heads
from auber.training.outputs import OUTPUTS
from tests.kinds import num_labels
from tests.tiny_models import MODEL_TYPES, tiny_model

SHAPES = [(1, 1, False), (1, 5, True), (2, 8, False), (7, 21, True)]


def inputs_of(kind):
    return (
        "input_ids",
        "attention_mask",
        *(["token_type_ids"] if kind in ("bert", "electra") else []),
    )


# a graph takes seconds to write, and these two compute as RoBERTa does, line by line
COPIES = ("camembert", "xlm-roberta")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if kind in COPIES else ()) for kind in MODEL_TYPES],
)
def test_every_family_with_uneven_heads(kind, tmp_path, capfd, caplog):
    model = tiny_model(kind, **{"n_layers" if kind == "distilbert" else "num_hidden_layers": 2})
    remove_heads(model, {0: [0, 3], 1: [1]})
    write_graph(model, tmp_path / "model.onnx", inputs_of(kind))
    session = open_graph(tmp_path / "model.onnx", threads=1)
    assert capfd.readouterr() == ("", "")
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ] == []
    assert [(each.name, each.shape) for each in session.get_inputs()] == [
        (name, ["batch", "length"]) for name in inputs_of(kind)
    ]
    for rows, length, padded in SHAPES:
        batch = random_rows(
            encoder_of(model), inputs_of(kind), rows=rows, length=length, padded=padded
        )
        with torch.inference_mode():
            expected = model(**batch).logits
        assert torch.allclose(graph_call(session, batch)().logits, expected, atol=1e-4)


# what each gives, and a family beside BERT's that masks in another way
KIND_OUTPUTS = {
    "tokens": ("modernbert", [("logits", ["batch", "length", 5])]),
    "spans": (
        "deberta-v2",
        [("start_logits", ["batch", "length"]), ("end_logits", ["batch", "length"])],
    ),
}


@pytest.mark.parametrize("model_type", ["bert", "other"])
@pytest.mark.parametrize("kind", KIND_OUTPUTS)
def test_models_that_answer_token_by_token(kind, model_type, tmp_path):
    other, gives = KIND_OUTPUTS[kind]
    model_type = other if model_type == "other" else model_type
    model = tiny_model(model_type, kind=kind, num_hidden_layers=2, num_labels=num_labels(kind))
    remove_heads(model, {0: [0, 3], 1: [1]})
    write_graph(model, tmp_path / "model.onnx", inputs_of(model_type))
    session = open_graph(tmp_path / "model.onnx", threads=1)
    assert [(each.name, each.shape) for each in session.get_outputs()] == gives
    for rows, length, padded in SHAPES:
        batch = random_rows(
            encoder_of(model), inputs_of(model_type), rows=rows, length=length, padded=padded
        )
        with torch.inference_mode():
            outputs = graph_call(session, batch)(), model(**batch)
        found, expected = (
            OUTPUTS[kind].pack(OUTPUTS[kind].logits(output), batch["attention_mask"])
            for output in outputs
        )
        assert torch.allclose(found, expected, atol=1e-4)


def test_every_kind_has_its_outputs():
    assert GIVES.keys() == TASK_TYPES.keys()


def test_a_layer_without_heads(tmp_path):
    model = tiny_model("bert", num_hidden_layers=1).to(torch.bfloat16)
    remove_heads(model, {0: [0, 1, 2, 3]}, allow_empty_layers=True)
    write_graph(model, tmp_path / "model.onnx", inputs_of("bert"))
    batch = random_rows(encoder_of(model), inputs_of("bert"), rows=3, length=8, padded=True)
    assert model.dtype == torch.bfloat16  # what the caller has stays as it was
    with torch.inference_mode():
        expected = model.float()(**batch).logits
    found = graph_call(open_graph(tmp_path / "model.onnx", 1), batch)().logits
    assert torch.allclose(found, expected, atol=1e-4)


def test_packages_that_are_not_there_are_named(monkeypatch):
    monkeypatch.setattr(graph, "find_spec", lambda name: None if name == "onnxscript" else object())
    message = r"^--to onnx needs onnxscript, not installed here; pip install 'auber\[onnx\]'$"
    with pytest.raises(ConfigError, match=message):
        graph.require_packages("--to onnx")


def test_onnxruntime_reports_to_nobody():
    code = (
        "import os, sys, pathlib; from auber.export.graph import open_graph; assert 'onnxruntime' not in sys.modules\n"
        "try:\n    open_graph(pathlib.Path('no such file'), 1)\n"
        "except Exception:\n    assert 'onnxruntime' in sys.modules; print(os.environ['ORT_DISABLE_TELEMETRY'])\n"
    )
    environment = {
        name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "1\n"
