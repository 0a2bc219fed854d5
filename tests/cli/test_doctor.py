from __future__ import annotations

import json
import sys
from importlib import metadata

import huggingface_hub
import pytest

from auber.cli import doctor


@pytest.fixture
def versions(monkeypatch):
    """Change the installed version of packages; None means not installed."""
    changed: dict[str, str | None] = {}
    version = metadata.version

    def look_up(name):
        found = changed[name] if name in changed else version(name)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", look_up)
    return changed


def find(findings, name):
    (finding,) = [finding for finding in findings if finding.name == name]
    return finding


def test_nothing_is_broken_here(run_auber):
    code, out, _ = run_auber("doctor")
    assert code == 0
    assert out.endswith("Nothing that auber needs is broken.\n")
    for name in ("python", "torch", "transformers", "computes on", "onnx", "token"):
        assert f" {name} " in out
    code, out, _ = run_auber("doctor", "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (0, True)
    assert {"section", "name", "state", "found", "advice"} == set(report["findings"][0])


def test_a_missing_package(run_auber, versions):
    versions["datasets"] = None
    finding = find(doctor.check_packages(), "datasets")
    assert finding.state == "broken"
    assert finding.found.startswith("not installed, >=")
    assert finding.advice.startswith("pip install 'datasets>=")
    code, out, _ = run_auber("doctor")
    assert (code, out.splitlines()[-1]) == (1, "1 broken")


def test_an_old_package(versions):
    versions["transformers"] = "4.57.6"
    finding = find(doctor.check_packages(), "transformers")
    assert finding.state == "broken"
    assert finding.found.startswith("4.57.6, ")
    assert finding.found.endswith(" is needed")


def test_a_package_that_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    (finding,) = doctor.check_device()
    assert finding.state == "broken"
    assert "transformers" in finding.found
    assert finding.advice == "pip install --force-reinstall torch transformers"


def test_an_extra(versions):
    versions.update({"onnx": "1.0", "onnxruntime": "2.0", "onnxscript": None})
    finding = find(doctor.check_packages(), "onnx")
    assert finding.state == "missing"
    assert finding.found == "onnx 1.0, onnxruntime 2.0, onnxscript not installed"
    assert finding.advice == "pip install 'auber[onnx]' for auber export --to onnx"
    versions["onnxscript"] = "3.0"
    finding = find(doctor.check_packages(), "onnx")
    assert (finding.state, finding.found) == ("ok", "onnx 1.0, onnxruntime 2.0, onnxscript 3.0")


def test_a_source_tree_that_is_not_installed(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert find(doctor.check_packages(), "auber").state == "note"


def test_a_gpu_that_torch_does_not_see(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert find(doctor.check_device(), "GPU").state == "note"


def test_a_token_is_not_printed(run_auber, monkeypatch):
    secret = "hf_" + "x" * 20
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: secret)
    code, out, _ = run_auber("doctor")
    assert code == 0
    assert "token                    found" in out
    assert secret not in out


def test_the_hub_is_contacted_only_on_request(monkeypatch):
    def refuse(request, timeout):
        raise OSError("connection refused")

    monkeypatch.setattr(doctor.urllib.request, "urlopen", refuse)
    assert "reachable" not in {finding.name for finding in doctor.check_hub(online=False)}
    finding = find(doctor.check_hub(online=True), "reachable")
    assert (finding.state, finding.found.split(": ")[1]) == ("note", "connection refused")
    assert "--model DIR --data DIR" in finding.advice
