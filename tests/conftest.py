"""Shared fixtures. All tests run offline and on one CPU thread, so that their bits repeat."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_worker_niceness", "0")  # the default starves workers on a busy machine

import pytest
import torch
from hypothesis import HealthCheck, settings

# On a busy machine an example may take long, to make or to test.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

TESTS = Path(__file__).parent

# Slow files start first, so that no process is left with one at the end. Tests run in any order.
LONGEST = (
    "docs/test_running.py",
    "test_demo.py",
    "export/test_onnx.py",
    "run/test_steps.py",
    "run/test_fold_models.py",
    "study/test_engines.py",
    "export/test_measure.py",
    "study/test_runner.py",
    "benchmarks/test_soak.py",
    "run/test_pretrained.py",
    "run/test_determinism.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow files first."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _restore_ctrl_c() -> None:
    """Handle Ctrl-C even if the shell that started the tests in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def run_auber(monkeypatch, capsys):
    """Run a command line in this process; return exit code, stdout and stderr."""
    from auber.cli import main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/auber", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "160")
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def starter():
    """Start processes with all imports done: `starter.Process(target=..., args=...)`."""
    from benchmarks.soak.job import make_starter

    return make_starter()


@pytest.fixture
def young_garbage():
    """Exclude loaded modules from garbage collection, for code that collects often."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def ray(monkeypatch):
    """Return ray without a cluster, and shut it down after the test."""
    found = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield found
    found.shutdown()
