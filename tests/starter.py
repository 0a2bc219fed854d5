"""Processes that start at once: a server with everything imported forks one for each call.

To import torch and transformers takes a process seconds. One of these is spared them, and is otherwise real: it has a number
to kill it by, an exit code, and a memory of its own. Nothing is computed in the server, so none has anything of another.

A call is a connection to the server's socket. Over it go stdin, stdout and stderr, then a line of JSON (`Call`); back come, a line
each, the number of the process and how it ended: its exit code, or minus the signal that killed it.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[1]

# What a run would import, so that a fork finds it there.
IMPORTS = (
    "auber.api",
    "auber.cli",
    "auber.scoring",
    "auber.search.players.dqn",
    "auber.study",
    "auber.training.trainer",
    "safetensors.torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
    "tests.small",
    "tests.study.tiny",
)


@dataclass(frozen=True)
class Call:
    """What a process is to do."""

    function: str  # module:name
    arguments: list[str] = field(default_factory=list)
    folder: str = str(ROOT)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


class Process:
    """A process that does a call; it writes where this one does."""

    def __init__(self, address: str, call: Call) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        socket.send_fds(self._connection, [b"."], [0, 1, 2])
        self._connection.sendall(json.dumps(asdict(call)).encode() + b"\n")
        self._answers = self._connection.makefile(
            "rb", buffering=0
        )  # so that an answer not yet read shows
        self.number = int(self._answers.readline())
        self._code: int | None = None

    def kill(self) -> None:
        """End it as the system does when memory is short."""
        os.kill(self.number, signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Whether it has, by itself or not."""
        return self._code is not None or bool(select.select([self._connection], [], [], 0)[0])

    def wait(self) -> int:
        """How it ended, once it has."""
        if self._code is None:
            self._code = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self._code


class Starter:
    """The server, while it is entered; whatever it has started ends with it."""

    def __enter__(self) -> Starter:
        self._folder = tempfile.mkdtemp(
            prefix="auber-", dir="/tmp"
        )  # the path of a socket must be short
        self.address = f"{self._folder}/socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()  # callers wait from now on, until everything is imported
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.starter", str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()
        shutil.rmtree(self._folder)

    def start(self, function: str, *arguments: str | Path) -> Process:
        """A process that calls `module:name` with these arguments, each a string there."""
        return Process(self.address, Call(function, [str(argument) for argument in arguments]))


def run_auber(*arguments: str) -> None:
    """The command line."""
    from auber.cli import main

    sys.argv = ["auber", *arguments]
    main()


def serve(listener: socket.socket) -> None:
    """Fork a keeper for each connection: it forks the process, waits for it and says how it ended."""
    for name in IMPORTS:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a keeper ended
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _keep(connection)
            os._exit(0)
        connection.close()


def _keep(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("r") as asked:
        call = Call(**json.loads(asked.readline()))
    process = os.fork()
    if process == 0:
        connection.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os._exit(_work(call))
    connection.sendall(f"{process}\n".encode())
    _, status = os.waitpid(process, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _work(call: Call) -> int:
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.environment)
    module, _, name = call.function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(*call.arguments)
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
