from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file

import auber
from auber.data.task_types import TASK_TYPES
from auber.errors import PlanError
from auber.export import dense
from auber.export.dense import restore_units
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.training.outputs import outputs_of
from tests.export.models import UNEVEN, save_pruned
from tests.kinds import num_labels
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer

HEAD = slice(8, 16)  # features of head 1, of head_dim 8


@torch.inference_mode()
def assert_same_logits(model, other):
    batch = random_batch(model)
    assert torch.allclose(other(**batch).logits, model(**batch).logits, atol=1e-5)


def shapes_of(model):
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_computes_the_same_at_full_size(model_type):
    whole, pruned = tiny_model(model_type), tiny_model(model_type)
    remove(pruned, UNEVEN)
    restored = restore_units(pruned, UNEVEN)
    assert_same_logits(pruned, restored)
    assert not hasattr(restored.config, REMOVED_HEADS)
    assert shapes_of(restored) == shapes_of(whole)
    assert encoder_of(pruned).removed.num_heads == 6  # the pruned model is unchanged


def test_a_restored_head_is_zero_and_gets_no_gradient():
    model = tiny_model("bert")
    remove(model, {1: [1]})
    restored = restore_units(model, PruningPlan({1: [1]}))
    parts = encoder_of(restored).parts(1)
    assert not parts.output.weight[:, HEAD].any()
    assert parts.output.bias.all()
    restored(**random_batch(restored), labels=torch.tensor([0, 1, 0, 1])).loss.backward()
    for linear in parts.projections:
        assert linear.weight[:8].all()
        for parameter in (linear.weight, linear.bias):
            assert not parameter[HEAD].any()
            assert not parameter.grad[HEAD].any()
    assert not parts.output.weight.grad[:, HEAD].any()
    assert parts.value.weight.grad[:8].any()


@pytest.mark.parametrize("model_type", ["distilbert", "modernbert"])
def test_a_restored_neuron_is_zero_and_gets_no_gradient(model_type):
    model, gone = tiny_model(model_type), [0, 7, 47]
    remove(model, PruningPlan(neurons={1: gone}))
    restored = restore_units(model, PruningPlan(neurons={1: gone}))
    restored(**random_batch(restored), labels=torch.tensor([0, 1, 0, 1])).loss.backward()
    parts = encoder_of(restored).parts(1)
    for matrix in (parts.expand.weight, parts.expand.weight.grad):
        for half in matrix.chunk(1 + parts.is_gated):
            assert not half[gone].any()
            assert half[1:7].any(1).all()
    assert not parts.contract.weight[:, gone].any()
    assert not parts.contract.weight.grad[:, gone].any()


def test_some_heads_of_some_layers():
    model = tiny_model("mpnet")
    remove(model, {0: [0, 1, 2, 3], 1: [0, 2], 2: [3]}, allow_empty_layers=True)
    restored = restore_units(model, PruningPlan({0: [2], 1: [0]}))
    assert encoder_of(restored).removed == PruningPlan({0: [0, 1, 3], 1: [2], 2: [3]})
    assert_same_logits(model, restored)


def test_projections_of_positions_are_restored_too():
    model = tiny_model("deberta-v2", share_att_key=False)
    remove(model, {1: [1]})
    restored = restore_units(model, PruningPlan({1: [1]}))
    for linear in encoder_of(restored).parts(1).positional:
        assert not linear.weight[HEAD].any()
        assert linear.weight[:8].all()
    assert_same_logits(model, restored)


def test_a_present_head_is_refused():
    model = tiny_model("bert")
    remove(model, {0: [0]})
    message = (
        r"^only removed units can be put back, found PruningPlan\(heads=\{0: \[2\]\}\); correct"
    )
    with pytest.raises(PlanError, match=message):
        restore_units(model, PruningPlan({0: [0, 2]}))


# Whole exports, through the command line


def test_the_folder_loads_without_this_package(run_auber, tmp_path):
    model = save_pruned(tmp_path / "mine")
    code, out, _ = run_auber("export", tmp_path / "mine", "--to", "dense", "--json", "--quiet")
    assert code == 0
    data = json.loads(out)
    assert (data["to"], data["out"]) == ("dense", str(tmp_path / "mine-dense"))
    assert data["heads"] == {"removed": 6, "total": 12}
    assert data["neurons"] == {"removed": 36, "total": 144}
    assert data["latency"] is None
    assert data["check"]["rows"] == 17
    assert data["check"]["largest_difference"] < 1e-5
    folder = tmp_path / "mine-dense"
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert not any("auber" in path.read_text() for path in folder.glob("*.json"))
    batch = random_batch(model)
    loaded, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(report.values())
    assert loaded.config.id2label == {0: "bad", 1: "good"}
    with torch.inference_mode():
        assert torch.allclose(loaded(**batch).logits, model(**batch).logits, atol=1e-4)
    assert set(load_file(folder / "model.safetensors")) == set(model.state_dict())


@pytest.mark.parametrize(
    ("model_type", "kind"), [("modernbert", "tokens"), ("bert", "spans"), ("bert", "embeddings")]
)
def test_the_other_task_types(kind, model_type, run_auber, tmp_path):
    model = save_pruned(tmp_path / "mine", model_type=model_type, kind=kind)
    code, _, err = run_auber("export", tmp_path / "mine", "--to", "dense", "--quiet")
    assert code == 0, err
    loaded = getattr(transformers, TASK_TYPES[kind].auto_class).from_pretrained(
        tmp_path / "mine-dense"
    )
    whole = tiny_model(model_type, kind=kind, num_labels=num_labels(kind))
    assert shapes_of(loaded) == shapes_of(whole)
    batch, logits = random_batch(model), outputs_of(kind).logits
    with torch.inference_mode():
        assert torch.allclose(logits(loaded(**batch)), logits(model(**batch)), atol=1e-4)


def test_the_dtype_stays(run_auber, tmp_path):
    model = save_pruned(tmp_path / "first").to(torch.bfloat16)
    auber.save(model, tiny_tokenizer(), tmp_path / "mine")
    assert run_auber("export", tmp_path / "mine", "--to", "dense", "--quiet")[0] == 0
    tensors = load_file(tmp_path / "mine-dense" / "model.safetensors").values()
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}


def leak_a_value(restored):
    """Let a removed head's value bias through its columns."""
    attention = restored.bert.encoder.layer[0].attention
    attention.self.value.bias[:8] = 1.0
    attention.output.dense.weight[0, :8] = 1.0


def change_a_late_token(restored):
    restored.bert.embeddings.position_embeddings.weight[25, 0] += 0.5


@pytest.mark.parametrize(
    ("kind", "damage"), [("sequence", leak_a_value), ("spans", change_a_late_token)]
)
def test_a_damaged_export_is_not_kept(kind, damage, run_auber, tmp_path, monkeypatch):
    save_pruned(tmp_path / "mine", kind=kind)

    def careless(model, heads):
        restored = restore_units(model, heads)
        with torch.no_grad():
            damage(restored)
        return restored

    monkeypatch.setattr(dense, "restore_units", careless)
    code, out, err = run_auber("export", tmp_path / "mine", "--to", "dense", "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("auber: mine: the exported logits must be the model's own to 0.001, fou")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
