from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from auber.data.task_types import TASK_TYPES
from auber.errors import CheckpointError
from auber.export import onnx
from auber.export.onnx import OUTPUT_NAMES, Graph, write_graph
from auber.export.pages import NOUNS
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.pooling import Pooling
from auber.models.random_rows import random_rows
from auber.models.surgery import remove
from auber.training.outputs import outputs_of
from tests.export.models import save_pruned
from tests.export.snippets import own_answers, run_lines
from tests.kinds import TAGS, num_labels
from tests.tiny_models import tiny_model, tiny_tokenizer

BOTH = PruningPlan({0: [0, 3], 1: [1]}, {0: range(5, 40), 1: [7]})
SHAPES = [(1, 1, False), (1, 5, True), (2, 8, False), (7, 21, True)]
# A graph takes seconds to write. The whole exports below are of BERT, whose code path the other
# families share.
CASES = [
    ("mpnet", "sequence", PruningPlan({0: [0, 3]}, {0: range(5, 40)})),
    ("modernbert", "tokens", BOTH),  # a global and a local layer
    ("bert", "embeddings", BOTH),
    ("deberta-v2", "spans", PruningPlan({0: [0, 3]}, {0: range(5, 40)})),
    *(
        pytest.param(model_type, "sequence", BOTH, marks=pytest.mark.slow)
        for model_type in ("bert", "distilbert", "electra", "roberta")
    ),
]


def inputs_of(model_type):
    types = ["token_type_ids"] if model_type in ("bert", "electra") else []
    return ("input_ids", "attention_mask", *types)


@pytest.mark.parametrize(("model_type", "kind", "plan"), CASES)
def test_a_graph_without_some_units(model_type, kind, plan, tmp_path, capfd, caplog):
    layers = "n_layers" if model_type == "distilbert" else "num_hidden_layers"
    model = tiny_model(
        model_type, kind=kind, num_labels=num_labels(kind), **{layers: len(plan.heads)}
    )
    remove(model, plan)
    inputs, outputs = inputs_of(model_type), outputs_of(kind)
    write_graph(model, tmp_path / "model.onnx", inputs)
    graph = Graph(tmp_path / "model.onnx", threads=1)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    axes = ["batch", "length"]
    assert [(each.name, each.shape) for each in graph.session.get_inputs()] == [
        (name, axes) for name in inputs
    ]
    assert [each.name for each in graph.session.get_outputs()] == list(OUTPUT_NAMES[kind])
    for rows, length, padded in SHAPES:
        batch = random_rows(encoder_of(model), inputs, rows=rows, length=length, padded=padded)
        with torch.inference_mode():
            found, expected = (
                outputs.pack(outputs.logits(each(**batch)), batch["attention_mask"])
                for each in (graph, model)
            )
        assert torch.allclose(found, expected, atol=1e-4)


def test_a_layer_without_any_unit(tmp_path):
    model = tiny_model("bert", num_hidden_layers=1).to(torch.bfloat16)
    remove(model, PruningPlan({0: range(4)}, {0: range(48)}), allow_empty_layers=True)
    write_graph(model, tmp_path / "model.onnx", inputs_of("bert"))
    batch = random_rows(encoder_of(model), inputs_of("bert"), rows=3, length=8, padded=True)
    assert model.dtype == torch.bfloat16  # the caller's model is unchanged
    with torch.inference_mode():
        expected = model.float()(**batch).logits
    found = Graph(tmp_path / "model.onnx", 1)(**batch).logits
    assert torch.allclose(found, expected, atol=1e-4)


