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
    read_holder,
)

HERE = platform.node()
HELD = "; wait for it or stop it, or choose another folder for --out"
ELSEWHERE = Holder(process=77, started=1.0, host="elsewhere")


def own_name() -> Holder:
    return Holder(process=os.getpid(), started=psutil.Process().create_time(), host=HERE)


def leave(folder, holder: Holder, **changes: object) -> None:
    (folder / LOCK).write_text(json.dumps({**holder.to_json(), **changes}))


def ended() -> Holder:
    """Return a process of this machine that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    started = psutil.Process(done.pid).create_time()
    done.wait()
    return Holder(process=done.pid, started=started, host=HERE)


def test_a_lock_names_its_owner_until_it_is_released(tmp_path):
    before = round(time.time(), 3)
    lock = FolderLock(tmp_path)
    assert lock.left_by is None
    holder = read_holder(tmp_path)
    assert (holder.process, holder.host, holder.is_running) == (os.getpid(), HERE, True)
    assert before - 0.001 <= holder.since <= time.time() + 0.001
    since = datetime.fromtimestamp(holder.since).astimezone().isoformat(" ", "seconds")
    name = f"process {os.getpid()} on {HERE} (since {since})"
    with pytest.raises(HeldError) as caught:
        FolderLock(tmp_path)
    assert caught.value.reason == f"in use by {name}"
    assert str(caught.value) == f"{tmp_path}: in use by {name}{HELD}"
    lock.release()
    assert not (tmp_path / LOCK).exists()
    lock.release()
    FolderLock(tmp_path).release()


def test_a_lock_may_be_waited_for(tmp_path):
    lock = FolderLock(tmp_path)
    late = threading.Timer(0.2, lock.release)
    late.start()
    with pytest.raises(HeldError, match=HELD), held(tmp_path):
        pass
    with held(tmp_path, wait=30.0):
        late.join()
        assert read_holder(tmp_path).process == os.getpid()
    assert not (tmp_path / LOCK).exists()


def test_a_killed_owner_leaves_a_lock_that_is_taken_over(tmp_path):
    code = (
        "import os, pathlib, sys; from auber.system.locks import FolderLock;"
        "lock = FolderLock(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -9
    left = read_holder(tmp_path)
    lock = FolderLock(tmp_path)
    assert lock.left_by == left is not None
    assert read_holder(tmp_path).process == os.getpid()
    lock.release()


def test_the_lock_of_another_machine_is_respected(tmp_path):
    leave(tmp_path, ELSEWHERE, more=1)  # a later version may write more keys
    with pytest.raises(HeldError) as caught:
        FolderLock(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: locked by process 77 on elsewhere; whether that process has ended cannot "
        "be checked from here: make sure that it has, delete "
        f"{tmp_path / LOCK}, and start again"
    )
    drop_foreign_lock(tmp_path)
    FolderLock(tmp_path).release()
    leave(tmp_path, own_name())
    drop_foreign_lock(tmp_path)
    assert (tmp_path / LOCK).exists(), "it is not of another machine"


DAMAGED = [
    {"process": -1}, {"process": 0}, {"process": 2**31}, {"process": True}, {"process": "1"},
    {"started": None}, {"started": "1"}, {"started": 10**400}, {"started": float("nan")},
    {"host": 3}, {"host": "x" * 256}, {"host": "a\nb"}, {"since": "1"}, {"since": -1.0},
    {"since": 1e300}, {"after_boot": "1"}, {"after_boot": float("nan")},
]  # fmt: skip


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"process": 1}', "[]", "[" * 4096]
    + [json.dumps({**ELSEWHERE.to_json(), **change}) for change in DAMAGED],
    ids=lambda content: content[:60],
)
def test_a_damaged_lock_names_no_owner(content, tmp_path):
    (tmp_path / LOCK).write_text(content)
    assert read_holder(tmp_path) is None
    lock = FolderLock(tmp_path)
    assert lock.left_by is None
    lock.release()


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="the system follows links")
def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "letter.txt"
    target.write_text("dear")
    (tmp_path / LOCK).symlink_to(target)
    message = (
        r"\.lock: cannot be written \(Too many levels of symbolic links\); nothing was changed"
    )
    with pytest.raises(RunError, match=f"{message}: make room"):
        FolderLock(tmp_path)
    assert target.read_text() == "dear"


@pytest.fixture
def _no_flock(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)


@pytest.mark.usefixtures("_no_flock")
def test_without_file_system_locks_the_name_decides(tmp_path):
    own = own_name()
    leave(tmp_path, own)
    with pytest.raises(RunError, match=HELD):
        FolderLock(tmp_path)
    leave(tmp_path, own, started=own.started - 3600)  # an earlier process with the same number
    FolderLock(tmp_path).release()
    leave(tmp_path, ended())
    FolderLock(tmp_path).release()


def test_is_alive(monkeypatch):
    started = psutil.Process().create_time()
    assert is_alive(os.getpid())
    assert is_alive(os.getpid(), started)
    assert not is_alive(os.getpid(), started - 3600)
    assert not any(is_alive(number) for number in (-1, 0, 2**31, 10**30))

    def deny(number):
        raise psutil.AccessDenied(number)

    monkeypatch.setattr(psutil, "Process", deny)
    assert is_alive(1), "a process of another user"
