"""Real processes that start at once: a server with everything imported forks one for each job.

A job is a list of `auber` command lines, done one after the other as if typed. Its process can be killed by its number like
any other; how it ended is what the system says. The server is a process of its own, so that a drill never forks itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]

# What the commands of a job would import, so that a fork finds it there.
IMPORTS = (
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
)


class Child:
    """A process of a nursery, with a job."""

    def __init__(self, server: subprocess.Popen[str], log: Path) -> None:
        self._server, self._log = server, log
        self.process = int(self._answer()["process"])
        self.started = time.monotonic()
        self._code: int | None = None

    def wait(self) -> int:
        """How it ended: the exit code, or minus the signal that killed it."""
        if self._code is None:
            self._code = int(self._answer()["code"])
        return self._code

    def clear_away(self) -> None:
        """End it where nobody has waited for it, as a drill that fails does not: the next one would hear its answers."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            self.wait()

    @property
    def said(self) -> str:
        """What it wrote to stdout and stderr."""
        return self._log.read_text(encoding="utf-8")

    def _answer(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError("the server of processes has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Nursery:
    """Starts processes while it is entered, one at a time; `folder` holds what they say.

    `slow_disk` is how many seconds each wait for the disk takes longer, so that kills fall into them as often as on old disks.
    """

    def __init__(self, folder: Path, *, slow_disk: float = 0.0) -> None:
        self._folder, self._slow_disk = folder, slow_disk
        self._count = 0
        self._last: Child | None = None

    def __enter__(self) -> Nursery:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        environment["PYTHONPATH"] = str(ROOT)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.nursery", str(self._slow_disk)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.communicate()  # its input ends, and so does it
        self._server.wait()

    def start(self, commands: list[list[str]], *, largest_file: int | None = None) -> Child:
        """A process that does these commands; `largest_file` is how many bytes a file of it may have."""
        if self._last is not None:
            self._last.clear_away()
        self._count += 1
        log = self._folder / f"child-{self._count}.txt"
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps([commands, str(log), largest_file]) + "\n")
        self._server.stdin.flush()
        self._last = Child(self._server, log)
        return self._last


def serve(slow_disk: float) -> None:
    """Fork a process for each line of stdin, say its number, wait for it, and say how it ended."""
    import importlib

    for name in IMPORTS:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        commands, log, largest_file = json.loads(line)
        process = os.fork()
        if process == 0:
            os._exit(_work(commands, log, largest_file, slow_disk))
        print(json.dumps({"process": process}), flush=True)
        _, status = os.waitpid(process, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def _work(commands: list[list[str]], log: str, largest_file: int | None, slow_disk: float) -> int:
    import resource

    from auber.cli import main

    # A shell that starts a job in the background has it ignore Ctrl-C, and so would all below it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    if slow_disk:
        _slow_down(slow_disk)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    code = 0
    for command in commands:
        sys.argv = ["auber", *command]
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        if code:
            break
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _slow_down(seconds: float) -> None:
    wait = os.fsync

    def wait_longer(descriptor: int) -> None:
        time.sleep(seconds)
        wait(descriptor)

    os.fsync = wait_longer


if __name__ == "__main__":
    serve(float(sys.argv[1]))
