"""Saved folders in an environment without this package: loading and the usual uses of a model."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from auber.models import checkpoint
from auber.models.surgery import remove_heads
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer

PLAN = {0: [1], 2: [0, 2, 3]}
QUICK = ("logits", "encoder", "resave", "classify", "train", "quantise", "sentences")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pruned model of every family, with a batch for it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "batches").mkdir()
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    for model_type in MODEL_TYPES:
        model = tiny_model(model_type, pad_token_id=1, **labels)
        remove_heads(model, PLAN)
        checkpoint.save(model, tiny_tokenizer(), folder / model_type)
        save_file(random_batch(model), folder / "batches" / f"{model_type}.safetensors")
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with this one's packages, without editable installs."""
    environment = tmp_path_factory.mktemp("stranger") / "venv"
    venv.create(environment)
    (site,) = environment.glob("lib/python*/site-packages")
    # Packages in the folder of a .pth file are found, but its own .pth files are not read.
    (site / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return environment / "bin" / "python"


@pytest.fixture(scope="module")
def stranger(python, folder):
    """A function that runs checks in that environment and returns their results."""
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

    def run(*checks):
        command = [python, "-I", Path(__file__).with_name("stranger.py"), folder, *checks]
        done = subprocess.run(
            command, env=variables, cwd=home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answers = {
            check: json.loads((folder / "answers" / f"{check}.json").read_text())
            for check in checks
        }
        for answer in answers.values():
            assert "error" not in answer, answer["error"]
        return answers

    return run


@pytest.fixture(scope="module")
def answers(stranger):
    """The results of the quick checks, from one start of Python."""
    return stranger(*QUICK)


def load_own(folder, model_type):
    """Return the model as this package loads it, and its batch."""
    batch = load_file(folder / "batches" / f"{model_type}.safetensors")
    return checkpoint.load(folder / model_type), batch


def assert_near(found, expected, tolerance=1e-6):
    found, expected = (torch.as_tensor(each, dtype=torch.float64) for each in (found, expected))
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_model_encoder_and_copy_compute_the_same(model_type, folder, answers):
    model, batch = load_own(folder, model_type)
    logits = model(**batch).logits
    assert_near(answers["logits"][model_type], logits)
    assert_near(answers["encoder"][model_type], model.base_model(**batch)[0])
    assert_near(answers["resave"][model_type], logits)
    assert torch.equal(checkpoint.load(folder / "copies" / model_type)(**batch).logits, logits)


def test_the_pipeline_answers_with_the_labels(answers):
    found = answers["classify"]
    for row, logits in zip(found["answers"], found["logits"], strict=True):
        scores = {entry["label"]: entry["score"] for entry in row}
        expected = torch.tensor(logits, dtype=torch.float64).softmax(0)
        assert_near([scores["no"], scores["yes"]], expected)


@torch.no_grad()
@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_trainer_trains_saves_and_loads_it_again(model_type, folder, answers):
    found = answers["train"][model_type]
    change = torch.tensor(found["trained"]) - torch.tensor(found["before"])
    assert change.abs().max() > 1e-4
    assert_near(found["loaded"], found["trained"])
    _, batch = load_own(folder, model_type)
    assert_near(checkpoint.load(folder / "trained" / model_type)(**batch).logits, found["trained"])


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, :UserWarning")
@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_it_can_be_quantised_to_8_bits(model_type, folder, answers):
    found = answers["quantise"][model_type]
    assert found["linears"] == ["torch.ao.nn.quantized.dynamic.modules.linear"]
    model, batch = load_own(folder, model_type)
    small = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    assert_near(found["logits"], small(**batch).logits, 1e-5)


def test_sentence_transformers_embeds_with_the_plain_encoder(answers):
    found = answers["sentences"]
    assert_near(found["embedded"], found["mean"], 1e-5)
    assert_near(found["again"], found["embedded"], 1e-6)
    assert math.dist(*found["embedded"]) > 0.1


@pytest.mark.slow  # torch's compiler takes some 20 s
@torch.no_grad()
def test_torch_compiles_it(folder, stranger):
    found = stranger("compile")["compile"]
    assert found.keys() == {"bert", "mpnet"}
    for model_type, logits in found.items():
        model, batch = load_own(folder, model_type)
        assert_near(logits, model(**batch).logits, 1e-5)


def test_the_environment_has_no_editable_install_of_this_package(python):
    if "site-packages" in checkpoint.__file__:
        pytest.skip("auber is not installed editable, so the environment shares its files")
    look = "import importlib.util as u; print(u.find_spec('torch') and u.find_spec('auber'))"
    done = subprocess.run([python, "-I", "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
