"""What every test stands on: one CPU thread (so that bits repeat), no network, and no word to the outside."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault(
    "RAY_worker_niceness", "0"
)  # by default Ray's workers come last where the machine has other work

import pytest
import torch

TESTS = Path(__file__).parent

# Files that take a minute of a core or so, the longest first. Several processes begin with them, so that none is left in a long
# one when the others have nothing to do any more. The order is no promise: any test may be run before or after any other.
LONGEST = (
    "docs/test_running.py",
    "test_demo.py",
    "export/test_onnx.py",
    "run/test_prior.py",
    "run/test_fold_models.py",
    "study/test_engines.py",
    "export/test_measure.py",
    "study/test_runner.py",
    "benchmarks/test_soak.py",
    "run/test_latency.py",
    "run/test_fine_tuned.py",
    "run/test_determinism.py",
    "run/test_budget.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, the others as they were."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _stops_are_heard() -> None:
    """A shell that starts the tests in the background lets them, and what they start, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def run_auber(monkeypatch, capsys):
    """Runs a command line in this process: (exit code, stdout, stderr)."""
    from auber.cli import main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/auber", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "160")  # tables as wide as they like
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
    """Starts processes that need not import anything any more."""
    from tests.starter import Starter

    with Starter() as running:
        yield running


@pytest.fixture
def young_garbage():
    """Has garbage collections go over what the test makes, and not over all that torch and transformers have loaded.

    That takes tenths of a second each; for tests of code that collects again and again.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def ray(monkeypatch):
    """Ray, where it is installed; no cluster is named or left behind."""
    found = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield found
    found.shutdown()
