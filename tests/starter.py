"""A fork server that has imported torch and transformers, so that test processes start at once.

The processes are otherwise ordinary: they have a process id, an exit code and their own memory. The
server itself computes nothing.

A call is a connection to the server's socket. The client sends stdin, stdout and stderr and a line
of JSON (`Call`). The server answers with two lines: the process id, and the exit code or the
negative number of the signal that killed the process.
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
    """A function call for a new process."""

    function: str  # module:name
    arguments: list[str] = field(default_factory=list)
    folder: str = str(ROOT)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


class Process:
    """A process that makes a call. It shares this process's standard streams."""

    def __init__(self, address: str, call: Call) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        socket.send_fds(self._connection, [b"."], [0, 1, 2])
        self._connection.sendall(json.dumps(asdict(call)).encode() + b"\n")
        # Unbuffered, so that `select` sees an unread answer.
        self._answers = self._connection.makefile("rb", buffering=0)
        self.number = int(self._answers.readline())
        self._code: int | None = None

    def kill(self) -> None:
        """Kill the process, as the system does when memory runs out."""
        os.kill(self.number, signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._code is not None or bool(select.select([self._connection], [], [], 0)[0])

    def wait(self) -> int:
        """Wait for the process and return its exit code."""
        if self._code is None:
            self._code = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self._code


class Starter:
    """Run the server inside a `with` block; all its processes end with the block."""

    def __enter__(self) -> Starter:
        # The path of a socket must be short.
        self._folder = tempfile.mkdtemp(prefix="auber-", dir="/tmp")
        self.address = f"{self._folder}/socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen()  # callers wait until the imports are done
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.starter", str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                },
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
        """Start a process that calls `module:name` with these arguments as strings."""
        return Process(self.address, Call(function, [str(argument) for argument in arguments]))


def run_auber(*arguments: str) -> None:
    """Run the command line."""
    from auber.cli import main

    sys.argv = ["auber", *arguments]
    main()


def serve(listener: socket.socket) -> None:
    """Fork a keeper per connection, which forks the process and reports its exit code."""
    for name in IMPORTS:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
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
