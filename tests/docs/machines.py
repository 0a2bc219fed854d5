"""Run blocks that need several machines on this one, as shell scripts.

Such a block names a program of `PROGRAMS` in its mark; `programs.py` is put on the `PATH` under
these names. A script that starts with `#!` is submitted with `sbatch`. Each block starts with an
empty shared folder, a token of its own and no Ray processes, and all its processes end with it. In
jobs of many studies `auber` is started by `tests/starter.py`, which saves importing torch.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil

from tests.docs import programs
from tests.docs.blocks import Block
from tests.starter import Starter

PROGRAMS = {"ray": "ray", "#SBATCH": "sbatch", "srun": "srun", "scontrol": "scontrol"}
WORDS = ("/shared", "FIRST", "6379")
NAMES = frozenset({*PROGRAMS, *WORDS})
_PATIENCE = 240  # seconds for a block


def is_for_machines(block: Block) -> bool:
    """Return whether a shell has to run the block."""
    return any(name in PROGRAMS for name in block.stand_ins)


def run(
    block: Block,
    folder: Path,
    make_shared: Callable[[Path], object],
    check_shared: Callable[[Path], object],
) -> None:
    """Run a block in a folder and raise if it fails.

    `make_shared` fills the folder that all machines see; `check_shared` raises if the block left
    something wrong there.
    """
    has_many_studies = "#SBATCH --array" in block.code and any(
        "study" in words for words in block.commands()
    )
    with (
        tempfile.TemporaryDirectory(dir=folder) as room,
        _ray_folder() as ray_folder,
        Starter() if has_many_studies else nullcontext() as starter,
    ):
        place = Path(room)
        shared, home, bin_folder = place / "shared", place / "home", place / "bin"
        for made in (shared, home / ".ray", bin_folder):
            made.mkdir(parents=True)
        make_shared(shared)
        (home / ".ray" / "auth_token").write_text(secrets.token_hex(32))
        for name in set(block.stand_ins) & PROGRAMS.keys():
            _write_program(bin_folder / PROGRAMS[name])
        port, other_port = _free_ports(2)
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("RAY_", "SLURM"))
            },
            "HOME": str(home),
            "PATH_BEHIND": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "FREE_PORT": str(port),
            "OTHER_FREE_PORT": str(other_port),
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(ray_folder),
            "RAY_worker_niceness": "0",
        }
        if starter is not None:
            _write_program(bin_folder / "auber")
            environment["STARTER"] = starter.address
        environment["PATH"] = f"{bin_folder}{os.pathsep}{environment['PATH_BEHIND']}"
        words = {"/shared": str(shared), "FIRST": programs.FIRST, "6379": str(port)}
        code = block.code
        for word in set(block.stand_ins) & words.keys():
            code = code.replace(word, words[word])
        script, output = place / "block.sh", place / "output"
        script.write_text(code)
        command = (
            ["sbatch", "--wait", str(script)]
            if code.startswith("#!")
            else ["bash", "-e", str(script)]
        )
        status = _run_to_the_end(command, folder, environment, output)
        assert status == 0, (
            f"{block.where}: {shlex.join(command)} ended with {status}\n{output.read_text()}"
        )
        if "/shared" in block.stand_ins:
            check_shared(shared)


def _run_to_the_end(
    command: list[str], folder: Path, environment: dict[str, str], output: Path
) -> int:
    """Return the exit status of a command after ending everything that it started."""
    with output.open("w") as file:
        # Look the program up on the block's PATH, not on this process's.
        command = [shutil.which(command[0], path=environment["PATH"]) or command[0], *command[1:]]
        shell = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return shell.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"not done after {_PATIENCE} s\n{output.read_text()}") from None
    finally:
        _end_session(shell)


def _end_session(shell: subprocess.Popen[bytes]) -> None:
    """Kill all processes of the shell's session; Ray's processes stay in it."""
    for _ in range(50):
        members = [process for process in psutil.process_iter() if _is_in(process, shell.pid)]
        if not members:
            break
        for process in members:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.1)  # a process may have just started another
    else:
        raise AssertionError(f"still there: {members}")
    shell.wait()


def _is_in(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
        return False


def _write_program(path: Path) -> None:
    path.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, programs.__file__, path.name])} "$@"\n'
    )
    path.chmod(0o755)


def _free_ports(count: int) -> list[int]:
    """Return different free ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def _ray_folder() -> Iterator[Path]:
    """Yield a folder for Ray's files; the paths of its sockets must be short."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
