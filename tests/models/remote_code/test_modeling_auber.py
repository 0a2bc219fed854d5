"""The modeling file that travels with pruned models agrees with the package's own surgery."""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import pickle
import sys
from pathlib import Path

import pytest
import torch

from auber.data.task_types import TASK_TYPES
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.remote_code import MODELING_FILE, modeling_auber
from auber.models.surgery import masked, remove
from auber.training.outputs import outputs_of
from tests.tiny_models import HEADS, MODEL_TYPES, NEURONS, random_batch, tiny_model

FIRST_EDITION = Path(__file__).parents[2] / "fixtures" / "first-edition" / "model"
CLASSIFIER = "AutoModelForSequenceClassification"
PLAN = {0: [1], 2: [0, 2, 3]}
BOTH = PruningPlan(PLAN, {0: range(NEURONS - 1), 1: [4], 2: [0, 5]})
EVEN = PruningPlan(PLAN, {layer: range(layer, layer + 8) for layer in range(3)})
PLANS = {
    "some": PLAN,
    "a whole layer": {1: range(HEADS)},
    "every layer": {0: [0, 3], 1: [2], 2: [1, 2]},
    "both": BOTH,
    "neurons": PruningPlan(neurons=BOTH.neurons),
    "even": EVEN,
    "no neurons": PruningPlan(neurons={1: range(NEURONS)}),
}


def load_remote(folder, entry=CLASSIFIER, module=modeling_auber):
    """Load as transformers does with the flag, without its copy of the file in the home folder."""
    config = json.loads((folder / "config.json").read_text())
    stem, name = config["auto_map"][entry].split(".")
    assert stem == MODELING_FILE.stem
    return getattr(module, name).from_pretrained(folder).eval()


