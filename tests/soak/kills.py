"""Runs that are killed or stopped at random moments, and must end like one that never was."""

from __future__ import annotations

import os
import random
import shlex
import signal
import time
from collections import Counter
from pathlib import Path

from tests.soak.figures import Figure, Meter
from tests.soak.ground import Ground, one_line
from tests.soak.job import phase_of, run_of

_TOO_LATE = "after the end"


def kill_runs(ground: Ground, kills: int, seed: int = 0) -> Figure:
    """Kill the whole job (SIGKILL) at moments drawn evenly over its length, go on each time, and compare the outcomes."""
    moments = random.Random(seed)
    phases: Counter[str] = Counter()
    with Meter() as meter:
        while phases.total() < kills:
            out = ground.new_folder()
            phase = _send(ground, ground.job.commands(out), out, signal.SIGKILL, moments.uniform(0, ground.length))
            if phase != _TOO_LATE:  # then nothing was broken
                phases[phase] += 1
                ground.finish(out, whole=True)
    return meter.figure("kills", kills, seconds_unbroken=round(ground.length, 1), phases=dict(sorted(phases.items())))


def stop_runs(ground: Ground, stops: int, seed: int = 0) -> Figure:
    """Stop the pruning by SIGTERM and Ctrl-C in turns: it says how to go on, gives its lock back, and goes on."""
    moments = random.Random(seed)
    phases: Counter[str] = Counter()
    with Meter() as meter:
        while phases.total() < stops:
            out, sent = ground.new_folder(), (signal.SIGTERM, signal.SIGINT)[phases.total() % 2]
            # In the very first moments the program is not there yet to answer.
            moment = moments.uniform(0.1, 0.8) * ground.length
            phase = _send(ground, [ground.job.prune(out)], out, sent, moment)
            if phase != _TOO_LATE:
                phases[phase] += 1
                assert not (run_of(out) / ".lock").exists(), "a clean stop signs off"
                ground.finish(out)
    return meter.figure("stops", stops, phases=dict(sorted(phases.items())))


def _send(ground: Ground, commands: list[list[str]], out: Path, sent: signal.Signals, moment: float) -> str:
    """Start a job, send it a signal at a moment, see that it ends as it should; in which phase that found it."""
    child = ground.nursery.start(commands)
    time.sleep(max(0.0, child.started + moment - time.monotonic()))
    phase = phase_of(out)
    try:
        os.kill(child.process, sent)
    except ProcessLookupError:
        phase = _TOO_LATE
    code = child.wait()
    if code == 0:
        return _TOO_LATE
    if sent is signal.SIGKILL:
        assert code == -sent, child.said
    else:
        assert code == 128 + sent, (code, child.said)
        assert one_line(child) == f"auber: stopped; go on with: {shlex.join(['auber', *commands[0]])}"
    return phase
