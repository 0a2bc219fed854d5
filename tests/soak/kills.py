"""Runs that are killed or stopped at random moments, and must end like one that never was."""

from __future__ import annotations

import os
import random
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.soak.figures import Figure, Meter
from tests.soak.ground import Ground, one_line
from tests.soak.job import phase_of, run_of

_TRIES = 5  # for each job to be broken


def kill_runs(ground: Ground, kills: int, seed: int = 0) -> Figure:
    """Kill the whole job (SIGKILL) at moments drawn evenly over its length, go on each time, and compare the outcomes."""
    moments = random.Random(seed)
    phases: Counter[str] = Counter()
    with Meter() as meter:
        for out in _folders(ground, phases, kills):
            commands = ground.job.commands(out)
            phase = _send(ground, commands, out, signal.SIGKILL, moments.uniform(0, ground.length))
            if phase is not None:
                phases[phase] += 1
                ground.finish(out, whole=True)
    return meter.figure(
        "kills",
        kills,
        seconds_unbroken=round(ground.length, 1),
        phases=dict(sorted(phases.items())),
    )


def stop_runs(ground: Ground, stops: int, seed: int = 0) -> Figure:
    """Stop the pruning by SIGTERM and Ctrl-C in turns: it says how to go on, gives its lock back, and goes on."""
    moments = random.Random(seed)
    phases: Counter[str] = Counter()
    with Meter() as meter:
        for out in _folders(ground, phases, stops):
            sent = (signal.SIGTERM, signal.SIGINT)[phases.total() % 2]
            # In the very first moments the program is not there yet to answer.
            moment = moments.uniform(0.1, 0.8) * ground.length
            phase = _send(ground, [ground.job.prune(out)], out, sent, moment)
            if phase is not None:
                phases[phase] += 1
                assert not (run_of(out) / ".lock").exists(), "a clean stop signs off"
                ground.finish(out)
    return meter.figure("stops", stops, phases=dict(sorted(phases.items())))


def _folders(ground: Ground, phases: Counter[str], wanted: int) -> Iterator[Path]:
    """New folders until so many jobs were broken; a signal that comes after a job's end breaks nothing."""
    for _ in range(_TRIES * wanted):
        if phases.total() == wanted:
            return
        yield ground.new_folder()
    assert phases.total() == wanted, (
        f"of {_TRIES * wanted} jobs only {phases.total()} were broken by their signals"
    )


def _send(
    ground: Ground, commands: list[list[str]], out: Path, sent: signal.Signals, moment: float
) -> str | None:
    """Start a job, send it a signal at a moment, see that it ends as it should; which phase it was in, None after its end."""
    child = ground.nursery.start(commands)
    time.sleep(max(0.0, child.started + moment - time.monotonic()))
    phase = phase_of(out)
    with suppress(ProcessLookupError):
        os.kill(child.process, sent)
    code = child.wait()
    if code == 0:
        return None
    if sent is signal.SIGKILL:
        assert code == -sent, child.said
    else:
        assert code == 128 + sent, (code, child.said)
        assert (
            one_line(child) == f"auber: stopped; go on with: {shlex.join(['auber', *commands[0]])}"
        )
    return phase
