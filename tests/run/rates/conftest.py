"""A model to try rates on, and a grid that was tried."""

from __future__ import annotations

import pytest

from auber.models import checkpoint
from auber.run.rates.tunings import try_rates
from tests.run.rates.made import GRID, QUICK
from tests.small import small_start, small_task


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a tiny encoder without a classifier."""
    folder = tmp_path_factory.mktemp("rates") / "tiny"
    checkpoint.save(*small_start(bare=True), folder)
    return folder


@pytest.fixture(scope="session")
def unbroken(model):
    """The grid tried at one go."""
    return try_rates(model, [small_task()], GRID, settings=QUICK)
