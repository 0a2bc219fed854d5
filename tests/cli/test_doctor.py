from __future__ import annotations

import json
import sys
from importlib import metadata

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


def find(name):
    (finding,) = [finding for finding in doctor.check_packages() if finding.name == name]
    return finding


def test_nothing_is_broken_here(run_auber):
    code, out, _ = run_auber("doctor")
    assert code == 0
    assert out.endswith("auber is ready to use.\n")
    for name in ("python", "torch", "transformers", "computes on", "onnx"):
        assert f"{name} " in out
    code, out, _ = run_auber("doctor", "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (0, True)
    assert {"name", "state", "found", "advice"} == set(report["findings"][0])


@pytest.mark.parametrize(
    ("package", "version", "found"),
    [("datasets", None, "not installed, >="), ("transformers", "4.57.6", "4.57.6, ")],
)
def test_a_missing_or_old_package(run_auber, versions, package, version, found):
    versions[package] = version
    finding = find(package)
    assert (finding.state, finding.found.startswith(found)) == ("broken", True)
    assert finding.found.endswith(" is needed")
    assert finding.advice.startswith(f"pip install '{package}")
    code, out, _ = run_auber("doctor")
    assert (code, out.splitlines()[-1]) == (1, "1 broken")


def test_a_package_that_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    finding = doctor.check_device()
    assert (finding.state, "transformers" in finding.found) == ("broken", True)
    assert finding.advice == "pip install --force-reinstall torch transformers"


def test_an_extra(versions):
    versions["onnxscript"] = None
    finding = find("onnxscript")
    assert finding.state == "missing"
    assert finding.found == "not installed, >=0.5 is needed"
    assert finding.advice == "pip install 'auber[onnx]'"
    versions["onnxscript"] = "3.0"
    assert find("onnxscript")[1:3] == ("ok", "3.0")
