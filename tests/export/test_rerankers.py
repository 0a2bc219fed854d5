"""Cross-encoders: pruned models and their graphs in sentence-transformers."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import auber
from auber.data.generated import make_agreement
from auber.export import export_model
from auber.export.onnx import Graph
from tests.small import small_config, small_start

PAIRS = [("the key", "the key is red"), ("the keys of a car", "they are old"), ("a", "b")]


class OnnxModel(torch.nn.Module):
    """What sentence-transformers needs of optimum's class, which requires transformers 4."""

    _save_pretrained = None  # which is wrapped

    def __init__(self, graph, config):
        super().__init__()
        self.graph, self.config = graph, config

    @classmethod
    def from_pretrained(cls, folder, *, config, export, file_name="model.onnx", **_):
        assert not export
        return cls(Graph(f"{folder}/{file_name}", threads=1), config)

    def forward(self, input_ids, attention_mask, token_type_ids=None, **_):
        return self.graph(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )


@pytest.fixture
def optimum(monkeypatch):
    package, module = ModuleType("optimum"), ModuleType("optimum.onnxruntime")
    module.ONNX_WEIGHTS_NAME = "model.onnx"
    for task in ("SequenceClassification", "CausalLM", "FeatureExtraction", "MaskedLM"):
        setattr(module, f"ORTModelFor{task}", OnnxModel)
    monkeypatch.setitem(sys.modules, "optimum", package)
    monkeypatch.setitem(sys.modules, "optimum.onnxruntime", module)


@pytest.fixture(scope="module", params=["both", "even"])
def reranker(request, tmp_path_factory):
    """The folder of a run that pruned a model of sentence-transformers from pairs of texts."""
    folder = tmp_path_factory.mktemp("reranker")
    model, tokenizer = small_start(num_labels=1)
    model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    auber.save(model, tokenizer, folder / "model")
    records = [
        {"query": f"the key {row // 5}", "passage": text}
        for row, text in enumerate(make_agreement(0, 100, 24).train.first)
    ]
    auber.prune(
        folder / "model",
        task=auber.make_texts(records, text=("query", "passage"), group="query"),
        method="fisher",
        keep=0.8,
        config=small_config(size__even=request.param == "even"),
        out=folder / "run",
    )
    return folder / "run"


def test_it_loads_in_sentence_transformers(reranker):
    from sentence_transformers import CrossEncoder

    needs_code = (reranker / "model" / "modeling_auber.py").exists()
    loaded = CrossEncoder(str(reranker / "model"), device="cpu", trust_remote_code=needs_code)
    tokenizer = auber.load_tokenizer(reranker)
    batch = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    with torch.inference_mode():
        expected = auber.load(reranker)(**batch).logits[:, 0]
    assert loaded.predict(PAIRS) == pytest.approx(expected.numpy(), abs=1e-5)
    assert len(set(expected.tolist())) == 3


def test_its_graph_loads_in_sentence_transformers(reranker, optimum, tmp_path):
    from sentence_transformers import CrossEncoder

    needs_code = (reranker / "model" / "modeling_auber.py").exists()
    expected = CrossEncoder(str(reranker / "model"), device="cpu", trust_remote_code=needs_code)
    export_model(reranker, "onnx", out=tmp_path / "graph")
    found = CrossEncoder(str(tmp_path / "graph"), device="cpu", backend="onnx")
    assert isinstance(found.model, OnnxModel)
    np.testing.assert_allclose(found.predict(PAIRS), expected.predict(PAIRS), atol=1e-4)
