"""Jobs that are killed, stopped, run out of disk or tampered with, and end as if unbroken."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from auber.errors import AuberError
from auber.system.locks import read_holder
from benchmarks.fuzz.readers import run_command
from benchmarks.soak.job import Job, one_line, phase_of, run_of

_TRIES = 5  # for each job to be broken
_AIMED = 0.03  # of a job: at most so long after a phase has begun
_PAUSE = 0.002  # seconds between two looks at a folder
_DISK = "256m"
_REMEDIES = (
    "go on with --resume|choose another (folder for )?--out|make room there or make the folder "
    "writable"
)

Details = dict[str, Any]


def kill_runs(job: Job, times: int) -> Details:
    """Kill the whole job at random moments of its length, or of one of its aims, and go on."""
    moments = random.Random(0)
    phases: Counter[str] = Counter()
    aims = itertools.cycle((None, each) for each in job.aims)
    turns = itertools.chain.from_iterable(aims) if job.aims else itertools.repeat(None)
    for out, aim in zip(_folders(job, phases, times), turns, strict=False):
        moment = moments.uniform(0, job.seconds if aim is None else _AIMED * job.seconds)
        waits = None if aim is None else partial(_is_in, aim)
        phase = _signal(job, job.commands(out), out, signal.SIGKILL, moment, waits)
        if phase is not None:
            phases[phase] += 1
            job.finish(out, whole=True)
    return {"seconds_unbroken": round(job.seconds, 1), "phases": dict(sorted(phases.items()))}


def stop_runs(job: Job, times: int) -> Details:
    """Stop pruning by SIGTERM and Ctrl-C in turns: it prints how to go on, and goes on."""
    moments = random.Random(0)
    phases: Counter[str] = Counter()
    for out in _folders(job, phases, times):
        sent = (signal.SIGTERM, signal.SIGINT)[phases.total() % 2]
        moment = moments.uniform(0, 0.8) * job.pruning_seconds
        phase = _signal(job, [job.prune(out)], out, sent, moment, _is_begun)
        if phase is not None:
            phases[phase] += 1
            assert not (run_of(out) / ".lock").exists(), "a stop releases the lock"
            job.finish(out)
    return {"phases": dict(sorted(phases.items()))}


def fill_disks(job: Job, times: int) -> Details:
    """Prune on a disk (tmpfs) that is full at a random size, make room, and go on."""
    files = [path for path in run_of(job.unbroken).rglob("*") if path.is_file()]
    needed, sizes = sum(path.stat().st_size for path in files), random.Random(0)
    lines = []
    for _ in range(times):
        with _mounted(job.new_folder(), str(int(sizes.uniform(0.05, 0.95) * needed))) as out:
            lines.append(job.fail(out))
            _check_refusal(lines[-1], "No space left on device")
            _mount(out, f"remount,size={_DISK}")
            job.finish(out)
    return {"at_first_write": sum("scores are kept" not in line for line in lines)}


def limit_files(job: Job, times: int) -> Details:
    """Prune where no file may grow above a size, which needs no disk of its own."""
    weights = run_of(job.unbroken) / "model" / "model.safetensors"
    for number in range(times):
        out = job.new_folder()
        limit = (300, weights.stat().st_size // 2)[number % 2]
        _check_refusal(job.fail(out, limit), "File too large")
        job.finish(out)
    return {}


def close_disks(job: Job, times: int) -> Details:
    """Kill pruning, make its disk read-only, see it refused, open the disk, and go on."""
    for _ in range(times):
        with _mounted(job.new_folder(), _DISK) as out:
            job.kill_when(job.is_begun, out)
            _mount(out, "remount,ro")
            _check_refusal(job.fail(out), "Read-only file system")
            _mount(out, "remount,rw")
            job.finish(out)
    return {}


def start_twice(job: Job, times: int) -> Details:
    """Start in a folder in use, in that of a killed process, and in that of another machine."""
    for _ in range(times):
        out = job.new_folder()
        child = job.start_until(job.is_searching, out)
        child.send(signal.SIGSTOP)  # it keeps the lock, and does not end meanwhile
        refusal = "nothing"
        try:
            run_command(*job.prune(out))
        except AuberError as error:
            refusal = str(error)
        holder = read_holder(run_of(out))
        assert holder is not None
        assert holder.process == child.process.pid
        assert f"in use by {holder}" in refusal, refusal
        child.send(signal.SIGKILL)
        child.wait()
        lock = run_of(out) / ".lock"
        left = lock.read_text(encoding="utf-8")
        elsewhere = holder.model_copy(update={"host": "elsewhere"})
        lock.write_text(elsewhere.model_dump_json(), encoding="utf-8")
        line = job.fail(out)
        assert f"locked by {elsewhere}" in line, line
        lock.write_text(left, encoding="utf-8")  # of the process that was killed
        job.finish(out)
    return {}


def tear_lines(job: Job, times: int) -> Details:
    """Cut the last line of ledger and events anywhere, as a power failure may."""
    cuts = random.Random(0)
    for out in _killed(job, job.is_searching, times):
        for path in run_of(out).glob("*.jsonl"):
            length = len(path.read_bytes().splitlines()[-1])
            os.truncate(path, path.stat().st_size - cuts.randint(1, length))
        job.finish(out)
        for line in (run_of(out) / "events.jsonl").read_text(encoding="utf-8").splitlines():
            json.loads(line)
    return {}


def flip_bits(job: Job, times: int) -> Details:
    """Flip a bit of the weights that a run resumes from: it is refused, and its advice helps."""
    bits = random.Random(0)
    for out in _killed(job, job.has_weights, times):
        stages = run_of(out) / "stages"
        stage = sorted(path for path in stages.iterdir() if path.is_dir())[-1]
        weights = stage / "model.safetensors"
        _flip_bit(weights, bits)
        line = job.fail(out)
        assert f"stage {stage.name}: {weights}: must be the file the run wrote" in line, line
        assert f"or delete every file of {stages} but first.json and first/" in line, line
        for path in stages.iterdir():
            if path.is_dir() and path.name != "first":
                shutil.rmtree(path)
            elif path.suffix == ".json" and path.name != "first.json":
                path.unlink()
        job.finish(out)
    return {}


def flip_answers(job: Job, times: int) -> Details:
    """Flip a bit of the unpruned model's answers: they are refused, and computed again."""
    bits = random.Random(0)
    for out in _killed(job, job.is_searching, times):
        answers = run_of(out) / "stages" / "answers.safetensors"
        _flip_bit(answers, bits)
        line = job.fail(out)
        assert f"{answers}: must be the file the run wrote" in line, line
        assert "or delete it: the unpruned model answers again" in line, line
        answers.unlink()
        job.finish(out)
    return {}


