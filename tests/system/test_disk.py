from __future__ import annotations

import errno
import os

import pytest

from auber.system.disk import is_refusal, sync_folder


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG]
)
def test_a_disk_that_takes_nothing_more_is_no_bug(code):
    assert is_refusal(OSError(code, os.strerror(code)))


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "no such file"), OSError("a library's own")]
)
def test_other_errors_are(error):
    assert not is_refusal(error)


def test_a_folder_is_brought_to_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    sync_folder(tmp_path)
    assert synced == [tmp_path.stat().st_ino]
