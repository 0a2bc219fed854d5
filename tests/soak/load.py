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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from types import TracebackType

import psutil

from auber.run.ledger import Ledger
from auber.study import Block, Outcome, Place, State, StudyFolder, run_study
from tests.soak.figures import Figure, Meter, memory_of
from tests.soak.nursery import ROOT
from tests.soak.standins import known, make_short_study
from tests.study.tiny import Notes, tiny_model_folder

_GROWTH = 1.05  # what memory may grow by from the second quarter of a study to its last, and call itself flat
_SLACK = 30e6  # bytes that come and go


class Memory(Notes):
    """A listener that notes how much memory the study holds whenever a run has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []

    def settled(self, outcome: Outcome) -> None:
        super().settled(outcome)
        self.held.append(memory_of(psutil.Process()))

    def quarter(self, number: int) -> float:
        """The mean of a quarter of the study, in bytes."""
        size = len(self.held) // 4
        return fmean(self.held[number * size : (number + 1) * size])


@known()
def study_here(folder: Path, runs: int) -> Figure:
    """A study of many short runs in this process: every result once, and memory flat."""
    study, notes = make_short_study(tiny_model_folder(folder), runs), Memory()
    with Meter() as meter:
        outcomes = run_study(study, StudyFolder(folder / "study"), notes)
    _check_once(notes, outcomes, runs)
    second, last = notes.quarter(1), notes.quarter(3)
    assert last <= second * _GROWTH + _SLACK, f"{second / 1e6:.0f} MB became {last / 1e6:.0f} MB"
    return meter.figure(
        "local study",
        runs,
        milliseconds_a_run=round(1000 * meter.seconds / runs),
        second_quarter_mb=round(second / 1e6),
        last_quarter_mb=round(last / 1e6),
    )


@known()
def study_on_ray(folder: Path, runs: int, kill_every: float, seed: int = 0) -> Figure:
    """A study on a Ray cluster of this machine whose workers are killed all the time: every result once.

    It is asked for as `auber study --engine ray --jobs 2` does.
    """
    study, notes = make_short_study(tiny_model_folder(folder), runs), Notes()
    with (
        Meter() as meter,
        WorkerKiller(kill_every, random.Random(seed), lambda: len(notes.ended)) as killer,
    ):
        outcomes = run_study(
            study, StudyFolder(folder / "study"), notes, place=Place("ray", jobs=2)
        )
    _check_once(notes, outcomes, runs)
    assert killer.killed, "some worker was killed"
    return meter.figure("ray study", runs, workers_killed=killer.killed)


class WorkerKiller:
    """Kills a Ray worker that is at work, one every so many seconds, while it is entered.

    It waits until a run has ended since the last kill: a worker takes seconds to start, and kills that come faster than
    workers do would keep any work from being done.
    """

    def __init__(self, every: float, choice: random.Random, count_ended: Callable[[], int]) -> None:
        self._every, self._choice, self._count_ended = every, choice, count_ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self.killed = 0

    def __enter__(self) -> WorkerKiller:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _kill(self) -> None:
        ended = 0
        while not self._stop.wait(self._every):
            if self._count_ended() == ended:
                continue
            workers = [
                process.pid
                for process in psutil.Process().children(recursive=True)
                if _is_worker(process)
            ]
            if workers:
                ended = self._count_ended()
                with suppress(ProcessLookupError):  # it may just have ended by itself
                    os.kill(self._choice.choice(workers), signal.SIGKILL)
                    self.killed += 1


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "ray::work_quietly" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _check_once(notes: Notes, outcomes: list[Outcome], runs: int) -> None:
    told: Counter[tuple[Block, str]] = Counter(
        (outcome.block, outcome.run) for outcome in notes.ended
    )
    assert len(told) == told.total() == runs, (
        f"{told.total()} ends of {len(told)} runs were told, {runs} were asked for"
    )
    failed = [
        f"{outcome.block} {outcome.run}: {outcome.error}"
        for outcome in outcomes
        if outcome.error is not None
    ]
    assert not failed, f"{len(failed)} runs have no result, the first of them {failed[0]}"
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert len(outcomes) == runs
    assert all(outcome.result is not None for outcome in notes.ended)


def open_ledger(folder: Path, scores: int, seconds: float) -> Figure:
    """Write a ledger of many scores and open it again, within so many seconds."""
    path, draw = folder / "scores.jsonl", random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(scores):
            removed = [
                head for head in range(24) if number >> head & 1
            ]  # a mask of its own for each
            entry = {
                "key": "0" * 64,
                "layer": number % 12,
                "removed": removed,
                "score": draw.random(),
            }
            file.write(json.dumps(entry) + "\n")
    with Meter() as meter:
        began = time.process_time()  # its own, whatever else the machine does meanwhile
        ledger = Ledger(path)
        took = time.process_time() - began
    assert len(ledger) == scores
    assert took < seconds, f"{took:.2f} s"
    return meter.figure(
        "ledger",
        scores,
        seconds_to_open=round(took, 2),
        file_mb=round(path.stat().st_size / 1e6, 1),
    )


# Reads a file as train rows, in a process whose memory is its own.
_READER = """
import sys, threading, time
import psutil
import auber.metrics.task_metrics
from auber.data import make_task
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
took = time.perf_counter() - began
ended.set()
thread.join()
held = sum(sys.getsizeof(text) + 16 for text in task.train.first)  # each with its place and that of its label
print(len(task.train), took, peak, held)
"""


def read_rows(folder: Path, rows: int, most: float) -> Figure:
    """Read a csv of many rows: the most memory that takes is at most so many times what the rows themselves hold."""
    train, dev = folder / "train.csv", folder / "dev.csv"
    for path, count in ((train, rows), (dev, 10)):
        with path.open("w", encoding="utf-8") as file:
            file.write("text,label\n")
            file.writelines(
                f'"sentence {number} of {path.stem}, with some more words in it",{number % 2}\n'
                for number in range(count)
            )
    with Meter() as meter:
        done = subprocess.run(
            [sys.executable, "-c", _READER, train, dev],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    found, took, peak, held = map(float, done.stdout.split())
    assert found == rows
    assert peak <= most * held, (
        f"{peak / rows:.0f} bytes a row at most, {held / rows:.0f} of them the row itself"
    )
    return meter.figure(
        "csv",
        rows,
        seconds_to_read=round(took, 1),
        file_mb=round(train.stat().st_size / 1e6, 1),
        bytes_a_row=round(held / rows),
        most_bytes_a_row=round(peak / rows),
    )


def feed_readers(folder: Path, inputs: int) -> Figure:
    """Hand hostile inputs to every reader: none does anything but take or refuse them."""
    out = folder / "readers.json"
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.drill",
        "--inputs",
        str(inputs),
        "--out",
        out,
        "--kept",
        folder / "kept",
    ]
    with Meter() as meter:
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["inputs"] >= 0.99 * inputs, (
        "dealt to the readers, a few are lost to rounding; more means that time ran out"
    )
    return meter.figure(
        "readers",
        found["inputs"],
        readers=len(found["readers"]),
        refused=found["verdicts"]["refused"],
        taken=found["verdicts"]["taken"],
        findings=found["findings"],
    )
