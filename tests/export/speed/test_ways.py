from __future__ import annotations

import pytest
import torch

from auber.data.task_types import TASK_TYPES
from auber.errors import ConfigError
from auber.export.speed import ways
from auber.export.speed.request import Request
from auber.export.speed.subjects import read_subjects
from auber.export.speed.ways import choose_ways
from auber.training.outputs import OUTPUTS
from tests.export.models import save_pruned


def chosen(**changes):
    ways, left_out = choose_ways(Request(runs=("x",), threads=1, **changes))
    return [way.words for way in ways], left_out


TORCH, ONNX = ("torch", "cpu", "float32"), ("onnxruntime", "cpu", "float32")


def test_what_is_asked_for_is_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen() == ([TORCH, ONNX], ["torch on a GPU: there is none here"])
    assert chosen(device="cpu") == ([TORCH, ONNX], [])
    assert chosen(device="cpu", onnx=False) == ([TORCH], [])
    with pytest.raises(
        ConfigError, match="^device must be one that is here, found 'cuda' but torch sees no GPU"
    ):
        chosen(device="cuda")


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_both_runtimes_compute_what_the_models_compute(kind, tmp_path):
    save_pruned(tmp_path / "mine", {0: [1, 2]}, kind=kind, num_hidden_layers=1)
    (subject,) = read_subjects((str(tmp_path / "mine"),), None)
    models = subject.build()
    found = []
    for way in choose_ways(Request(runs=("x",), threads=1, device="cpu"))[0]:
        with way.open(models, way.hardware) as calls:
            found.append([OUTPUTS[kind].logits(call()) for call in calls(2, 9)])
    (torch_unpruned, torch_pruned), (onnx_unpruned, onnx_pruned) = found
    assert torch.allclose(torch_unpruned, onnx_unpruned, atol=1e-4)
    assert torch.allclose(torch_pruned, onnx_pruned, atol=1e-4)
    assert not torch.allclose(torch_pruned, torch_unpruned, atol=1e-4)  # the heads did something


def test_what_is_recorded_is_the_call_and_its_output(monkeypatch, tmp_path):
    """A stand-in records: it does the work once, as a GPU does in a recording, and counts how often it is repeated."""
    repeated = []

    def recorder(work):
        work()
        return lambda: repeated.append(work)

    monkeypatch.setattr(ways, "CudaGraphCapture", lambda device: recorder)
    save_pruned(tmp_path / "mine")
    (subject,) = read_subjects((str(tmp_path / "mine"),), None)
    models = subject.build()
    (plain,), _ = choose_ways(Request(runs=("x",), threads=1, device="cpu", onnx=False))
    with plain.open(models, plain.hardware) as calls:
        expected = [call().logits for call in calls(2, 9)]
    with ways._open_recorded(models, plain.hardware) as calls:
        found = [call().logits for call in calls(2, 9)]
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert len(repeated) == 2


@pytest.mark.gpu
def test_a_gpu_computes_in_the_precision_of_a_run(tmp_path):
    save_pruned(tmp_path / "mine")
    (subject,) = read_subjects((str(tmp_path / "mine"),), None)
    models = subject.build()
    found, _ = choose_ways(Request(runs=("x",), device="cuda"))
    assert [way.runtime for way in found] == ["torch", "torch CUDA graph"]
    computed = []
    for way in found:
        assert way.words[1:] == (torch.cuda.get_device_name(), "bfloat16")
        with way.open(models, way.hardware) as calls:
            computed.append([call().logits for call in calls(2, 9)])
    for plain, recorded in zip(*computed, strict=True):
        assert (plain.dtype, plain.device.type) == (torch.bfloat16, "cuda")
        assert torch.equal(plain, recorded)
    assert {model.device.type for model in models} == {
        "cpu"
    }  # those of the caller stay where they were
