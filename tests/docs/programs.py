"""Stand-ins for the programs of a cluster: `python programs.py NAME ARGUMENTS...`.

Machines are addresses of the loopback network, each with one CPU and, for Ray, one GPU.

    sbatch --wait FILE      run a job script, as often as `--array` says, two at a time
    srun OPTIONS COMMAND    run a command once per task on nodes of the job
    scontrol show hostnames print the names in a list such as 127.0.0.[2-4]
    ray start               the real program, with an address of its own
    ray up, ray exec        start a head and a second machine; run a command on the head
    auber                   the real program, forked by tests/starter.py
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

# Not 127.0.0.1: Ray replaces it by another address of this machine.
FIRST, SECOND = "127.0.0.2", "127.0.0.3"
_AT_ONCE = 2  # tasks of an array


def main() -> int:
    """Act as the program that the first argument names."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when `head` has read enough
    program, *arguments = sys.argv[1:]
    programs = {"sbatch": sbatch, "srun": srun, "scontrol": scontrol, "ray": ray, "auber": auber}
    return programs[program](arguments)


def sbatch(arguments: list[str]) -> int:
    """Run a job; return the worst exit status of its tasks and steps."""
    wait, file = arguments
    assert wait == "--wait"
    options = _options_of(Path(file).read_text())
    first, _, last = (options.array or "0-0").partition("-")
    tasks = range(int(first), int(last) + 1)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return max(pool.map(lambda task: _do_task(file, options, task), tasks))


def _options_of(script: str) -> argparse.Namespace:
    """Return the options of the `#SBATCH` lines; an unknown option is an error."""
    parser = argparse.ArgumentParser("sbatch", allow_abbrev=False)
    parser.add_argument("--array")
    parser.add_argument("--nodes", type=int, default=1)
    for name in ("--ntasks-per-node", "--gres", "--cpus-per-task"):
        parser.add_argument(name)
    words = [
        word
        for line in script.splitlines()
        if line.startswith("#SBATCH ")
        for word in line.split()[1:]
    ]
    return parser.parse_args(words)


def _do_task(file: str, options: argparse.Namespace, task: int) -> int:
    failed_steps = Path(f"{file}.{task}.failed")
    environment = {
        "SLURM_JOB_ID": "1",
        "SLURM_NNODES": str(options.nodes),
        "SLURM_JOB_NODELIST": f"127.0.0.[2-{1 + options.nodes}]",
        "SLURMD_NODENAME": FIRST,
        "FAILED_STEPS": str(failed_steps),  # not SLURM's: written by a failed background step
    }
    if options.array:
        environment |= {"SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": str(task)}
    script = subprocess.Popen(["bash", file], env=os.environ | environment, process_group=0)
    code = script.wait()
    steps_failed = failed_steps.exists()
    with suppress(ProcessLookupError):
        os.killpg(script.pid, signal.SIGKILL)
    return code or int(steps_failed)


def srun(arguments: list[str]) -> int:
    """Run a command on the requested nodes, one task each."""
    parser = argparse.ArgumentParser("srun", allow_abbrev=False)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--ntasks", type=int, required=True)
    parser.add_argument("-w", dest="wanted")
    parser.add_argument("-x", dest="left_out", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    allocated = expand_hosts(os.environ["SLURM_JOB_NODELIST"])
    nodes = expand_hosts(options.wanted or os.environ["SLURM_JOB_NODELIST"])
    nodes = [node for node in nodes if node not in expand_hosts(options.left_out)]
    if not set(nodes) <= set(allocated) or not len(nodes) >= options.nodes == options.ntasks > 0:
        print(
            f"srun: error: Requested node configuration is not available: {arguments}",
            file=sys.stderr,
        )
        _fail_job()
        return 1
    tasks = [
        subprocess.Popen(
            options.command,
            env=os.environ | {"SLURM_PROCID": str(number), "SLURMD_NODENAME": nodes[number]},
        )
        for number in range(options.ntasks)
    ]
    codes = [abs(task.wait()) for task in tasks]
    if any(codes):
        _fail_job()
    return max(codes)


def _fail_job() -> None:
    """Make the job fail: a page whose nodes do not start is wrong."""
    Path(os.environ["FAILED_STEPS"]).touch()


def scontrol(arguments: list[str]) -> int:
    """Print the nodes of a list, one per line."""
    show, hostnames, hosts = arguments
    assert (show, hostnames) == ("show", "hostnames")
    print("\n".join(expand_hosts(hosts)))
    return 0


def expand_hosts(hosts: str) -> list[str]:
    """Return the names in a list of hosts: a[1-3] is a1, a2, a3."""
    if not (found := re.fullmatch(r"(.*)\[(\d+)-(\d+)\]", hosts)):
        return [hosts] if hosts else []
    return [f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1)]


def ray(arguments: list[str]) -> int:
    """Run the real program, except for `up` and `exec`, which need a cloud."""
    program = shutil.which("ray", path=os.environ["PATH_BEHIND"])
    assert program is not None, "the extra 'ray' is not installed"
    if arguments[0] == "start":
        return subprocess.call([program, *arguments, *_machine(is_head="--head" in arguments)])
    if arguments[0] == "up":
        port = os.environ["FREE_PORT"]
        head = ray(["start", "--head", "--port", port, "--include-dashboard", "false"])
        return head or ray(["start", "--address", f"{FIRST}:{port}"])
    if arguments[0] == "exec":
        _, _, command = arguments
        return subprocess.call(["bash", "-c", command])
    return subprocess.call([program, *arguments])


def _machine(is_head: bool) -> list[str]:
    """Return the options that describe this node."""
    address = os.environ.get("SLURMD_NODENAME") or (FIRST if is_head else SECOND)
    words = [
        "--node-ip-address",
        address,
        "--num-cpus",
        "1",
        "--num-gpus",
        "1",
        "--object-store-memory",
        "80000000",
    ]
    return [*words, "--ray-client-server-port", os.environ["OTHER_FREE_PORT"]] if is_head else words


def auber(arguments: list[str]) -> int:
    """Run the command line in a process that the starter forks."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.starter import Call, Process

    return abs(
        Process(
            os.environ["STARTER"], Call("tests.starter:run_auber", arguments, str(Path.cwd()))
        ).wait()
    )


if __name__ == "__main__":
    sys.exit(main())
