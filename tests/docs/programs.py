"""Programs that a cluster has and this machine has not, run as a script: `python programs.py NAME ARGUMENTS...`.

Each does what the real one would do for the pages, with this machine in the place of several: machines are addresses of the
loopback network, each with a CPU and, as far as Ray is told, a GPU.

    sbatch --wait FILE      the job of a script: as often as `--array` says, two at a time; what it left running is ended
    srun OPTIONS COMMAND    a step: the command once for each task, on nodes of the job
    scontrol show hostnames the names of a list such as 127.0.0.[2-4]
    ray start               the real one, as the machine at an address of its own
    ray up, ray exec        a head and a second machine; a command on the head
    auber                   the real one, in a process that need not import anything any more (tests/starter.py)
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

# Not 127.0.0.1: Ray takes it for "this machine" and puts another address in its place.
FIRST, SECOND = "127.0.0.2", "127.0.0.3"
_AT_ONCE = 2  # tasks of an array


def main() -> int:
    """Be the program that the first argument names."""
    signal.signal(
        signal.SIGPIPE, signal.SIG_DFL
    )  # end quietly where `head` has read enough, as other programs do
    program, *arguments = sys.argv[1:]
    return {"sbatch": sbatch, "srun": srun, "scontrol": scontrol, "ray": ray, "auber": auber}[
        program
    ](arguments)


# --- SLURM ----------------------------------------------------------------------------------------------------------


def sbatch(arguments: list[str]) -> int:
    """Do a job and end as its worst task, or as a step of it that failed."""
    wait, file = arguments
    assert wait == "--wait", "nobody would end the job"
    options = _options_of(Path(file).read_text())
    first, _, last = (options.array or "0-0").partition("-")
    tasks = range(int(first), int(last) + 1)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return max(pool.map(lambda task: _do_task(file, options, task), tasks))


def _options_of(script: str) -> argparse.Namespace:
    """What the `#SBATCH` lines ask for; an option that is not known here is an error."""
    parser = argparse.ArgumentParser("sbatch", allow_abbrev=False)
    parser.add_argument("--array")
    parser.add_argument("--nodes", type=int, default=1)
    for name in ("--ntasks-per-node", "--gres", "--cpus-per-task"):  # what a machine must have
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
        "FAILED_STEPS": str(
            failed_steps
        ),  # not SLURM's: where a step in the background leaves word
    }
    if options.array:
        environment |= {"SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": str(task)}
    # in a group of its own, so that with the script all it started can be ended
    script = subprocess.Popen(["bash", file], env=os.environ | environment, process_group=0)
    code = script.wait()
    steps_failed = failed_steps.exists()
    with suppress(ProcessLookupError):  # nothing was left
        os.killpg(script.pid, signal.SIGKILL)
    return code or int(steps_failed)


def srun(arguments: list[str]) -> int:
    """Run a command on as many nodes as asked for, those named or all but those left out, a task each."""
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
        _leave_word()
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
        _leave_word()
    return max(codes)


def _leave_word() -> None:
    """Have the job fail too, as a real one would not: a page whose nodes do not come up is wrong."""
    Path(os.environ["FAILED_STEPS"]).touch()


def scontrol(arguments: list[str]) -> int:
    """Print the nodes of a list, one a line."""
    show, hostnames, hosts = arguments
    assert (show, hostnames) == ("show", "hostnames")
    print("\n".join(expand_hosts(hosts)))
    return 0


def expand_hosts(hosts: str) -> list[str]:
    """The names that SLURM writes as one: a[1-3] is a1, a2, a3."""
    if not (found := re.fullmatch(r"(.*)\[(\d+)-(\d+)\]", hosts)):
        return [hosts] if hosts else []
    return [f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1)]


# --- Ray ------------------------------------------------------------------------------------------------------------


def ray(arguments: list[str]) -> int:
    """The real program, but for `up` and `exec`, which would want a cloud."""
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
    """What this node is told to be; the real program would look at the machine."""
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


# --- auber ----------------------------------------------------------------------------------------------------------


def auber(arguments: list[str]) -> int:
    """The command line, in a process of the starter's that is given this one's folder, environment and files."""
    sys.path.insert(0, str(Path(__file__).parents[2]))  # this file is run by its path
    from tests.starter import Call, Process

    return abs(
        Process(
            os.environ["STARTER"], Call("tests.starter:run_auber", arguments, str(Path.cwd()))
        ).wait()
    )


if __name__ == "__main__":
    sys.exit(main())