@pytest.fixture(autouse=True)
def _no_load_report():
    """Silence the report on the classifier that a bare encoder leaves out."""
    logger = logging.getLogger("transformers.modeling_utils")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def linear_sizes(model):
    return {
        name: (module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


@torch.no_grad()
@pytest.mark.parametrize(
    ("model_type", "plan"),
    [
        *((model_type, name) for model_type in MODEL_TYPES for name in ("both", "even")),
        *(("mpnet", name) for name in PLANS if name not in ("both", "even")),
    ],
)
def test_it_computes_what_the_packages_surgery_computes(model_type, plan, tmp_path):
    model = tiny_model(model_type)
    remove(model, PLANS[plan], allow_empty_layers=True)
    checkpoint.save(model, None, tmp_path)
    loaded, batch = load_remote(tmp_path), random_batch(model)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    assert torch.equal(load_remote(tmp_path).base_model(**batch)[0], model.base_model(**batch)[0])
    assert linear_sizes(loaded) == linear_sizes(model)
    assert loaded.state_dict().keys() == model.state_dict().keys()
    found, expected = dict(loaded.named_buffers()), dict(model.named_buffers())
    assert found.keys() == expected.keys()
    assert all(torch.equal(buffer, expected[name]) for name, buffer in found.items())


@torch.no_grad()
@pytest.mark.parametrize(
    ("model_type", "form"),
    [
        *((model_type, "embeddings") for model_type in MODEL_TYPES),
        ("modernbert", "tokens"),
        ("mpnet", "spans"),
    ],
)
def test_the_other_entries(model_type, form, tmp_path):
    model = tiny_model(model_type, kind=form)
    remove(model, BOTH)
    checkpoint.save(model, None, tmp_path)
    batch = random_batch(model)
    loaded = load_remote(tmp_path, TASK_TYPES[form].auto_class)
    assert type(loaded).__name__ == type(model).__name__
    found, expected = (outputs_of(form).logits(each(**batch)) for each in (loaded, model))
    assert torch.equal(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("model_type", ["bert", "deberta-v2", "modernbert", "mpnet"])
def test_the_package_can_continue_with_it(model_type, tmp_path):
    model = tiny_model(model_type)
    first = PruningPlan({0: [1], 2: [0, 2]}, {1: range(40)})
    remove(model, first)
    checkpoint.save(model, None, tmp_path / "first")
    loaded, batch = load_remote(tmp_path / "first"), random_batch(model)
    assert encoder_of(loaded).removed == first
    more = PruningPlan({0: [0, 3], 1: [2], 2: [1]}, {0: [3], 1: [40, 47]})
    with masked(loaded, more):
        expected = loaded(**batch).logits
    for pruned in (model, loaded):
        remove(pruned, more)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    torch.testing.assert_close(expected, model(**batch).logits, atol=1e-5, rtol=0)
    checkpoint.save(loaded, None, tmp_path / "second")
    for again in (load_remote(tmp_path / "second"), checkpoint.load(tmp_path / "second")):
        assert torch.equal(again(**batch).logits, model(**batch).logits)


@torch.no_grad()
def test_it_can_be_copied_and_pickled(tmp_path):
    model = tiny_model("mpnet")
    remove(model, PLAN)
    checkpoint.save(model, None, tmp_path)
    loaded, batch = load_remote(tmp_path), random_batch(model)
    for twin in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert type(twin) is type(loaded)
        assert torch.equal(twin(**batch).logits, model(**batch).logits)


@torch.no_grad()
def test_a_model_of_the_first_edition_loads_with_its_own_file_and_with_this_one(monkeypatch):
    path = FIRST_EDITION / MODELING_FILE.name
    spec = importlib.util.spec_from_file_location("modeling_of_the_first_edition", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    model = checkpoint.load(FIRST_EDITION)
    assert encoder_of(model).removed
    ids = torch.arange(6)[None] % model.config.vocab_size
    expected = model(input_ids=ids).logits
    for each in (module, modeling_auber):
        loaded = load_remote(FIRST_EDITION, module=each)
        assert torch.equal(loaded(input_ids=ids).logits, expected)


@pytest.mark.parametrize(
    "removed",
    [{"3": [0]}, {"-1": [0]}, {"0": ["0"]}, {"0": [True]}, {"0": [[0]]}, {"0": 1}, {"x": [0]}],
)
def test_impossible_heads_are_refused_before_building(removed):
    config = tiny_model().config
    config.auber_removed_heads = removed
    message = "^config.json: auber_removed_heads must list heads of the model's 3 layers of 4 heads"
    with pytest.raises(ValueError, match=message):
        modeling_auber.BertModel(config)


def test_heads_that_are_no_object_are_refused():
    config = tiny_model().config
    config.auber_removed_heads = "all"
    message = "^config.json: auber_removed_heads must be an object, found 'all'$"
    with pytest.raises(ValueError, match=message):
        modeling_auber.BertModel(config)


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [
        ("num_hidden_layers", 10**9, 1024),
        ("num_attention_heads", 10**18, 1024),
        ("hidden_size", 10**6, 2**16),
        ("vocab_size", -1, 2**20),
        ("max_position_embeddings", 10**400, 2**20),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_building(name, value, most):
    config = tiny_model().config
    setattr(config, name, value)
    message = rf"^config.json: {name} must be a whole number from 0 to {most}, found {value}"[:90]
    with pytest.raises(ValueError, match=message):
        modeling_auber.BertModel(config)


@pytest.mark.parametrize("sizes", [[48, 48], [48, 48, -1], [48, 49, 3], [48, 48, "a"], 48, "abc"])
def test_impossible_widths_are_refused_before_building(sizes):
    config = tiny_model().config
    config.auber_intermediate_sizes = sizes
    message = "^config.json: auber_intermediate_sizes must have a number from 0 to 48 for each of"
    with pytest.raises(ValueError, match=message):
        modeling_auber.BertModel(config)


def test_a_new_model_is_drawn_as_transformers_draws():
    config = tiny_model("mpnet").config
    config.auber_removed_heads = {"0": [1, 3]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = modeling_auber.MPNetForSequenceClassification(config)
    attention = drawn.mpnet.encoder.layer[0].attention.attn
    assert attention.present_heads.tolist() == [0, 2]
    assert attention.q.weight.detach().std() == pytest.approx(config.initializer_range, rel=0.1)
    assert drawn.mpnet.encoder.layer[1].attention.attn.num_attention_heads == HEADS


@pytest.mark.parametrize("name", ["GPT2Model", "BertConfig", "torch_dtype", "_Nothing"])
def test_it_has_no_other_names(name):
    message = f"^module 'auber.models.remote_code.modeling_auber' has no attribute '{name}'$"
    with pytest.raises(AttributeError, match=message):
        getattr(modeling_auber, name)


def test_it_imports_only_torch_and_transformers():
    from transformers.dynamic_module_utils import get_imports, get_relative_imports

    imports = ["__future__", "dataclasses", "torch", "transformers", "typing"]
    assert get_imports(MODELING_FILE) == imports
    assert get_relative_imports(MODELING_FILE) == []


def test_only_a_pruned_model_carries_the_file_and_the_entries(tmp_path):
    model = tiny_model()
    remove(model, {0: [1]})
    checkpoint.save(model, None, tmp_path)
    assert (tmp_path / MODELING_FILE.name).read_bytes() == MODELING_FILE.read_bytes()
    path = tmp_path / "config.json"
    data = json.loads(path.read_text())
    assert data.pop("auto_map") == {
        "AutoModel": "modeling_auber.BertModel",
        CLASSIFIER: "modeling_auber.BertForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_auber.BertForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_auber.BertForQuestionAnswering",
    }
    # Earlier folders have neither, and still load.
    (tmp_path / MODELING_FILE.name).unlink()
    path.write_text(json.dumps(data))
    loaded, batch = checkpoint.load(tmp_path), random_batch(model)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    assert not hasattr(loaded.config, "auto_map")
    whole = tiny_model()
    whole.config.auto_map = {"AutoModel": "elsewhere.Model"}  # code beside another folder
    checkpoint.save(whole, None, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert "auto_map" not in json.loads(path.read_text())
