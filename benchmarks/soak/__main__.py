"""Run all drills at full length: about half an hour on two cores. Mounting disks needs root.

The results are written after each drill. If one fails, the reason is printed, and the others go on.

Example: python -m benchmarks.soak --out results/soak.json --only kill_runs
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from auber.config import make_config
from auber.run import provenance
from auber.system.files import write_json
from auber.system.records import read
from auber.training.devices import resolve_hardware
from benchmarks.common import command_line, make_parser, run_program
from benchmarks.soak import faults, load
from benchmarks.soak.job import HeadsJob, Job, SizesJob
from benchmarks.soak.record import DrillResult, Soak

_LOOK_EVERY = 0.2  # seconds

Drill = Callable[..., dict[str, Any]]

# By the name of its result: each drill and its number of repetitions.
LOAD_DRILLS: dict[str, tuple[Drill, int]] = {
    "ledger": (load.open_ledger, 100_000),
    "csv": (load.read_rows, 1_000_000),
    "readers": (load.feed_readers, 102_000),
    "ray study": (partial(load.study_on_ray, kill_every=3.0), 201),
    "local study": (load.study_here, 999),
}
# The drills of both jobs, and those of one.
_BOTH: dict[str, tuple[Drill, int]] = {
    "kills": (faults.kill_runs, 50),
    "stops": (faults.stop_runs, 10),
    "full disks": (faults.fill_disks, 5),
    "limited files": (faults.limit_files, 2),
    "read-only disks": (faults.close_disks, 3),
    "second starts": (faults.start_twice, 3),
    "torn lines": (faults.tear_lines, 3),
    "flipped bits": (faults.flip_bits, 3),
    "changed versions": (faults.change_versions, 3),
}
HEADS_DRILLS = {**_BOTH, "foreign scores": (faults.forge_scores, 3)}
SIZES_DRILLS = {
    **{f"sizes: {name}": drill for name, drill in _BOTH.items()},
    "sizes: flipped answers": (faults.flip_answers, 3),
}


def main(words: Sequence[str] | None = None) -> None:
    """Run the drills."""
    parser = make_parser("soak", __doc__)
    drills = LOAD_DRILLS | HEADS_DRILLS | SIZES_DRILLS
    parser.add_argument("--out", type=Path, required=True, help="a .json file for the results")
    parser.add_argument("--only", nargs="+", choices=list(drills), help="these; other results stay")
    parser.add_argument("--times", type=int, help="repetitions of each drill")
    arguments = parser.parse_args(words)
    wanted, failures = arguments.only or list(drills), 0
    # Before anything is written, because the file is part of the checkout.
    origin = provenance.describe(resolve_hardware(make_config(settings={"device": "cpu"})))
    with tempfile.TemporaryDirectory(prefix="auber-soak-") as place:
        jobs: dict[type[Job], Job] = {}
        for name in wanted:
            folder = Path(place) / re.sub(r"\W+", "-", name)
            folder.mkdir()
            try:
                subject: Any = folder
                if name not in LOAD_DRILLS:
                    kind = HeadsJob if name in HEADS_DRILLS else SizesJob
                    if kind not in jobs:
                        jobs[kind] = kind(folder, is_quick=False)
                    subject = jobs[kind]
                drill, times = drills[name]
                result = measure(name, drill, subject, arguments.times or times, origin)
            except Exception:
                failures += 1
                print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
                continue
            write_result(arguments.out, result, origin)
            print(f"{name}: {result.count} in {result.seconds} s, {result.details}", flush=True)
    if failures:
        sys.exit(f"{failures} drills failed")


def measure(
    name: str, drill: Drill, subject: Path | Job, times: int, origin: dict[str, Any]
) -> DrillResult:
    """Run a drill and return its result."""
    started = time.perf_counter()
    with _peak_memory() as peak:
        details = drill(subject, times)
    return DrillResult(
        name=name,
        count=times,
        seconds=round(time.perf_counter() - started, 1),
        peak_mb=round(max(peak, default=0) / 1e6),
        details=details,
        command=command_line("soak"),
        commit=origin["commit"],
    )


def write_result(path: Path, result: DrillResult, origin: dict[str, Any]) -> None:
    """Store a result, beside those of other drills."""
    drills = read(Soak, path, "run all drills again").drills if path.exists() else {}
    soak = Soak(
        versions=origin["versions"],
        device=origin["device"],
        drills={**drills, result.name: result},
    )
    write_json(path, soak.to_json(), follow=True)


@contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """Yield the bytes that this process and all below it hold, looked at now and then."""
    found: list[int] = []
    ends = threading.Event()

    def watch() -> None:
        while not ends.wait(_LOOK_EVERY):
            total = 0
            process = psutil.Process()
            for each in (process, *process.children(recursive=True)):
                try:
                    total += each.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            found.append(total)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ends.set()
        thread.join()


if __name__ == "__main__":
    run_program(main)
