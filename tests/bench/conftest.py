"""What the tests of the bench share: a device rate that is measured in no time, and a small subject."""

from __future__ import annotations

import pytest

from auber.bench import arithmetic
from auber.bench.catalogue import ROWS, SIZES
from auber.bench.subjects import make_sized_subject
from tests.small import cpu, small_config


@pytest.fixture(autouse=True)
def _quick_matrix_rate(monkeypatch):
    monkeypatch.setitem(arithmetic._MATRIX_SIZES, "cpu", 64)
    monkeypatch.setattr(arithmetic, "_MATRIX_REPEATS", 5)


@pytest.fixture(scope="session")
def subject():
    return make_sized_subject(SIZES["tiny"], ROWS["cola"], 40, small_config(max_length=128), cpu())
