from __future__ import annotations

import json
import re

import pytest
import torch

from auber.errors import ConfigError
from auber.export import measure, onnx
from auber.export.measure import Runtime, choose_runtimes, count_multiply_adds
from auber.export.speed import SpeedRequest
from auber.export.subjects import read_subjects
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.training.cuda_graphs import CaptureError
from tests.export.models import make_run, save_pruned
from tests.tiny_models import tiny_model

TORCH, ONNX = ("torch", "cpu", "float32"), ("onnxruntime", "cpu", "float32")
QUICK = ["--length", "12", "--repeats", "6", "--threads", "1", "--device", "cpu"]


def build(folder, *args, **options):
    """Save a pruned model, and return the two models to measure."""
    save_pruned(folder, *args, **options)
    (subject,) = read_subjects((str(folder),), None)
    return subject.build()


# Sizes


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_multiply_adds_are_those_of_the_layers_the_pooler_and_the_classifier(attention):
    """What layers cost is checked for every family in tests/models/test_costs.py."""
    model, length = tiny_model("bert", attention=attention), 11
    encoder = encoder_of(model)
    layers = 3 * (4 * encoder.head_cost(length) + 48 * encoder.neuron_cost)
    assert count_multiply_adds(model, length) == length * layers + 32 * 32 + 32 * 2


# Runtimes


def choose(**changes):
    runtimes, left_out = choose_runtimes(SpeedRequest(runs=("x",), threads=1, **changes))
    return [runtime.setting for runtime in runtimes], left_out


def test_requested_runtimes_are_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose() == ([TORCH, ONNX], ["torch on a GPU: there is none here"])
    assert choose(device="cpu") == ([TORCH, ONNX], [])
    assert choose(device="cpu", onnx=False) == ([TORCH], [])
    message = "^device must be one that is here, found 'cuda' but torch sees no GPU"
    with pytest.raises(ConfigError, match=message):
        choose(device="cuda")


def test_all_runtimes_compute_what_the_models_compute(tmp_path):
    models = build(tmp_path / "mine", {0: [1, 2]}, num_hidden_layers=1)
    found = []
    for runtime in choose_runtimes(SpeedRequest(runs=("x",), threads=1, device="cpu"))[0]:
        calls = runtime.prepare(models, runtime.hardware, tmp_path)
        found.append([call().logits for call in calls(2, 9)])
    (unpruned, pruned), (*exact, int8_unpruned, int8_pruned) = found
    assert (unpruned - pruned).abs().max() > 0.1  # the heads had an effect
    for logits, same in zip((unpruned, pruned), exact, strict=True):
        assert torch.allclose(logits, same, atol=1e-4)
    for logits, near in ((unpruned, int8_unpruned), (pruned, int8_pruned)):
        assert 1e-4 < (logits - near).abs().max() < 0.1


def test_a_captured_call_is_replayed(monkeypatch, tmp_path):
    """The stand-in runs the work once, as a capture does, and counts the replays."""
    replayed = []

    def recorder(work):
        work()
        return lambda: replayed.append(work)

    monkeypatch.setattr(measure, "CudaGraphCapture", lambda device: recorder)
    models = build(tmp_path / "mine")
    (plain,), _ = choose_runtimes(SpeedRequest(runs=("x",), threads=1, device="cpu", onnx=False))
    expected, found = (
        [call().logits for call in prepare(models, plain.hardware, tmp_path)(2, 9)]
        for prepare in (plain.prepare, measure._prepare_cuda_graph)
    )
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert len(replayed) == 2


@pytest.mark.gpu
def test_a_gpu_computes_in_the_precision_of_a_run(tmp_path):
    models = build(tmp_path / "mine")
    runtimes, _ = choose_runtimes(SpeedRequest(runs=("x",), device="cuda"))
    assert [runtime.name for runtime in runtimes] == ["torch", "torch CUDA graph"]
    computed = []
    for runtime in runtimes:
        assert runtime.setting[1:] == (torch.cuda.get_device_name(), "bfloat16")
        calls = runtime.prepare(models, runtime.hardware, tmp_path)
        computed.append([call().logits for call in calls(2, 9)])
    for plain, captured in zip(*computed, strict=True):
        assert (plain.dtype, plain.device.type) == (torch.bfloat16, "cuda")
        assert torch.equal(plain, captured)
    assert {model.device.type for model in models} == {"cpu"}  # the caller's stay where they were


# Whole measurements, through the command line


