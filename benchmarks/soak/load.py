"""Much of everything: studies of many runs, a ledger of many scores, a file of many rows."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from auber.run.ledger import Ledger
from benchmarks import tiny
from benchmarks.common import ROOT

LEDGER_SECONDS = 1.0  # to open a ledger of 100,000 scores
CSV_FACTOR = 3.0  # the memory of the rows themselves, at most, while a csv is read
_GROWTH = 1.05  # of memory, from the second quarter of a study to its last
_SLACK = 30e6  # bytes that come and go
_RUNS_PER_SEED = 3  # start, original and original+tuning
_STUDY = """model = "model"
methods = ["original", "original+tuning"]
seeds = {seeds}
preset = "paper"

[settings]
threads = 1
device = "cpu"
max_length = 24
first.epochs = 1
first.batch_size = 100
last.epochs = 1

[tasks.words]
train = "train.csv"
dev = "dev.csv"
text = "text"
"""

Details = dict[str, Any]


def study_here(folder: Path, runs: int) -> Details:
    """Do many short runs in one process: each is reported once, and memory stays flat."""
    study = _start_study(folder, runs)
    process, held = psutil.Process(study.pid), []
    started = time.monotonic()
    while study.poll() is None:
        with suppress(psutil.NoSuchProcess):
            held.append((_count_results(folder), process.memory_info().rss))
        time.sleep(0.2)
    seconds = time.monotonic() - started
    _check_reported(folder, study, runs)
    quarters = [
        fmean(memory for done, memory in held if low <= 4 * done / runs <= low + 1)
        for low in (1, 3)
    ]
    assert quarters[1] <= quarters[0] * _GROWTH + _SLACK, f"memory grew: {quarters} bytes"
    return {
        "milliseconds_a_run": round(1000 * seconds / runs),
        "second_quarter_mb": round(quarters[0] / 1e6),
        "last_quarter_mb": round(quarters[1] / 1e6),
    }


def study_on_ray(folder: Path, runs: int, kill_every: float) -> Details:
    """Do runs on a local Ray cluster whose workers are killed: each is reported once."""
    study = _start_study(folder, runs, "--engine", "ray", "--jobs", "2")
    choice, ended, killed = random.Random(0), 0, 0
    ends = threading.Event()
    while study.poll() is None:
        ends.wait(kill_every)
        # A worker needs seconds to start: without progress in between no work would be done.
        if _count_results(folder) == ended:
            continue
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(study.pid).children(recursive=True)
            workers = [each for each in children if _is_working(each)]
            if workers:
                ended = _count_results(folder)
                choice.choice(workers).send_signal(signal.SIGKILL)
                killed += 1
    _check_reported(folder, study, runs)
    assert killed, "no worker was killed"
    return {"workers_killed": killed}


def open_ledger(folder: Path, scores: int) -> Details:
    """Write a ledger of many scores, and open it within a second per 100,000."""
    path, draw = folder / "scores.jsonl", random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(scores):
            removed = [head for head in range(24) if number >> head & 1]  # each mask once
            entry = {"key": "0" * 64, "layer": number % 12, "removed": removed}
            file.write(json.dumps({**entry, "score": draw.random()}) + "\n")
    began = time.process_time()  # of this process, whatever else the machine does
    ledger = Ledger(path)
    seconds = time.process_time() - began
    assert len(ledger) == scores
    assert seconds < max(0.2, LEDGER_SECONDS * scores / 100_000), f"{seconds:.2f} s"
    return {"seconds_to_open": round(seconds, 2), "file_mb": _megabytes(path)}


# Reads a file as train rows, in a process of its own.
_READER = """
import sys, threading, time
import psutil
import auber.data.splits, auber.metrics.task_metrics
from auber import make_task
process, ended, peak = psutil.Process(), threading.Event(), 0
before = process.memory_info().rss

def watch():
    global peak
    while not ended.wait(0.005):
        peak = max(peak, process.memory_info().rss - before)