def forge_scores(job: Job, times: int) -> Details:
    """Put scores of other weights into the ledger, for every mask that a run may request."""
    known = job.outcome["scores"]
    forged = []
    for line in known:
        score = json.loads(line)
        forged.append(json.dumps({**score, "key": score["key"][::-1], "score": 1.0}))
    for out in _killed(job, job.is_searching, times):
        ledger = run_of(out) / "scores.jsonl"
        with ledger.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in forged)
        job.finish(out, except_for=("scores",))
        found = ledger.read_text(encoding="utf-8").splitlines()
        assert sorted(found) == sorted([*known, *forged]), "a forged score was used"
    return {"scores": len(known) * times}


def change_versions(job: Job, times: int) -> Details:
    """Resume a run of another torch: it is refused, and recorded where it is allowed."""
    for out in _killed(job, job.is_begun, times):
        record = run_of(out) / "run.json"
        facts = json.loads(record.read_text(encoding="utf-8"))
        now, facts["versions"]["torch"] = facts["versions"]["torch"], "2.0.0"
        record.write_text(json.dumps(facts), encoding="utf-8")
        line = job.fail(out)
        assert f"torch was 2.0.0 and is now {now}" in line, line
        job.finish(out, "--allow-upgrade")
        result = json.loads((run_of(out) / "result.json").read_text(encoding="utf-8"))
        (upgrade,) = result["provenance"]["upgrades"]
        assert upgrade["changed"] == {"torch": ["2.0.0", now]}
    return {}


def can_mount() -> bool:
    """Return whether this process may mount a disk."""
    command = ["mount", "--fake", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _folders(job: Job, phases: Counter[str], wanted: int) -> Iterator[Path]:
    """Yield folders until enough jobs were broken; a signal may come after the end of a job."""
    for _ in range(_TRIES * wanted):
        if phases.total() == wanted:
            return
        yield job.new_folder()
    assert phases.total() == wanted, f"only {phases.total()} jobs were broken by their signals"


def _killed(job: Job, moment: Callable[[Path], bool], times: int) -> Iterator[Path]:
    """Yield folders of jobs whose pruning was killed at a moment."""
    for _ in range(times):
        out = job.new_folder()
        job.kill_when(moment, out)
        yield out


def _signal(
    job: Job,
    commands: list[list[str]],
    out: Path,
    sent: signal.Signals,
    moment: float,
    is_ready: Callable[[Path], bool] | None = None,
) -> str | None:
    """Start commands, send a signal at a moment, and return the phase; None after the end.

    The moment begins with the start, or as soon as the folder `is_ready`.
    """
    child = job.start(commands)
    begun = child.started
    while is_ready is not None and not is_ready(out) and child.process.is_alive():
        begun = time.monotonic()
        time.sleep(_PAUSE)
    time.sleep(max(0.0, begun + moment - time.monotonic()))
    phase = phase_of(out)
    child.send(sent)
    code = child.wait()
    if code == 0:
        return None
    if sent is signal.SIGKILL:
        assert code == -sent, child.output
    else:
        assert code == 128 + sent, (code, child.output)
        words = shlex.join(["auber", *commands[0]])
        assert one_line(child) == f"auber: stopped; continue with: {words}"
    return phase


def _is_in(phase: str, out: Path) -> bool:
    return phase_of(out) == phase


def _is_begun(out: Path) -> bool:
    return (run_of(out) / "run.json").exists()


def _flip_bit(path: Path, bits: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[bits.randrange(len(content))] ^= 1 << bits.randrange(8)
    path.write_bytes(content)


@contextmanager
def _mounted(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk in memory of that size."""
    _mount(folder, f"size={size}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def _check_refusal(line: str, reason: str) -> None:
    refused = rf"auber: \S+: cannot be (written|created) \(.*{reason}.*\).*({_REMEDIES})"
    assert re.fullmatch(refused, line), line
