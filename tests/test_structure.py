"""Imports go one way, public names are sorted and exist, and start-up is fast."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import auber
from tests.conftest import LONGEST, TESTS

SOURCE = Path(auber.__file__).parent

# A package imports only from those before it.
ORDER = [
    "errors", "system", "config", "metrics", "data", "models", "training", "scoring", "search",
    "run", "export", "api", "callback", "demo", "study", "report", "cli",
]  # fmt: skip


def module_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "auber"
        ):
            inner = node.module.split(".")[1:]
            names |= {inner[0]} if inner else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                alias.name.split(".")[1] for alias in node.names if alias.name.startswith("auber.")
            }
    return names


def test_every_module_has_a_place():
    found = {module_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert found == set(ORDER)


def test_imports_go_one_way():
    wrong = {}
    for path in SOURCE.rglob("*.py"):
        module = module_of(path)
        if module not in ("__init__", "__main__"):
            place = ORDER.index(module)
            if later := {name for name in imported_modules(path) if ORDER.index(name) > place}:
                wrong[str(path.relative_to(SOURCE))] = later
    assert wrong == {}, "packages that come after it"


def test_public_names_are_sorted_and_exist():
    assert sorted(auber.__all__) == auber.__all__
    assert dir(auber) == auber.__all__
    for name in auber.__all__:
        assert getattr(auber, name) is not None
    with pytest.raises(AttributeError, match="module 'auber' has no attribute 'nothing'"):
        _ = auber.nothing


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240
    )


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, auber, auber.cli\n"
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_the_core_imports_without_the_optional_packages():
    code = (
        "import sys\n"
        "optional = 'ray onnx onnxruntime jinja2 matplotlib pandas mlflow datasets gymnasium'\n"
        "for name in optional.split():\n"
        "    sys.modules[name] = None\n"
        "import auber.api, auber.cli, auber.demo, auber.search.registry\n"
    )
    assert run_python(code).stderr == ""


def test_help_starts_in_under_a_second():
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "auber", "--help"], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert "prune" in done.stdout
    assert min(seconds) < 1.0


def test_the_slow_files_exist():
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
