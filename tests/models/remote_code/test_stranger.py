"""Saved folders in an environment without this package: loading and the usual uses of a model."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.pooling import Modules, Pooling, attach_modules
from auber.models.surgery import remove
from tests.models.conftest import PLAN
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer

BOTH = PruningPlan(PLAN, {0: range(40), 1: [47]})
EVEN = PruningPlan(neurons={layer: range(layer, layer + 8) for layer in range(3)})
TEXTS = ["the film is good", "bad"]
SOME = ("bert", "mpnet")  # as in stranger.py, which must not be imported here
QUICK = (
    "logits",
    "plain",
    "encoder",
    "resave",
    "classify",
    "train",
    "quantise",
    "sentences",
    "vectors",
)


@torch.no_grad()
def compute(model, batch, *, quantise):
    found = {"logits": model(**batch).logits, "hidden": model.base_model(**batch)[0]}
    if quantise:
        with warnings.catch_warnings(action="ignore"):  # it is deprecated
            linear = {torch.nn.Linear}
            small = torch.ao.quantization.quantize_dynamic(model, linear, dtype=torch.qint8)
        found["quantised"] = small(**batch).logits
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pruned model of every family, with a batch for it and what it computes; even ones too."""
    folder = tmp_path_factory.mktemp("models")
    save_models(folder, BOTH)
    save_models(folder / "even", EVEN)
    return folder


def save_models(folder, plan):
    for name in ("batches", "expected"):
        (folder / name).mkdir(parents=True)
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    for model_type in MODEL_TYPES:
        model = tiny_model(model_type, pad_token_id=1, **labels)
        remove(model, plan)
        checkpoint.save(model, tiny_tokenizer(), folder / model_type)
        batch = random_batch(model)
        save_file(batch, folder / "batches" / f"{model_type}.safetensors")
        expected = compute(model, batch, quantise=model_type in SOME)
        expected["vectors"] = save_sentence_encoder(folder / "encoders" / model_type, plan)
        save_file(expected, folder / "expected" / f"{model_type}.safetensors")


def save_sentence_encoder(folder, plan):
    """Save a pruned sentence encoder, each family with another pooling; return some vectors."""
    number = MODEL_TYPES.index(folder.name)
    pooling = Pooling(("mean", "cls", "max")[number % 3], is_normalized=number % 2 == 0)
    model = tiny_model(folder.name, kind="embeddings", pad_token_id=1)
    attach_modules(model, Modules(pooling, {}))
    remove(model, plan)
    checkpoint.save(model, tiny_tokenizer(), folder)
    inputs = tiny_tokenizer()(TEXTS, padding=True, return_tensors="pt")
    if not encoder_of(model).has_token_types:
        del inputs["token_type_ids"]
    return pooling.pool(model(**inputs)[0], inputs["attention_mask"]).contiguous()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with this one's packages, without editable installs."""
    return make_environment(tmp_path_factory.mktemp("stranger") / "venv")


def make_environment(place, *, with_pip=False):
    venv.create(place, with_pip=with_pip)
    (site,) = place.glob("lib/python*/site-packages")
    # Packages in the folder of a .pth file are found, but its own .pth files are not read.
    (site / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return place / "bin" / "python"


def run_checks(python, folder, *checks):
    """Return the error of each check, None if it passed."""
    home = python.parents[2]
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HF_HOME": str(home / "hub"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
    }
    command = [python, "-I", Path(__file__).with_name("stranger.py"), folder, *checks]
    done = subprocess.run(
        command, env=variables, cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "errors.json").read_text())


@pytest.fixture(scope="module")
def errors(python, folder):
    """The results of the quick checks, from one start of Python."""
    return run_checks(python, folder, *QUICK)


@pytest.mark.parametrize("check", QUICK)
def test_it_works_without_this_package(check, errors):
    assert errors[check] is None, errors[check]


@torch.no_grad()
@pytest.mark.usefixtures("errors")
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_this_package_loads_what_was_saved_without_it(model_type, folder):
    batch = load_file(folder / "batches" / f"{model_type}.safetensors")
    expected = load_file(folder / "expected" / f"{model_type}.safetensors")["logits"]
    loaded = checkpoint.load(folder / "copies" / model_type)
    assert torch.equal(loaded(**batch).logits, expected)
    if model_type in SOME:
        place = folder / "trained" / model_type
        trained = load_file(place / "logits.after")["logits"]
        torch.testing.assert_close(checkpoint.load(place)(**batch).logits, trained)


@pytest.mark.slow  # torch's compiler takes some 20 s
def test_torch_compiles_it(folder, python):
    assert run_checks(python, folder, "compile") == {"compile": None}


@pytest.mark.slow  # installs packages
def test_transformers_4_loads_a_model_of_even_widths(folder, tmp_path):
    python = make_environment(tmp_path / "4" / "venv", with_pip=True)
    packages = ("transformers==4.57.6", "huggingface-hub<1", "tokenizers<0.23")
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed"]
    done = subprocess.run([*install, *packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"transformers 4.57.6 cannot be installed here: {done.stderr[-200:]}")
    look = [python, "-I", "-c", "import transformers; print(transformers.__version__)"]
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "4.57.6\n"
    assert run_checks(python, folder, "plain") == {"plain": None}


def test_the_environment_has_no_editable_install_of_this_package(python):
    if "site-packages" in checkpoint.__file__:
        pytest.skip("auber is not installed editable, so the environment shares its files")
    look = "import importlib.util as u; print(u.find_spec('torch') and u.find_spec('auber'))"
    done = subprocess.run([python, "-I", "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
