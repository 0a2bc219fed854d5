"""Whole exports, through the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import auber
from auber.data.task_types import TASK_TYPES
from auber.export import TARGETS, dense, graph, onnx
from auber.export.howto import NOUNS
from auber.training.outputs import OUTPUTS
from tests.export.models import save_pruned
from tests.export.snippets import own_answers, run_lines
from tests.kinds import TAGS, TOKEN_KINDS, num_labels
from tests.tiny_models import random_batch, tiny_model, tiny_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "export.md"


def test_onnx(run_auber, tmp_path, monkeypatch):
    model = save_pruned(tmp_path / "mine")
    code, out, err = run_auber("export", tmp_path / "mine", "--to", "onnx", "--threads", "1")
    assert code == 0
    assert re.search(
        r"checked on 17 random rows: largest logit difference \d\S* \(at most 0.001 is allowed\)",
        out,
    )
    assert re.search(
        r"latency in onnxruntime, one row of 28 tokens: .* ms, .* ms with the removed heads put back",
        out,
    )
    assert "times as fast" in out
    assert "latency: " in err
    folder = tmp_path / "mine-onnx"
    names = {"README.md", "config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert (
        b"site-packages" not in (folder / "model.onnx").read_bytes()
    )  # no path of the machine it was made on
    readme = (folder / "README.md").read_text()
    assert "6 of 12 attention heads are removed" in readme

    # The lines that run it, in the folder and in the documentation.
    monkeypatch.chdir(folder)
    for text, texts in (
        (readme, ["a first text", "and another one"]),
        (PAGE.read_text(), ["the film is good", "the film is bad"]),
    ):
        found = run_lines(text, folder=str(folder))
        logits = model(**tiny_tokenizer()(texts, padding=True, return_tensors="pt")).logits
        assert torch.allclose(torch.from_numpy(found["logits"]), logits, atol=1e-4)
        assert found["answers"] == [["bad", "good"][label] for label in logits.argmax(-1).tolist()]


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_onnx_of_the_other_kinds(kind, run_auber, tmp_path, monkeypatch):
    # weights with which words differ in their tags; a layer, as a graph takes a second longer to write for each
    model = save_pruned(tmp_path / "mine", {0: [0, 3]}, kind=kind, num_hidden_layers=1, seed=2)
    code, out, _ = run_auber("export", tmp_path / "mine", "--to", "onnx", "--threads", "1")
    assert code == 0
    assert "checked on 17 random rows: largest logit difference" in out
    assert "latency in onnxruntime, one row of 28 tokens: " in out
    monkeypatch.chdir(tmp_path / "mine-onnx")
    readme = Path("README.md").read_text()
    assert readme.startswith(
        f"# mine\n\n{NOUNS[kind]} as an ONNX graph: any batch size, up to 28 tokens. 2 of 4 attention"
    )
    found = run_lines(readme)
    assert found["answers"] == own_answers(model, found)
    assert len(found["answers"]) == 2
    assert found["answers"][0] != found["answers"][1]


def test_a_word_behind_the_cut_has_no_tag(run_auber, tmp_path, monkeypatch):
    save_pruned(tmp_path / "mine", kind="tokens", num_hidden_layers=1, plan={0: [1]})
    assert run_auber("export", tmp_path / "mine", "--to", "onnx", "--no-latency", "--quiet")[0] == 0
    monkeypatch.chdir(tmp_path / "mine-onnx")
    long = (
        Path("README.md")
        .read_text()
        .replace('["a", "first", "sentence"]', '["film"] * 26 + ["bad", "good"]')
    )
    ((*tagged, last, behind), _) = run_lines(long)[
        "answers"
    ]  # 26 tokens beside the two special ones
    assert set(tagged) <= set(TAGS)
    assert (last, behind) == (None, None)


@pytest.mark.parametrize("model_type", ["bert", "modernbert", "deberta-v2"])
@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_dense_of_the_other_kinds(kind, model_type, run_auber, tmp_path):
    import transformers

    model = save_pruned(tmp_path / "mine", model_type=model_type, kind=kind)
    code, out, err = run_auber("export", tmp_path / "mine", "--to", "dense", "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["check"]["largest_difference"] < 1e-4
    folder = tmp_path / "mine-dense"
    assert not any("auber" in path.read_text() for path in folder.glob("*.json"))
    loaded = getattr(transformers, TASK_TYPES[kind].auto_class).from_pretrained(folder)
    assert {name: tensor.shape for name, tensor in loaded.state_dict().items()} == {
        name: tensor.shape
        for name, tensor in tiny_model(model_type, kind=kind, num_labels=num_labels(kind))
        .state_dict()
        .items()
    }
    batch, logits = random_batch(model), OUTPUTS[kind].logits
    with torch.inference_mode():
        assert torch.allclose(logits(loaded(**batch)), logits(model(**batch)), atol=1e-4)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_another_answer_at_a_late_token_is_not_kept(kind, run_auber, tmp_path, monkeypatch):
    save_pruned(tmp_path / "mine", kind=kind)
    honest = dense.put_back

    def careless(model, heads):
        restored = honest(model, heads)
        with torch.no_grad():
            restored.bert.embeddings.position_embeddings.weight[25, 0] += 0.5
        return restored

    monkeypatch.setattr(dense, "put_back", careless)
    code, out, err = run_auber("export", tmp_path / "mine", "--to", "dense", "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith(
        f"auber: {tmp_path / 'mine-dense'}: the logits must be the model's own to 0.001, found a"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_onnx_of_a_regression_without_removed_heads(run_auber, tmp_path):
    save_pruned(tmp_path / "mine", {}, num_labels=1, id2label={0: "score"}, label2id={"score": 0}, num_hidden_layers=1,
                problem_type="regression")  # fmt: skip
    code, out, _ = run_auber(
        "export", tmp_path / "mine", "--to", "onnx", "--out", tmp_path / "there", "--quiet"
    )
    assert code == 0
    assert "no head is removed, so there is nothing to compare its latency with" in out
    assert "answers = logits[:, 0].tolist()\n" in (tmp_path / "there" / "README.md").read_text()


@pytest.mark.parametrize(
    ("inside", "given", "printed"),
    [
        ("", "runs/mine", "runs/mine-dense"),
        ("runs/mine", ".", "../mine-dense"),
        ("runs/mine/model", "..", "../../mine-dense"),
    ],
)
def test_the_place_is_told_as_it_was_given(
    run_auber, tmp_path, monkeypatch, inside, given, printed
):
    save_pruned(tmp_path / "runs" / "mine")
    (tmp_path / "runs" / "mine" / "model").mkdir()
    monkeypatch.chdir(tmp_path / inside)
    code, out, _ = run_auber("export", given, "--to", "dense", "--quiet")
    assert code == 0
    assert out.startswith(f"dense: {printed} (")
    assert (tmp_path / "runs" / "mine-dense" / "config.json").is_file()


def test_dense(run_auber, tmp_path):
    model = save_pruned(tmp_path / "mine")
    code, out, _ = run_auber("export", tmp_path / "mine", "--to", "dense", "--json", "--quiet")
    assert code == 0
    data = json.loads(out)
    assert (data["to"], data["out"]) == ("dense", str(tmp_path / "mine-dense"))
    assert data["heads"] == {"removed": 6, "total": 12}
    assert data["latency"] is None
    assert data["check"]["rows"] == 17
    assert data["check"]["largest_difference"] < 1e-5
    folder = tmp_path / "mine-dense"
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert not any("auber" in path.read_text() for path in folder.glob("*.json"))
    # as somebody loads it who has never heard of this package
    batch = {name: tensor.tolist() for name, tensor in random_batch(model).items()}
    script = (
        "import sys, json, torch; sys.modules['auber'] = None\n"
        "from transformers import AutoModelForSequenceClassification\n"
        f"model = AutoModelForSequenceClassification.from_pretrained({str(folder)!r})\n"
        f"batch = {{name: torch.tensor(rows) for name, rows in json.loads({json.dumps(batch)!r}).items()}}\n"
        "print(json.dumps([model(**batch).logits.tolist(), model.config.id2label]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True
    )
    logits, labels = json.loads(done.stdout)
    assert labels == {"0": "bad", "1": "good"}
    assert torch.allclose(torch.tensor(logits), model(**random_batch(model)).logits, atol=1e-4)
    assert not re.search("mismatch|missing|unexpected|newly", done.stderr, flags=re.IGNORECASE)
    assert set(load_file(folder / "model.safetensors")) == set(model.state_dict())


def test_dense_keeps_the_dtype(run_auber, tmp_path):
    auber.save(
        save_pruned(tmp_path / "first").to(torch.bfloat16), tiny_tokenizer(), tmp_path / "mine"
    )
    assert run_auber("export", tmp_path / "mine", "--to", "dense", "--quiet")[0] == 0
    tensors = load_file(tmp_path / "mine-dense" / "model.safetensors").values()
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}


def test_a_damaged_export_is_not_kept(run_auber, tmp_path, monkeypatch):
    save_pruned(tmp_path / "mine")
    honest = dense.put_back

    def careless(model, heads):
        """A removed head with a value bias and columns that pass it on."""
        restored = honest(model, heads)
        with torch.no_grad():
            restored.bert.encoder.layer[0].attention.self.value.bias[:8] = 1.0
            restored.bert.encoder.layer[0].attention.output.dense.weight[0, :8] = 1.0
        return restored

    monkeypatch.setattr(dense, "put_back", careless)
    code, out, err = run_auber("export", tmp_path / "mine", "--to", "dense", "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith(
        f"auber: {tmp_path / 'mine-dense'}: the logits must be the model's own to 0.001, found a"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_missing_packages_and_wrong_names_are_one_line(run_auber, tmp_path, monkeypatch):
    save_pruned(tmp_path / "mine")
    assert run_auber("export", tmp_path / "mine", "--to", "onx")[2] == (
        "auber: Unknown export target 'onx'. Did you mean 'onnx'? Known: dense, hub, onnx\n"
    )
    monkeypatch.setattr(graph, "find_spec", lambda name: None)
    assert run_auber("export", tmp_path / "mine", "--to", "onnx")[2] == (
        "auber: --to onnx needs onnx, onnxruntime, onnxscript, not installed here; pip install 'auber[onnx]'\n"
    )
    code, _, err = run_auber("export", tmp_path / "none", "--to", "dense", "--quiet")
    assert (code, err) == (
        2,
        f"auber: {tmp_path / 'none'}: a model folder is needed, found nothing\n",
    )


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_help_is_made_from_the_table(run_auber, target):
    assert f"{target.name}: {target.doc}" in " ".join(run_auber("export", "--help")[1].split())


def test_a_graph_torch_cannot_write_is_one_line(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise torch.onnx.errors.OnnxExporterError("no such operator\nand much more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    model = save_pruned(tmp_path / "mine")
    message = r"^BertForSequenceClassification: torch cannot write it as an ONNX graph \(no such operator\); try the"
    with pytest.raises(graph.CheckpointError, match=message):
        onnx.write_graph(model, tmp_path / "model.onnx", ("input_ids", "attention_mask"))
