"""An experiment's file: what it was made on, by which command and commit, and what came out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from auber import provenance
from experiments.command import write
from experiments.subject import Subject


def describe(kind: str, command: str, subject: Subject) -> dict[str, Any]:
    """What every file says first."""
    return {
        "format": 1,
        "kind": f"experiment-{kind}",
        "command": f"python -m experiments.{kind} {command}",
        "task": subject.task.name,
        "model": Path(subject.model).name,
        "metric": subject.task.metric,
        "seed": subject.config.seed,
        "rows": {"tuned": len(subject.rows), "develop": len(subject.develop)},
        "provenance": provenance.describe(subject.hardware),
    }


class Record:
    """A file of runs that is written after each, so that a cut leaves what is done."""

    def __init__(self, out: Path, kind: str, command: str, subject: Subject) -> None:
        self._out = out
        self.content: dict[str, Any] = {**describe(kind, command, subject), "runs": {}}

    def keep(self, name: str, found: dict[str, Any], started: float) -> None:
        """Write down a run that was started then."""
        self.content["runs"][name] = {**found, "seconds": round(time.perf_counter() - started, 1)}
        write(self._out, self.content)
