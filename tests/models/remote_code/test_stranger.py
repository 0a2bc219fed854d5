"""A saved folder in an environment without this package: the same logits, and everything people do with a model."""

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
from safetensors.torch import save_file

from auber.models import checkpoint
from auber.models.surgery import remove_heads
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer

PLAN = {0: [1], 2: [0, 2, 3]}
QUICK = ("logits", "encoder", "resave", "classify", "train", "quantise", "sentences")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pruned model of every family with a batch for it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "batches").mkdir()
    for model_type in MODEL_TYPES:
        model = tiny_model(
            model_type, pad_token_id=1, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}
        )
        remove_heads(model, PLAN)
        checkpoint.save(model, tiny_tokenizer(), folder / model_type)
        save_file(random_batch(model), folder / "batches" / f"{model_type}.safetensors")
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment that has this one's packages, but not what is installed editable."""
    environment = tmp_path_factory.mktemp("stranger") / "venv"
    venv.create(environment)
    (site,) = environment.glob("lib/python*/site-packages")
    # a .pth file's folder is searched for packages, but its own .pth files, such as an editable install's, are not read
    (site / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return environment / "bin" / "python"


@pytest.fixture(scope="module")
def stranger(python, folder):
    """Has the stranger do some deeds; what each gave."""
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

    def run(*deeds):
        command = [python, "-I", Path(__file__).with_name("stranger.py"), folder, *deeds]
        done = subprocess.run(
            command, env=variables, cwd=home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return {
            deed: json.loads((folder / "answers" / f"{deed}.json").read_text()) for deed in deeds
        }

    return run


@pytest.fixture(scope="module")
def answers(stranger):
    """What the quick deeds gave, from one start of Python."""
    return stranger(*QUICK)


@pytest.fixture
def answer(answers):
    def of(deed):
        assert "error" not in answers[deed], answers[deed]["error"]
        return answers[deed]

    return of


def ours(folder, model_type):
    """The model as this package loads it, and its batch."""
    from safetensors.torch import load_file

    return checkpoint.load(folder / model_type), load_file(
        folder / "batches" / f"{model_type}.safetensors"
    )


def assert_near(found, expected, tolerance=1e-6):
    found = torch.tensor(found, dtype=torch.float64)
    torch.testing.assert_close(
        found, torch.as_tensor(expected, dtype=torch.float64), atol=tolerance, rtol=0
    )


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_logits_are_the_same(model_type, folder, answer):
    model, batch = ours(folder, model_type)
    assert_near(answer("logits")[model_type], model(**batch).logits)


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_plain_encoder_gives_the_same_hidden_states(model_type, folder, answer):
    model, batch = ours(folder, model_type)
    assert_near(answer("encoder")[model_type], model.base_model(**batch)[0])


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_copy_saved_by_transformers_loads_everywhere(model_type, folder, answer):
    model, batch = ours(folder, model_type)
    assert_near(answer("resave")[model_type], model(**batch).logits)
    assert torch.equal(
        checkpoint.load(folder / "copies" / model_type)(**batch).logits, model(**batch).logits
    )


def test_the_pipeline_answers_with_the_labels(answer):
    found = answer("classify")
    for row, logits in zip(found["answers"], found["logits"], strict=True):
        shares = torch.tensor(logits, dtype=torch.float64).softmax(0)
        scores = {entry["label"]: entry["score"] for entry in row}
        assert_near([scores["no"], scores["yes"]], shares)


@torch.no_grad()
@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_trainer_trains_saves_and_loads_it_again(model_type, folder, answer):
    found = answer("train")[model_type]
    change = torch.tensor(found["trained"]) - torch.tensor(found["before"])
    assert change.abs().max() > 1e-4
    assert_near(found["loaded"], found["trained"])
    _, batch = ours(folder, model_type)
    assert_near(
        checkpoint.load(folder / "trained" / model_type)(**batch).logits.tolist(), found["trained"]
    )


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, :UserWarning")
@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_it_can_be_quantised_to_8_bits(model_type, folder, answer):
    found = answer("quantise")[model_type]
    assert found["linears"] == ["torch.ao.nn.quantized.dynamic.modules.linear"]
    model, batch = ours(folder, model_type)
    small = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    assert_near(found["logits"], small(**batch).logits, 1e-5)


def test_sentence_transformers_embeds_with_the_plain_encoder(answer):
    found = answer("sentences")
    assert_near(found["embedded"], found["mean"], 1e-5)
    assert_near(found["again"], found["embedded"], 1e-6)
    assert math.dist(*found["embedded"]) > 0.1


@pytest.mark.slow  # torch's compiler takes some 20 s
@torch.no_grad()
def test_torch_compiles_it(folder, stranger):
    found = stranger("compile")["compile"]
    assert "error" not in found, found["error"]
    assert found.keys() == {"bert", "mpnet"}
    for model_type, logits in found.items():
        model, batch = ours(folder, model_type)
        assert_near(logits, model(**batch).logits, 1e-5)


def test_the_stranger_has_no_editable_install_of_this_package(python):
    if "site-packages" in checkpoint.__file__:
        pytest.skip(
            "auber is not installed editable here, so its files lie among the packages the stranger shares"
        )
    look = "import importlib.util; print(importlib.util.find_spec('torch') and importlib.util.find_spec('auber'))"
    done = subprocess.run([python, "-I", "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
