from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from auber.watch.process import is_alive, look_at_process


def test_this_process_is_alive_and_an_earlier_one_of_its_number_is_not():
    started = psutil.Process().create_time()
    assert is_alive(os.getpid())
    assert is_alive(os.getpid(), started)
    assert not is_alive(os.getpid(), started - 3600)


def test_a_process_that_has_ended_is_gone_even_before_its_parent_knows():
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert not is_alive(process.pid)
    process.wait()
    assert not is_alive(process.pid)


def test_a_process_of_another_user_is_there(monkeypatch):
    def deny(number):
        raise psutil.AccessDenied(number)

    monkeypatch.setattr(psutil, "Process", deny)
    assert is_alive(1)


@pytest.mark.parametrize(("host", "alive"), [("elsewhere.example", None), (None, True)])
def test_what_runs_on_another_machine_cannot_be_told(host, alive):
    assert look_at_process({"id": os.getpid(), "host": host}, 3.0).alive is alive
