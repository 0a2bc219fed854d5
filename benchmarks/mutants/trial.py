"""Tests of one module in a copy of the tree, in processes forked with all imports done."""

from __future__ import annotations

import compileall
import importlib
import json
import os
import py_compile
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT

SECONDS = 60  # for one test; an endless loop takes more
_COPIED = ("src", "tests", "benchmarks", "docs", "results", "studies", "notebooks")
_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")
_IMPORTS = (
    "accelerate", "hypothesis", "numpy", "pandas", "pydantic", "pytest", "pytest_timeout",
    "rich.progress", "safetensors.torch", "scipy.stats", "torch", "torch.utils.data", "typer",
    "tokenizers", "transformers.models.auto.modeling_auto", "transformers.trainer",
    "transformers.models.auto.tokenization_auto", "transformers.models.bert.modeling_bert",
)  # fmt: skip


def import_libraries() -> None:
    """Import what all tests import, once for all processes."""
    for name in _IMPORTS:
        importlib.import_module(name)


def copy_tree(folder: Path) -> None:
    """Copy what the tests need, compiled so that bytecode of other sources is never used."""
    for name in _COPIED:
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "site")
        )
    for name in _FILES:
        shutil.copy(ROOT / name, folder)
    compileall.compile_dir(
        folder / "src", quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
    )


def find_tests(tree: Path, source: str) -> list[list[str]]:
    """Return a module's own test file, those that name the module, and those of its package."""
    module = Path(source).relative_to("src/auber").with_suffix("")
    if module.name == "__init__":
        module = module.parent
    package, name = module.parent, module.name
    mirror = Path("tests") / package / f"test_{name}.py"
    dotted, above = (re.escape(".".join(path.parts)) for path in (module, package))
    names = re.compile(rf"auber\.{dotted}\b(?!\.)|from auber\.{above} import .*\b{name}\b")
    paths = sorted((tree / "tests").rglob("test_*.py"))
    naming = [path for path in paths if names.search(path.read_text(encoding="utf-8"))]
    inside = [path for path in paths if path.parent == (tree / mirror).parent]
    found: list[list[str]] = []
    for group in ([tree / mirror] if (tree / mirror).exists() else [], naming, inside):
        known = {file for files in found for file in files}
        files = [str(path.relative_to(tree)) for path in group]
        found.append([file for file in files if file not in known])
    return found


class _Listener:
    """A pytest plugin that remembers the first test that failed."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.is_timeout = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
            self.is_timeout = "Timeout (>" in str(report.longrepr)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def run_tests(tree: Path, files: Sequence[str], limit: float) -> dict[str, Any]:
    """Run test files until a test fails; return it, and the seconds of each file.

    All processes of the tests end with it; past the limit of seconds they are killed.
    """
    answer = tree / "answer.json"
    answer.unlink(missing_ok=True)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _run_in_child(tree, files, answer)
    ended = 0
    try:
        while not ended and time.monotonic() - began < limit:
            ended, _ = os.waitpid(child, os.WNOHANG)
            time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)
    found: dict[str, Any] = {"failed": None, "is_timeout": not ended, "seconds": {}}
    if answer.exists():
        found |= json.loads(answer.read_text(encoding="utf-8"))
    elif ended:
        found["failed"] = "the process of the tests"
    return found


def _run_in_child(tree: Path, files: Sequence[str], answer: Path) -> None:
    try:
        os.setsid()
        os.chdir(tree)
        sink = os.open(tree / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.environ["PYTHONPATH"] = os.pathsep.join((str(tree / "src"), str(tree)))
        own = {str(ROOT), str(ROOT / "src")}
        sys.path[:] = [str(tree), str(tree / "src"), *(p for p in sys.path if p not in own)]
        for name in list(sys.modules):
            if name.partition(".")[0] in ("auber", "benchmarks", "tests"):
                del sys.modules[name]
        import pytest

        seconds: dict[str, float] = {}
        for file in files:
            began, listener = time.monotonic(), _Listener()
            words = ["-x", "-q", "-p", "no:cacheprovider", "--assert", "plain", "--timeout"]
            pytest.main([*words, str(SECONDS), file], plugins=[listener])
            seconds[file] = round(time.monotonic() - began, 2)
            if listener.failed:
                break
        found = {"failed": listener.failed, "is_timeout": listener.is_timeout, "seconds": seconds}
        answer.write_text(json.dumps(found), encoding="utf-8")
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(0)
