"""The modeling file that travels with pruned models agrees with the package's own surgery."""

from __future__ import annotations

import copy
import json
import logging
import pickle

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auber.data.task_types import TASK_TYPES
from auber.models import checkpoint
from auber.models.encoders import FAMILIES, encoder_of
from auber.models.plan import PruningPlan
from auber.models.remote_code import MODELING_FILE, modeling_auber
from auber.models.surgery import masked_heads, remove_heads
from auber.training.outputs import OUTPUTS
from tests.kinds import TOKEN_KINDS
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, random_batch, tiny_model

CLASSIFIER = "AutoModelForSequenceClassification"
PLANS = st.dictionaries(
    st.integers(0, LAYERS - 1),
    st.sets(st.integers(0, HEADS - 1), min_size=1).map(sorted),
    min_size=1,
)


def load_remote(folder, entry=CLASSIFIER):
    """What transformers does with the flag, without its copy of the file in the home folder."""
    module, name = json.loads((folder / "config.json").read_text())["auto_map"][entry].split(".")
    assert module == MODELING_FILE.stem
    return getattr(modeling_auber, name).from_pretrained(folder).eval()


@pytest.fixture(autouse=True)
def _no_load_report(caplog):
    """The report on a classifier that is left out when the bare encoder is loaded."""
    logger = logging.getLogger("transformers.modeling_utils")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plan=PLANS)
def test_it_computes_what_the_packages_own_surgery_computes(model_type, tmp_path, plan):
    model = tiny_model(model_type)
    remove_heads(model, plan, allow_empty_layers=True)
    checkpoint.save(model, None, tmp_path)
    loaded, batch = load_remote(tmp_path), random_batch(model)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    assert {name: tensor.shape for name, tensor in loaded.state_dict().items()} == {
        name: tensor.shape for name, tensor in model.state_dict().items()
    }
    buffers = dict(model.named_buffers())
    assert all(torch.equal(buffer, buffers.pop(name)) for name, buffer in loaded.named_buffers())
    assert not buffers
    linears = dict(model.named_modules())
    for name, module in loaded.named_modules():
        if isinstance(module, torch.nn.Linear):
            assert (module.in_features, module.out_features) == (
                linears[name].in_features,
                linears[name].out_features,
            )


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_bare_encoder_is_loaded_by_both_entries(model_type, tmp_path):
    model = tiny_model(model_type, bare=True)
    remove_heads(model, {0: [1], 2: [0, 2, 3]})
    checkpoint.save(model, None, tmp_path)
    batch = random_batch(model)
    expected = model(**batch)[0]
    assert torch.equal(load_remote(tmp_path, "AutoModel")(**batch)[0], expected)
    assert torch.equal(load_remote(tmp_path).base_model(**batch)[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("kind", TOKEN_KINDS)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_classifiers_of_tokens_have_their_entry(model_type, kind, tmp_path):
    model = tiny_model(model_type, kind=kind)
    remove_heads(model, {0: [1], 2: [0, 2, 3]})
    checkpoint.save(model, None, tmp_path)
    loaded, batch = load_remote(tmp_path, TASK_TYPES[kind].auto_class), random_batch(model)
    logits = OUTPUTS[kind].logits
    assert torch.equal(logits(loaded(**batch)), logits(model(**batch)))
    assert type(loaded).__name__ == type(model).__name__


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_package_can_go_on_with_it(model_type, tmp_path):
    model = tiny_model(model_type)
    remove_heads(model, {0: [1], 2: [0, 2]})
    checkpoint.save(model, None, tmp_path / "first")
    loaded, batch = load_remote(tmp_path / "first"), random_batch(model)
    assert encoder_of(loaded).removed == PruningPlan({0: [1], 2: [0, 2]})
    more = {0: [0, 3], 1: [2], 2: [1]}
    with masked_heads(loaded, more):
        masked = loaded(**batch).logits
    for pruned in (model, loaded):
        remove_heads(pruned, more)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    torch.testing.assert_close(masked, model(**batch).logits, atol=1e-5, rtol=0)
    checkpoint.save(loaded, None, tmp_path / "second")
    for again in (load_remote(tmp_path / "second"), checkpoint.load(tmp_path / "second")):
        assert torch.equal(again(**batch).logits, model(**batch).logits)


@torch.no_grad()
@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_it_can_be_copied_and_pickled(model_type, tmp_path):
    model = tiny_model(model_type)
    remove_heads(model, {0: [1], 2: [0, 2, 3]})
    checkpoint.save(model, None, tmp_path)
    loaded, batch = load_remote(tmp_path), random_batch(model)
    for twin in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert type(twin) is type(loaded)
        assert torch.equal(twin(**batch).logits, model(**batch).logits)


def test_a_new_one_is_drawn_as_transformers_draws():
    config = tiny_model("mpnet").config
    config.auber_removed_heads = {"0": [1, 3]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = modeling_auber.MPNetForSequenceClassification(config)
    attention = drawn.mpnet.encoder.layer[0].attention.attn
    assert attention.present_heads.tolist() == [0, 2]
    assert attention.q.weight.detach().std() == pytest.approx(config.initializer_range, rel=0.1)
    assert drawn.mpnet.encoder.layer[1].attention.attn.num_attention_heads == HEADS


def test_every_family_has_its_line():
    supported = sorted(name for adapter in FAMILIES.values() for name in adapter.model_types)
    assert sorted(modeling_auber._LAYOUTS) == supported


@pytest.mark.parametrize(
    "name", ["GPT2Model", "AutoModel", "BertConfig", "torch_dtype", "_Nothing"]
)
def test_it_has_no_other_names(name):
    with pytest.raises(
        AttributeError,
        match=f"^module 'auber.models.remote_code.modeling_auber' has no attribute '{name}'$",
    ):
        getattr(modeling_auber, name)


def test_it_imports_torch_and_transformers_alone():
    from transformers.dynamic_module_utils import get_imports, get_relative_imports

    assert get_imports(MODELING_FILE) == [
        "__future__",
        "dataclasses",
        "torch",
        "transformers",
        "typing",
    ]
    assert get_relative_imports(MODELING_FILE) == []


def test_a_whole_model_carries_neither_the_file_nor_the_entries(tmp_path):
    model = tiny_model()
    remove_heads(model, {0: [1]})
    checkpoint.save(model, None, tmp_path)
    assert (tmp_path / MODELING_FILE.name).read_bytes() == MODELING_FILE.read_bytes()
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == {
        "AutoModel": "modeling_auber.BertModel",
        CLASSIFIER: "modeling_auber.BertForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_auber.BertForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_auber.BertForQuestionAnswering",
    }
    whole = tiny_model()
    whole.config.auto_map = {
        "AutoModel": "elsewhere.Model"
    }  # code that will not be beside the new folder
    checkpoint.save(whole, None, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text())


def test_a_folder_saved_before_there_was_such_a_file_still_loads(tmp_path):
    model = tiny_model()
    remove_heads(model, {0: [1]})
    checkpoint.save(model, None, tmp_path)
    (tmp_path / MODELING_FILE.name).unlink()
    path = tmp_path / "config.json"
    data = json.loads(path.read_text())
    del data["auto_map"]
    path.write_text(json.dumps(data))
    loaded, batch = checkpoint.load(tmp_path), random_batch(model)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    assert not hasattr(loaded.config, "auto_map")