thread = threading.Thread(target=watch)
thread.start()
began = time.perf_counter()
task = make_task(sys.argv[1], sys.argv[2], text=["text"], label="label")
seconds = time.perf_counter() - began
ended.set()
thread.join()
# Each text with its place and that of its label.
held = sum(sys.getsizeof(text) + 16 for text in task.train.first)
print(len(task.train), seconds, peak, held)
"""


def read_rows(folder: Path, rows: int) -> Details:
    """Read a csv of many rows, with at most three times the memory of the rows themselves."""
    train, dev = folder / "train.csv", folder / "dev.csv"
    for path, count in ((train, rows), (dev, 10)):
        with path.open("w", encoding="utf-8") as file:
            file.write("text,label\n")
            file.writelines(
                f'"sentence {number} of {path.stem}, with some more words in it",{number % 2}\n'
                for number in range(count)
            )
    command = [sys.executable, "-c", _READER, str(train), str(dev)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found, seconds, peak, held = map(float, done.stdout.split())
    assert found == rows
    assert peak <= CSV_FACTOR * held, f"{peak / rows:.0f} bytes a row, {held / rows:.0f} of the row"
    return {
        "seconds_to_read": round(seconds, 1),
        "file_mb": _megabytes(train),
        "bytes_a_row": round(held / rows),
        "most_bytes_a_row": round(peak / rows),
    }


def feed_readers(folder: Path, inputs: int) -> Details:
    """Give hostile inputs to every reader: each is taken or refused."""
    out = folder / "readers.json"
    command = [sys.executable, "-m", "benchmarks.fuzz", "--inputs", str(inputs), "--out", str(out)]
    command += ["--kept", str(folder / "kept")]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["inputs"] >= 0.99 * inputs, "time ran out"
    verdicts = found["verdicts"]
    return {
        "readers": len(found["readers"]),
        "refused": verdicts["refused"],
        "taken": verdicts["taken"],
        "findings": found["findings"],
    }


def _start_study(folder: Path, runs: int, *words: str) -> subprocess.Popen[str]:
    """Start a study of this many runs on a tiny model and sixteen rows."""
    assert runs % _RUNS_PER_SEED == 0, f"runs must be a multiple of {_RUNS_PER_SEED}, found {runs}"
    tiny.save_model(folder / "model")
    tiny.write_rows(folder, 16)
    seeds = list(range(runs // _RUNS_PER_SEED))
    (folder / "study.toml").write_text(_STUDY.format(seeds=seeds), encoding="utf-8")
    command = [sys.executable, "-m", "auber", "study", "study.toml", "--out", "study", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with (folder / "study.json").open("w") as out, (folder / "study.txt").open("w") as errors:
        return subprocess.Popen(
            [*command, "--quiet", *words],
            cwd=folder,
            env={**environment, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            stdout=out,
            stderr=errors,
            text=True,
        )


def _check_reported(folder: Path, study: subprocess.Popen[str], runs: int) -> None:
    errors = (folder / "study.txt").read_text(encoding="utf-8")
    assert study.wait() == 0, errors[-2000:]
    printed = (folder / "study.json").read_text(encoding="utf-8")
    found = json.loads(printed[printed.index('{\n  "folder"') :])["runs"]  # Ray prints before it
    reported = Counter((run["task"], run["protocol"], run["seed"], run["run"]) for run in found)
    assert set(reported.values()) == {1}, "some runs are reported more than once"
    assert len(reported) == runs, f"{len(reported)} of {runs} runs are reported"
    failed = [run for run in found if run["state"] != "complete"]
    assert not failed, f"{len(failed)} runs have no result, the first of them {failed[0]}"


def _count_results(folder: Path) -> int:
    return sum(1 for _ in (folder / "study").rglob("result.json"))


def _is_working(process: psutil.Process) -> bool:
    """Return whether a process is a Ray worker with a task."""
    try:
        name = " ".join(process.cmdline())
    except psutil.Error:
        return False
    # By the name of the task: Ray names its own agents alike, and the node dies with them.
    return name.startswith("ray::run_block")


def _megabytes(path: Path) -> float:
    return round(path.stat().st_size / 1e6, 1)