def test_onnxruntime_sends_no_telemetry(monkeypatch):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    seen = []
    module = SimpleNamespace(
        SessionOptions=SimpleNamespace,
        InferenceSession=lambda *_, **__: seen.append(os.environ["ORT_DISABLE_TELEMETRY"]),
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    Graph(Path("model.onnx"), 1)
    assert seen == ["1"]


def test_a_graph_that_torch_cannot_write(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise torch.onnx.errors.OnnxExporterError("no such operator\nand much more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    message = (
        r"^BertForSequenceClassification: torch cannot write it as an ONNX graph "
        r"\(no such operator\); try the"
    )
    with pytest.raises(CheckpointError, match=message):
        write_graph(tiny_model("bert"), tmp_path / "model.onnx", inputs_of("bert"))


# Whole exports, through the command line


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export a tiny model of a task type, once."""
    done = {}

    def export(kind, run_auber):
        if kind not in done:
            place = tmp_path_factory.mktemp(kind) / "mine"
            # One layer, because a graph takes a second longer to write for each; weights with which
            # words differ in their tags.
            plan = PruningPlan({0: [0, 3]}, {0: range(5)})
            model = save_pruned(place, plan, kind=kind, num_hidden_layers=1, seed=2)
            options = ["--threads", "1"] if kind == "sequence" else ["--no-latency"]
            result = run_auber("export", place, "--to", "onnx", *options)
            done[kind] = model, result, place.with_name("mine-onnx")
        return done[kind]

    return export


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_the_folder_and_its_page(kind, exported, run_auber, monkeypatch):
    model, (code, out, err), folder = exported(kind, run_auber)
    assert code == 0
    assert re.search(r"checked on 17 random rows: largest logit difference \d\S* \(allowed: 0", out)
    if kind == "sequence":
        assert re.search(
            r"latency in onnxruntime, one row of 28 tokens: \S* ms; \S* ms in float32 with zeros",
            out,
        )
        assert "times as fast" in out
        assert "latency: " in err
    else:
        assert "latency" not in out
    names = {"README.md", "config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert b"site-packages" not in (folder / "model.onnx").read_bytes()  # no path of this machine
    page = (folder / "README.md").read_text()
    assert page.startswith(
        f"# mine\n\n{NOUNS[kind]} as an ONNX graph: any batch size, up to 28 tokens. 2 of 4 att"
    )
    assert "\n5 of 48 feed-forward neurons are removed.\n" in page
    monkeypatch.chdir(folder)
    found = run_lines(page)
    if kind == "sequence":
        texts = ["a first text", "and another one"]
        logits = model(**tiny_tokenizer()(texts, padding=True, return_tensors="pt")).logits
        assert torch.allclose(torch.from_numpy(found["logits"]), logits, atol=1e-4)
        assert found["answers"] == [["bad", "good"][label] for label in logits.argmax(-1).tolist()]
    elif kind == "embeddings":
        rows = tiny_tokenizer()(["a first text", "and another one"], padding=True)
        ids, mask = (torch.tensor(rows[name]) for name in ("input_ids", "attention_mask"))
        vectors = Pooling("mean", True).pool(model(ids, mask)[0], mask)
        assert torch.allclose(torch.from_numpy(found["answers"]), vectors, atol=1e-4)
    else:
        assert found["answers"] == own_answers(model, found)
        assert len(found["answers"]) == 2
        assert found["answers"][0] != found["answers"][1]


def test_a_word_that_is_cut_off_has_no_tag(exported, run_auber, monkeypatch):
    _, _, folder = exported("tokens", run_auber)
    monkeypatch.chdir(folder)
    page = (folder / "README.md").read_text()
    long = page.replace('["a", "first", "sentence"]', '["film"] * 26 + ["bad", "good"]')
    ((*tagged, last, behind), _) = run_lines(long)["answers"]
    assert len(tagged) == 26  # beside the two special tokens
    assert set(tagged) <= set(TAGS)
    assert (last, behind) == (None, None)


def test_a_regression_without_removed_heads(run_auber, tmp_path):
    labels = {"num_labels": 1, "id2label": {0: "score"}, "label2id": {"score": 0}}
    save_pruned(tmp_path / "mine", {}, num_hidden_layers=1, problem_type="regression", **labels)
    place = tmp_path / "there"
    code, out, _ = run_auber("export", tmp_path / "mine", "--to", "onnx", "--out", place, "--quiet")
    assert code == 0
    assert "nothing is removed, so there is no latency to compare" in out
    assert "answers = logits[:, 0].tolist()\n" in (place / "README.md").read_text()


def test_missing_packages_are_named(run_auber, tmp_path, monkeypatch):
    save_pruned(tmp_path / "mine")
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnx" else object())
    code, _, err = run_auber("export", tmp_path / "mine", "--to", "onnx")
    assert code == 2
    assert err == ("auber: --to onnx needs onnx, not installed here; pip install 'auber[onnx]'\n")