def test_everything_at_once(run_auber, tmp_path):
    run, out_file = make_run(tmp_path / "mine", keep_weights=False), tmp_path / "new" / "speed.json"
    plan = PruningPlan({0: [0, 3]}, {0: range(5, 10)})
    save_pruned(run / "model", plan, num_hidden_layers=1)
    options = ["--batch", "3,1", *QUICK, "--onnx", "--json", "--out", out_file]
    code, out, err = run_auber("speed", run, *options)
    assert code == 0
    data = json.loads(out)
    assert data == json.loads(out_file.read_text())
    assert (data["format"], data["kind"], data["left_out"]) == (2, "speed", [])
    assert data["command"].startswith("auber speed mine --batch 3,1 --length 12")
    assert str(tmp_path) not in out
    assert data["provenance"]["threads"] == 1
    assert {"auber", "torch", "onnxruntime"} <= data["provenance"]["versions"].keys()
    (found,) = data["runs"]
    assert (found["name"], found["heads_removed"], found["heads"]) == ("rte auber seed 3", 2, 4)
    assert (found["neurons_removed"], found["neurons"]) == (5, 48)
    assert found["plan"] == {"heads": {"0": [0, 3]}, "neurons": {"0": "5-9"}}
    # A head has 8 rows of 32 weights and a bias in query, key and value; 8 columns in output. A
    # neuron has a row and a bias, and a column.
    sizes = found["parameters"]
    removed = 2 * (3 * 8 * (32 + 1) + 8 * 32) + 5 * (32 + 1 + 32)
    assert sizes["unpruned"] - sizes["pruned"] == removed
    assert 0 < found["int8_bytes"]["pruned"] < found["int8_bytes"]["unpruned"]
    assert 0 < found["multiply_adds"]["pruned"] < found["multiply_adds"]["unpruned"]
    settings = [
        (each["runtime"], each["device"], each["precision"], each["batch"])
        for each in found["timings"]
    ]
    assert settings == [(*setting, batch) for setting in (TORCH, ONNX) for batch in (1, 3)]
    for timing in found["timings"]:
        assert (timing["rounds"], timing["length"]) == (6, 12)
        names = ["pruned", "unpruned int8", "pruned int8"]
        names = names[:1] if timing["runtime"] == "torch" else names
        assert [each["name"] for each in timing["variants"]] == names
        for each in timing["variants"]:
            times, ratio = each["times"], each["ratio"]
            assert 0 < times["low_quartile"] <= times["milliseconds"] <= times["high_quartile"]
            rate = 1000 * timing["batch"] / times["milliseconds"]
            assert times["rows_per_second"] == pytest.approx(rate, rel=1e-4)
            assert ratio["low"] <= ratio["median"] <= ratio["high"]
    assert re.search(r"rte auber seed 3: onnxruntime, cpu, batch 3: .*\(100 % of the run\)", err)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            CaptureError("called a synchronizing CUDA operation, at model.py:7"),
            "it cannot be captured: called a synchronizing CUDA operation, at model.py:7",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"), None),
    ],
)
def test_a_batch_that_cannot_be_measured_is_left_out(
    run_auber, tmp_path, monkeypatch, error, reason
):
    def prepare_small(models, hardware, folder):
        plain = measure.torch_calls(models, hardware)

        def calls(rows, length):
            if rows > 2:
                raise error
            return plain(rows, length)

        return calls

    def choose_small(request):
        (chosen,), left_out = choose_runtimes(request)
        return [Runtime("torch", chosen.hardware, prepare_small)], left_out

    monkeypatch.setattr(measure, "choose_runtimes", choose_small)
    run = make_run(tmp_path / "mine")
    options = ["--batch", "2,99", *QUICK, "--no-onnx", "--quiet"]
    code, out, err = run_auber("speed", run, *options)
    assert (code, err) == (0, "")
    assert "torch, cpu, float32, batch 2" in out
    reason = reason or "it does not fit into the memory"
    assert f"left out: rte auber seed 3: torch, batch 99: {reason}" in " ".join(out.split())


def test_other_errors_are_not_taken_for_a_full_memory():
    assert measure._explain_failure(RuntimeError("The size of tensor a (3) must match")) is None


def test_missing_packages_are_named(run_auber, tmp_path, monkeypatch):
    run = make_run(tmp_path / "mine")
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxscript" else object())
    code, out, _ = run_auber("speed", run, "--batch", "1", *QUICK)
    assert code == 0
    assert "left out: onnxruntime: onnxscript not installed; pip install 'auber[onnx]'\n" in out
    code, _, err = run_auber("speed", run, "--batch", "1", *QUICK, "--onnx")
    assert code == 2
    assert err == "auber: --onnx needs onnxscript, not installed here; pip install 'auber[onnx]'\n"


BATCHES = "--batch must be different numbers from 1 with commas between, such as 1,16, found"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "1;2"], BATCHES),
        (["--batch", "0,1"], BATCHES),
        (["--batch", "2,2"], BATCHES),
        (["--length", "0"], "--length must be at least 1, found 0"),
        (["--threads", "-1"], "--threads must be 0 (as many as torch finds) or more, found -1"),
        (["--repeats", "5"], "--repeats must be at least 6, the fewest "),
        (["--seconds", "0"], "--seconds must be above 0, found 0"),
        (
            ["--device", "cdua"],
            "Unknown device 'cdua'. Did you mean 'cuda'? Known: auto, cpu, cuda",
        ),
        (["--out", "."], ".: must be a file in a folder that can be written to; choose another"),
        (["--out", "/dev/null"], "/dev/null: must be a file in a folder that can be written to"),
        (["--device", "cpu", "--quiet"], "none: a run's folder, its result.json, a results file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_auber, arguments, message):
    code, out, err = run_auber("speed", "none", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"auber: {message}")
    assert err.count("\n") == 1
