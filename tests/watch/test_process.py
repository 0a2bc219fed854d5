from __future__ import annotations

import os

import psutil
import pytest

from auber.watch.process import look_at_process


@pytest.mark.parametrize(("host", "alive"), [("elsewhere.example", None), (None, True)])
def test_what_runs_on_another_machine_cannot_be_told(host, alive):
    assert look_at_process({"id": os.getpid(), "host": host}, 3.0).alive is alive


def test_an_earlier_process_of_the_same_number_is_gone():
    started = psutil.Process().create_time()
    assert look_at_process({"id": os.getpid(), "started": started}, None).alive is True
    assert look_at_process({"id": os.getpid(), "started": started - 3600}, None).alive is False
