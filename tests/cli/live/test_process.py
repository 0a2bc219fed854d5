from __future__ import annotations

import os

import psutil
import pytest

from auber.cli.live.process import look_at_process
from auber.system.locks import start_of


@pytest.mark.parametrize(("host", "alive"), [("elsewhere.example", None), (None, True)])
def test_what_runs_on_another_machine_cannot_be_told(host, alive):
    assert look_at_process({"id": os.getpid(), "host": host}, 3.0).alive is alive


def test_an_earlier_process_of_the_same_number_is_gone():
    started = psutil.Process().create_time()
    assert look_at_process({"id": os.getpid(), "started": started}, None).alive is True
    assert look_at_process({"id": os.getpid(), "started": started - 3600}, None).alive is False


@pytest.mark.parametrize(
    ("started", "after_boot", "alive"), [(3600, 0, True), (0, 3600, True), (3600, 3600, False)]
)
def test_a_process_outlives_a_step_of_the_clock(started, after_boot, alive):
    """One reading of its start moves with the clock, on some systems the one and on some the other."""
    now = start_of(psutil.Process())
    record = {"id": os.getpid(), "started": now[0] - started, "after_boot": now[1] + after_boot}
    assert look_at_process(record, None).alive is alive
