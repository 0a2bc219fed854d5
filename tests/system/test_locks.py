from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
import threading
import time
from datetime import datetime

import psutil
import pytest

from auber.errors import RunError
from auber.system import locks
from auber.system.locks import (
    LOCK,
    FolderLock,
    HeldError,
    Holder,
    drop_foreign_lock,
    held,
    is_alive,
    is_moment,
    read_holder,
)

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
    before = round(time.time(), 3)
    lock = FolderLock(tmp_path)
    assert lock.left_by is None
    holder = read_holder(tmp_path)
    assert (holder.process, holder.host, holder.is_running) == (os.getpid(), HERE, True)
    assert before - 0.001 <= holder.since <= time.time() + 0.001, "to the millisecond"
    since = datetime.fromtimestamp(holder.since).astimezone().isoformat(" ", "seconds")
    with pytest.raises(HeldError) as caught:
        FolderLock(tmp_path)
    assert (
        caught.value.reason == f"process {os.getpid()} on {HERE} (since {since}) is at work in it"
    )
    assert (
        str(caught.value) == f"{tmp_path}: process {os.getpid()} on {HERE} (since {since}) {HELD}"
    )
    lock.release()
    assert not (tmp_path / LOCK).exists()
    lock.release()
    FolderLock(tmp_path).release()


def test_locks_of_different_names_do_not_meet(tmp_path):
    with held(tmp_path, ".claim"):
        assert read_holder(tmp_path, ".claim").is_running
        FolderLock(tmp_path).release()
        with pytest.raises(HeldError, match=HELD), held(tmp_path, ".claim"):
            pass
    assert read_holder(tmp_path, ".claim") is None


def test_the_name_of_who_has_just_taken_a_lock_is_waited_for(tmp_path, monkeypatch):
    leave(tmp_path, gone())  # an older name, until the new holder has written its own
    taken = os.open(tmp_path / LOCK, os.O_RDWR)
    locks.fcntl.flock(taken, locks.fcntl.LOCK_EX)
    late = threading.Timer(
        0.1, lambda: os.pwrite(taken, json.dumps(vars(own_name())).encode().ljust(200), 0)
    )
    late.start()
    with pytest.raises(HeldError, match=f"process {os.getpid()} on {HERE} is at work in it"):
        FolderLock(tmp_path)
    late.join()
    leave(tmp_path, gone())
    monkeypatch.setattr(locks, "_NAMES_ITSELF", 0.05)
    with pytest.raises(HeldError, match="another process is at work in it"):
        FolderLock(tmp_path)
    os.close(taken)


def test_a_lock_that_is_forgotten_is_given_up(tmp_path):
    FolderLock(tmp_path)
    again = FolderLock(tmp_path)
    assert again.left_by is not None, "whoever forgot it has not signed off"
    again.release()
    assert not (tmp_path / LOCK).exists()


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


DAMAGED = [
    {"process": -1}, {"process": 0}, {"process": 2**31}, {"process": True}, {"process": "1"}, {"started": None},
    {"started": "1"}, {"started": 10**400}, {"started": float("nan")}, {"host": 3}, {"host": "x" * 256}, {"host": "a\nb"},
    {"since": "1"}, {"since": -1.0}, {"since": 1e300}, {"after_boot": "1"}, {"after_boot": float("nan")},
]  # fmt: skip


@pytest.mark.parametrize("change", DAMAGED, ids=lambda change: f"{change}"[:40])
def test_what_is_no_holder_is_nobody(change, tmp_path):
    (tmp_path / LOCK).write_text(json.dumps({**vars(Holder(77, 1.0, "elsewhere", 2.0)), **change}))
    assert read_holder(tmp_path) is None
    FolderLock(tmp_path).release()


def test_a_later_version_may_say_more(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps({**vars(Holder(77, 1.0, "elsewhere")), "more": 1}))
    with pytest.raises(HeldError, match="process 77 on elsewhere was at work in it"):
        FolderLock(tmp_path)


@pytest.mark.skipif(
    not hasattr(os, "O_NOFOLLOW"), reason="links are followed where the system cannot do otherwise"
)
def test_a_link_is_not_followed(tmp_path):
    letter = tmp_path / "letter.txt"
    letter.write_text("dear")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(letter)
    with pytest.raises(
        RunError,
        match=r"\.lock: cannot be written \(Too many levels of symbolic links\), so the run cannot",
    ):
        FolderLock(tmp_path / "run")
    assert letter.read_text() == "dear"


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
    leave(
        tmp_path, Holder(later.process, later.started - 3600, HERE)
    )  # its number was given to another process
    FolderLock(tmp_path).release()
    leave(tmp_path, gone())
    FolderLock(tmp_path).release()


def test_a_step_of_the_clock_does_not_give_a_lock_away(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    lock = FolderLock(tmp_path)
    holder = json.loads((tmp_path / LOCK).read_text())
    (tmp_path / LOCK).write_text(
        json.dumps({**holder, "started": holder["started"] - 3})
    )  # as the clock was before
    with pytest.raises(HeldError, match=HELD):
        FolderLock(tmp_path)
    lock.release()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / LOCK).mkdir()
    with pytest.raises(
        RunError,
        match=r"\.lock: cannot be written \(Is a directory\), so the run cannot go on here; nothing",
    ):
        FolderLock(tmp_path)


@pytest.mark.parametrize("number", [-1, 0, 2**31, 10**30])
def test_what_is_no_number_of_a_process_is_not_alive(number):
    assert not is_alive(number)


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


@pytest.mark.parametrize("found", [0, 1.5, 1_790_000_000.0])
def test_a_moment_is_seconds_since_1970(found):
    assert is_moment(found)


@pytest.mark.parametrize("found", [-1, 1e300, float("nan"), True, "now", None])
def test_what_is_no_moment(found):
    assert not is_moment(found)
