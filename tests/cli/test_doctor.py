from __future__ import annotations

import json
import threading
from importlib import metadata

import huggingface_hub
import pytest

from auber.cli import doctor_checks as doctor
from auber.cli.doctor_checks import State, examine


@pytest.fixture
def absent(monkeypatch):
    """Makes packages look as if they were not installed, or of another version."""
    changed: dict[str, str | None] = {}
    version = metadata.version

    def look_up(name):
        if name in changed:
            if changed[name] is None:
                raise metadata.PackageNotFoundError(name)
            return changed[name]
        return version(name)

    monkeypatch.setattr(metadata, "version", look_up)
    return changed


def find(name, **options):
    (finding,) = [finding for finding in examine(**options) if finding.name == name]
    return finding


def test_here_nothing_is_broken(run_auber):
    code, out, _ = run_auber("doctor")
    assert code == 0
    assert out.endswith("Nothing that auber needs is broken.\n")
    for name in ("python", "torch", "transformers", "computes on", "CPU threads", "token", "cache"):
        assert f" {name} " in out


def test_json(run_auber):
    code, out, _ = run_auber("doctor", "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (0, True)
    assert {"section", "name", "state", "found", "advice"} == set(report["findings"][0])


def test_a_package_that_is_needed_and_not_there(run_auber, absent):
    absent["datasets"] = None
    finding = find("datasets")
    assert (finding.state, finding.found) == (State.BROKEN, "not installed")
    assert finding.advice.startswith("pip install 'datasets>=")
    code, out, _ = run_auber("doctor")
    assert code == 1
    assert out.endswith("1 broken\n")


def test_a_package_that_is_too_old(absent):
    absent["transformers"] = "4.57.6"
    finding = find("transformers")
    assert finding.state is State.BROKEN
    assert finding.found.startswith("4.57.6, ")
    assert finding.found.endswith(" is needed")


def test_a_package_that_cannot_be_imported(monkeypatch):
    import_module = doctor.importlib.import_module

    def fail(name):
        if name == "tokenizers":
            raise ImportError("undefined symbol\nmore")
        return import_module(name)

    monkeypatch.setattr(doctor.importlib, "import_module", fail)
    finding = find("import tokenizers")
    assert (finding.state, finding.found) == (State.BROKEN, "undefined symbol")


@pytest.mark.parametrize(
    ("extra", "package"), [("ray", "ray"), ("onnx", "onnxscript"), ("track", "mlflow")]
)
def test_an_optional_part_that_is_not_there_is_no_harm(absent, extra, package):
    absent[package] = None
    finding = find(extra)
    assert finding.state is State.MISSING
    assert package in finding.found
    assert finding.advice.startswith(f"pip install 'auber[{extra}]' for ")


def test_an_optional_part_that_is_there(absent):
    absent.update({"onnx": "1.0", "onnxruntime": "2.0", "onnxscript": "3.0"})
    finding = find("onnx")
    assert (finding.state, finding.found) == (State.OK, "onnx 1.0, onnxruntime 2.0, onnxscript 3.0")


def test_a_source_tree_that_is_not_installed_is_no_harm(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert find("auber").state is State.NOTE


def test_a_token_is_never_shown(monkeypatch):
    secret = "hf_" + "x" * 20
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: secret)
    findings = examine()
    assert next(finding for finding in findings if finding.name == "token").found == "there"
    assert secret not in str(findings)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert find("token").found == "none"


def test_the_hub_is_asked_only_when_told_to(monkeypatch):
    asked = []
    monkeypatch.setattr(doctor, "_reach", asked.append)
    examine()
    assert asked == []
    assert find("reachable", online=True).state is State.OK
    assert len(asked) == 1


def test_a_hub_that_is_not_reached_is_a_note_and_not_waited_for(monkeypatch):
    assert "refused" in (doctor._reach("http://127.0.0.1:9/") or "").lower()
    assert (
        doctor._reach("file:///etc/hostname")
        == "must be an http or https address; look at HF_ENDPOINT"
    )
    over, ended = threading.Event(), threading.Event()

    def hang(*_, **__):
        over.wait(60)
        ended.set()
        raise OSError("too late")

    monkeypatch.setattr(doctor.urllib.request, "urlopen", hang)
    assert doctor._reach("http://hub.example", patience=0.1) == "no answer in 0.1 s"
    assert not ended.is_set(), "it was waited for"
    over.set()
    monkeypatch.setattr(doctor, "_reach", lambda address: "no answer in 5 s")
    finding = find("reachable", online=True)
    assert finding.state is State.NOTE
    assert "--model DIR --data DIR" in finding.advice


def test_a_cache_that_cannot_be_written_is_broken(monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    finding = find("cache")
    assert finding.state is State.BROKEN
    assert finding.advice == "set HF_HOME to a folder you may write to"


def test_little_space_is_a_note(monkeypatch):
    class Usage:
        free = 1e9

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage)
    finding = find("here")
    assert (finding.state, finding.found.split(" free")[0]) == (State.NOTE, "1.0 GB")


def test_a_gpu_that_torch_does_not_see(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "_gpu_driver", lambda: "580.1")
    finding = find("GPU driver")
    assert (finding.state, finding.found) == (State.NOTE, "580.1 is there, but torch sees no GPU")


def test_variables_that_surprise(monkeypatch, absent):
    absent["onnxruntime"] = "1.31"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    assert find("OMP_NUM_THREADS").found == "3"
    assert find("WORLD_SIZE").found == "2 processes"
    assert (
        find("ORT_DISABLE_TELEMETRY").advice == "export ORT_DISABLE_TELEMETRY=1 switches that off"
    )
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    assert "ORT_DISABLE_TELEMETRY" not in {finding.name for finding in examine()}
