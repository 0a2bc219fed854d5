"""Processes that run `auber` command lines, forked from a server with all imports."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

# What commands and runs import.
_IMPORTS = [
    "auber.api",
    "auber.cli",
    "auber.export.dense",
    "auber.report",
    "auber.search.players.dqn",
    "auber.training.trainer",
    "safetensors.torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
]


def make_starter() -> ForkServerContext:
    """Return what forks processes from a server with all imports, on one thread and offline."""
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTS)
    return context


@dataclass(frozen=True)
class Child:
    """A process that runs command lines one after the other, as if typed."""

    process: ForkServerProcess
    log: Path
    started: float = field(default_factory=time.monotonic)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; none is sent if the process has ended."""
        if self.process.is_alive():
            assert self.process.pid is not None
            os.kill(self.process.pid, number)

    def wait(self) -> int:
        """Return the exit code, or minus the signal that killed the process."""
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode

    @property
    def output(self) -> str:
        """What it wrote to stdout and stderr."""
        return self.log.read_text(encoding="utf-8")


def start(
    commands: Sequence[Sequence[str]],
    log: Path,
    *,
    largest_file: int | None = None,
    slow_disk: float = 0.0,
) -> Child:
    """Start commands that print into a log.

    `largest_file` bounds the bytes of each file they write. `slow_disk` seconds are added to each
    wait for the disk: signals then hit the writing of files as often as on old disks.
    """
    arguments = (commands, str(log), largest_file, slow_disk)
    process = make_starter().Process(target=_run, args=arguments, daemon=True)
    process.start()
    return Child(process, log)


def _run(
    commands: Sequence[Sequence[str]], log: str, largest_file: int | None, slow_disk: float
) -> None:
    import resource

    import torch

    from auber.cli import main

    torch.set_num_threads(1)
    # A shell that starts a job in the background lets it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    if slow_disk:
        sync = os.fsync

        def sync_slowly(descriptor: int) -> None:
            time.sleep(slow_disk)
            sync(descriptor)

        os.fsync = sync_slowly  # type: ignore[assignment]
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    for command in commands:
        sys.argv = ["auber", *command]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
