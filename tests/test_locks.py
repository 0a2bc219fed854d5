from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys

import psutil
import pytest

from auber import locks
from auber.errors import RunError
from auber.locks import LOCK, FolderLock, Holder, drop_foreign_lock, is_alive

HERE = platform.node()
HELD = "is at work in it; wait for it or stop it, or choose another --out"


def own_name() -> Holder:
    return Holder(os.getpid(), psutil.Process().create_time(), HERE)


def leave(folder, holder: Holder) -> None:
    (folder / LOCK).write_text(json.dumps(vars(holder)))


def gone() -> Holder:
    """A process that was here and has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    started = psutil.Process(done.pid).create_time()
    done.wait()
    return Holder(done.pid, started, HERE)


def test_a_lock_names_its_holder_until_it_is_released(tmp_path):
    lock = FolderLock(tmp_path)
    assert lock.left_by is None
    with pytest.raises(RunError) as caught:
        FolderLock(tmp_path)
    assert str(caught.value) == f"{tmp_path}: process {os.getpid()} on {HERE} {HELD}"
    lock.release()
    assert not (tmp_path / LOCK).exists()
    lock.release()
    FolderLock(tmp_path).release()


def test_a_lock_that_is_forgotten_is_given_up(tmp_path):
    FolderLock(tmp_path)
    FolderLock(tmp_path).release()


def test_the_lock_of_a_process_that_is_gone_is_taken_over(tmp_path):
    holder = gone()
    leave(tmp_path, holder)
    lock = FolderLock(tmp_path)
    assert lock.left_by == holder
    assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()
    lock.release()


def test_of_a_process_on_another_machine_nothing_is_known(tmp_path):
    leave(tmp_path, Holder(77, 1.0, "elsewhere"))
    with pytest.raises(RunError) as caught:
        FolderLock(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: process 77 on elsewhere was at work in it and did not sign off; whether it has ended cannot be seen from "
        f"here: make sure that it has, delete {tmp_path / LOCK}, and start again"
    )
    drop_foreign_lock(tmp_path)
    FolderLock(tmp_path).release()


def test_a_lock_of_this_machine_is_not_dropped_unseen(tmp_path):
    leave(tmp_path, own_name())
    drop_foreign_lock(tmp_path)
    assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("content", ["", "{", '{"process": 1}', "[]"])
def test_a_name_that_was_cut_is_nobodys(content, tmp_path):
    (tmp_path / LOCK).write_text(content)
    lock = FolderLock(tmp_path)
    assert lock.left_by is None
    lock.release()


def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def test_where_the_file_system_has_no_locks_the_name_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    leave(tmp_path, own_name())
    with pytest.raises(RunError, match=HELD):
        FolderLock(tmp_path)
    later = own_name()
    leave(tmp_path, Holder(later.process, later.started - 3600, HERE))  # its number was given to another process
    FolderLock(tmp_path).release()
    leave(tmp_path, gone())
    FolderLock(tmp_path).release()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / LOCK).mkdir()
    with pytest.raises(
        RunError, match=r"\.lock: cannot be written \(Is a directory\), so the run cannot go on here; nothing"
    ):
        FolderLock(tmp_path)


def test_this_process_is_alive_and_an_earlier_one_of_its_number_is_not():
    started = psutil.Process().create_time()
    assert is_alive(os.getpid())
    assert is_alive(os.getpid(), started)
    assert not is_alive(os.getpid(), started - 3600)


def test_a_process_that_has_ended_is_gone_even_before_its_parent_knows():
    process = subprocess.Popen([sys.executable, "-c", ""])
    started = psutil.Process(process.pid).create_time()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert not is_alive(process.pid)
    assert not Holder(process.pid, started, HERE).is_running
    process.wait()
    assert not is_alive(process.pid)


def test_a_process_of_another_user_is_there(monkeypatch):
    def deny(number):
        raise psutil.AccessDenied(number)

    monkeypatch.setattr(psutil, "Process", deny)
    assert is_alive(1)
