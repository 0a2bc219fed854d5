"""Whole measurements, through the command line."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
import torch

from auber.export import graph
from auber.export.speed import measure, ways
from auber.export.speed.ways import Way, choose_ways
from auber.training.cuda_graphs import CaptureError
from tests.export.speed.runs import make_run
from tests.tiny_models import tiny_config

QUICK = ["--length", "12", "--repeats", "6", "--threads", "1", "--device", "cpu"]


def test_everything_at_once(run_auber, tmp_path):
    run = make_run(tmp_path / "mine")
    out_file = tmp_path / "new" / "speed.json"
    code, out, err = run_auber(
        "speed", run, "--batch", "3,1", *QUICK, "--onnx", "--json", "--out", out_file
    )
    assert code == 0
    data = json.loads(out)
    assert data == json.loads(out_file.read_text())
    assert (data["format"], data["kind"], data["left_out"]) == (1, "speed", [])
    assert data["command"].startswith("auber speed mine --batch 3,1 --length 12")
    assert str(tmp_path) not in out
    assert data["provenance"]["threads"] == 1
    assert {"auber", "torch", "onnxruntime"} <= data["provenance"]["versions"].keys()
    (found,) = data["runs"]
    assert (found["name"], found["heads_removed"], found["heads"]) == ("rte auber seed 3", 6, 12)
    assert found["plan"] == {"0": [0, 3], "1": [1], "2": [0, 1, 2]}
    for key in ("parameters", "multiply_adds"):
        assert 0 < found[key]["pruned"] < found[key]["unpruned"]
    ways = [
        (pair["runtime"], pair["device"], pair["precision"], pair["batch"])
        for pair in found["pairs"]
    ]
    assert ways == [
        (runtime, "cpu", "float32", batch)
        for runtime in ("torch", "onnxruntime")
        for batch in (1, 3)
    ]
    for pair in found["pairs"]:
        assert (pair["rounds"], pair["length"]) == (6, 12)
        times = pair["pruned"]
        assert 0 < times["low_quartile"] <= times["milliseconds"] <= times["high_quartile"]
        assert times["rows_per_second"] == pytest.approx(
            1000 * pair["batch"] / times["milliseconds"], rel=1e-4
        )
        assert pair["ratio"]["low"] <= pair["ratio"]["median"] <= pair["ratio"]["high"]
    assert "rte auber seed 3: onnxruntime, cpu, batch 3: " in err


def test_runs_of_every_kind_stand_side_by_side(run_auber, tmp_path):
    runs = [
        make_run(tmp_path / "tags", kind="tokens", task="tags", metric="entity_f1", labels=5),
        make_run(tmp_path / "answers", kind="spans", task="answers", metric="span_f1"),
    ]
    code, out, _ = run_auber(
        "speed", *runs, "--batch", "2", *QUICK, "--no-onnx", "--json", "--quiet"
    )
    assert code == 0
    tags, answers = json.loads(out)["runs"]
    assert (tags["name"], answers["name"]) == ("tags auber seed 3", "answers auber seed 3")
    # Classifiers for 5 tags and for 2 sides, of 32 weights and a bias each; multiply-adds for all of 12 tokens.
    for key, each in (("parameters", 32 + 1), ("multiply_adds", 12 * 32)):
        assert tags[key]["pruned"] - answers[key]["pruned"] == 3 * each
        assert tags[key]["pruned"] < tags[key]["unpruned"]


def test_what_cannot_be_recorded_is_left_out_and_said(run_auber, tmp_path, monkeypatch):
    def refuse(work):
        raise CaptureError("called a synchronizing CUDA operation, at model.py:7")

    def with_a_recorder(request):
        chosen, left_out = choose_ways(request)
        return [*chosen, Way("torch CUDA graph", chosen[0].hardware, ways._open_recorded)], left_out

    monkeypatch.setattr(ways, "CudaGraphCapture", lambda device: refuse)
    monkeypatch.setattr(measure, "choose_ways", with_a_recorder)
    run = make_run(tmp_path / "mine")
    code, out, err = run_auber("speed", run, "--batch", "2", *QUICK, "--no-onnx", "--quiet")
    assert (code, err) == (0, "")
    assert "torch, cpu, float32, batch 2" in out
    assert (
        "left out: rte auber seed 3: torch CUDA graph, batch 2: it cannot be recorded: called a synchronizing CUDA "
        "operation, at model.py:7" in " ".join(out.split())
    )


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB."),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:125] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
        ),
        MemoryError(),
    ],
)
def test_a_batch_that_does_not_fit_into_the_memory_is_left_out_and_said(
    run_auber, tmp_path, monkeypatch, error
):
    @contextmanager
    def open_small(models, hardware):
        def calls(rows, length):
            if rows > 2:
                raise error
            return plain(rows, length)

        with ways.open_torch(models, hardware) as plain:
            yield calls

    def small(request):
        (chosen,), left_out = choose_ways(request)
        return [Way("torch", chosen.hardware, open_small)], left_out

    monkeypatch.setattr(measure, "choose_ways", small)
    run = make_run(tmp_path / "mine")
    code, out, err = run_auber("speed", run, "--batch", "2,99", *QUICK, "--no-onnx", "--quiet")
    assert (code, err) == (0, "")
    assert "torch, cpu, float32, batch 2" in out
    assert "left out: rte auber seed 3: torch, batch 99: it does not fit into the memory\n" in out


def test_other_errors_are_not_taken_for_a_full_memory():
    assert (
        measure._why_not(
            RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")
        )
        is None
    )


def test_several_runs_are_a_line_each(run_auber, tmp_path):
    tiny_config("bert").save_pretrained(tmp_path / "origin")
    runs = [
        make_run(tmp_path / "first"),
        make_run(tmp_path / "second", keep_weights=False, method="random"),
        make_run(tmp_path / "third", keep_weights=False, method="original", plan={}),
    ]
    code, out, err = run_auber(
        "speed",
        *runs,
        "--model",
        tmp_path / "origin",
        "--batch",
        "1",
        *QUICK,
        "--no-onnx",
        "--quiet",
    )
    assert (code, err) == (0, "")
    assert out.startswith(
        "rows of 12 tokens, 1 CPU thread; both models have random weights, which latency does not"
    )
    first, second = out.split("\n\n")[1:]
    assert "torch, cpu, float32, batch 1" in first
    for name, removed in (("auber", "6 of 12"), ("random", "6 of 12"), ("original", "0 of 12")):
        (line,) = [line for line in first.splitlines() if line.startswith(f"rte {name} seed 3")]
        assert removed in line
        assert (
            len([line for line in second.splitlines() if line.startswith(f"rte {name} seed 3")])
            == 1
        )
    assert "(+0.0 %)" in first  # nothing was removed, nothing is saved


def test_what_is_not_installed_is_said(run_auber, tmp_path, monkeypatch):
    run = make_run(tmp_path / "mine")
    monkeypatch.setattr(graph, "find_spec", lambda name: None if name == "onnxscript" else object())
    code, out, _ = run_auber("speed", run, "--batch", "1", *QUICK)
    assert code == 0
    assert "left out: onnxruntime: onnxscript not installed; pip install 'auber[onnx]'\n" in out
    code, _, err = run_auber("speed", run, "--batch", "1", *QUICK, "--onnx")
    assert (code, err) == (
        2,
        "auber: --onnx needs onnxscript, not installed here; pip install 'auber[onnx]'\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--batch", "1;2"],
            "auber: --batch must be different numbers from 1 with commas between, such as 1,32, found",
        ),
        (
            ["--batch", "0,1"],
            "auber: --batch must be different numbers from 1 with commas between, such as 1,32, found",
        ),
        (
            ["--batch", "2,2"],
            "auber: --batch must be different numbers from 1 with commas between, such as 1,32, found",
        ),
        (["--length", "0"], "auber: --length must be at least 1, found 0"),
        (
            ["--threads", "-1"],
            "auber: --threads must be 0 (as many as torch finds) or more, found -1",
        ),
        (
            ["--repeats", "5"],
            "auber: --repeats must be at least 6, the fewest an interval can be made of, found 5",
        ),
        (["--seconds", "0"], "auber: --seconds must be above 0, found 0"),
        (
            ["--device", "cdua"],
            "auber: Unknown device 'cdua'. Did you mean 'cuda'? Known: auto, cpu, cuda",
        ),
        (
            ["--out", "."],
            "auber: .: must be a file in a folder that can be written to; choose another --out",
        ),
        (
            ["--out", "/dev/null"],
            "auber: /dev/null: must be a file or a name for a new one, found a device or a pipe",
        ),
        (
            ["--out", "/dev/null/x/y.json"],
            "auber: /dev/null/x/y.json: its folder cannot be made (Not a directory)",
        ),
        (
            ["--device", "cpu", "--quiet"],
            "auber: none: a run's folder, its result.json, a results file or a model folder is needed",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_auber, arguments, message):
    code, out, err = run_auber("speed", "none", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1
