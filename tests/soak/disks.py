"""Disks that are full or read-only: one line that names the place and what is kept, and the same outcome once there is room."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.soak.figures import Figure, Meter
from tests.soak.ground import Ground
from tests.soak.job import run_of

_PLENTY = "256m"
_NOT_WRITTEN = (
    r"auber: \S+: cannot be written \([^\n]*{reason}[^\n]*\); (the finished stages \([^)]+\) and )?\d+ scores are kept: make room "
    r"there or make the folder writable, then go on with --resume"
)
_NOT_BEGUN = (
    r"auber: \S+: (cannot be created \([^\n]*{reason}[^\n]*\); choose another --out"
    r"|cannot be written \([^\n]*{reason}[^\n]*\), so the run cannot go on here; nothing was changed: make room there or make "
    r"the folder writable)"
)


def fill_disks(ground: Ground, times: int, seed: int = 0) -> Figure:
    """Prune on a disk (tmpfs) that is full at a random size, make room, go on, and compare the outcomes."""
    sizes, needed = random.Random(seed), _bytes_below(run_of(ground.folder / "unbroken"))
    lines: list[str] = []
    with Meter() as meter:
        while len(lines) < times:
            with mounted(ground.new_folder(), str(int(sizes.uniform(0.05, 0.95) * needed))) as out:
                lines.append(ground.fail(out))
                _check(lines[-1], "No space left on device")
                mount(out, f"remount,size={_PLENTY}")
                ground.finish(out)
    return meter.figure(
        "full disks", times, at_first_write=sum("scores are kept" not in line for line in lines)
    )


def limit_files(ground: Ground, limits: list[int]) -> Figure:
    """The same without a disk of one's own: no file may grow above a limit in bytes."""
    with Meter() as meter:
        for limit in limits:
            out = ground.new_folder()
            _check(ground.fail(out, largest_file=limit), "File too large")
            ground.finish(out)
    return meter.figure("limited files", len(limits))


def close_disks(ground: Ground, times: int) -> Figure:
    """Kill a pruning, make its disk read-only, see that it cannot go on and says so, open the disk, go on."""
    with Meter() as meter:
        for _ in range(times):
            with mounted(ground.new_folder(), _PLENTY) as out:
                ground.kill_when(lambda out: (run_of(out) / "stages" / "first.json").exists(), out)
                mount(out, "remount,ro")
                _check(ground.fail(out), "Read-only file system")
                mount(out, "remount,rw")
                ground.finish(out)
    return meter.figure("read-only disks", times)


def can_mount() -> bool:
    """Whether this process may mount a disk."""
    return (
        subprocess.run(
            ["mount", "--fake", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
        ).returncode
        == 0
    )


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A disk in memory of that size, in a folder."""
    mount(folder, f"size={size}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def mount(folder: Path, options: str) -> None:
    """Mount a disk in memory, or change its options."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def _check(line: str, reason: str) -> None:
    assert any(
        re.fullmatch(form.format(reason=reason), line) for form in (_NOT_WRITTEN, _NOT_BEGUN)
    ), line


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
