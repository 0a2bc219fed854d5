"""The stand-ins for a cluster do what the pages count on, and nothing that they start stays."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from tests.docs import machines, programs
from tests.docs.blocks import parse


def run(text: str, folder: Path, names: str = "#SBATCH, srun, scontrol, /shared") -> str:
    """What a block, here without its indent, writes into the shared folder's file `out`."""
    seen = []
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    (block,) = parse(
        "page.md", f"<!-- stand-ins: {names} -->\n\n{indented}    true || auber tasks 'auber '\n"
    )
    machines.run(
        block, folder, lambda shared: None, lambda shared: seen.append((shared / "out").read_text())
    )
    return seen[0]


def test_a_job_is_done_for_each_task_of_its_array(tmp_path):
    job = "#!/bin/bash\n#SBATCH --array=3-6 --gres=gpu:1\necho $SLURM_ARRAY_TASK_ID >> /shared/out"
    assert sorted(run(job, tmp_path).split()) == ["3", "4", "5", "6"]


def test_steps_are_on_the_nodes_they_ask_for(tmp_path):
    job = """#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=1
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
step='echo $SLURMD_NODENAME $SLURM_PROCID >> /shared/out'
srun --nodes=1 --ntasks=1 -w "$first" bash -c "$step"
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) -x "$first" bash -c "$step"
"""
    first, *others = run(job, tmp_path).splitlines()
    assert first == f"{programs.FIRST} 0"
    assert sorted(others) == ["127.0.0.3 0", "127.0.0.4 1"]


@pytest.mark.parametrize(
    "step",
    [
        "srun --nodes=2 --ntasks=2 true",  # more than the job has
        "srun --nodes=1 --ntasks=1 -w 127.0.0.9 true",  # not the job's
        "srun --nodes=1 --ntasks=1 false",
    ],
)
def test_a_job_fails_with_a_step_in_the_background(tmp_path, step):
    with pytest.raises(AssertionError, match="page.md:3: .* ended with 1"):
        run(f"#!/bin/bash\n#SBATCH --nodes=1\n{step} &\nwait $!\ntouch /shared/out", tmp_path)


def test_an_option_that_is_not_known(tmp_path):
    with pytest.raises(AssertionError, match="unrecognized arguments: --gpu-s=1"):
        run("#!/bin/bash\n#SBATCH --gpu-s=1\ntouch /shared/out", tmp_path)


@pytest.mark.parametrize("end", ["true", "false"])
def test_what_a_block_started_is_ended(tmp_path, end):
    """Also where it fails, and in a group of its own, as job control puts it."""
    number = tmp_path / "number"
    expected = (
        nullcontext() if end == "true" else pytest.raises(AssertionError, match="ended with 1")
    )
    with expected:
        run(
            f"set -m\nsleep 600 & echo $! > {number}\nset +m\ntouch /shared/out\n{end}",
            tmp_path,
            "ray, /shared",
        )
    pid = int(number.read_text())
    # nobody may have asked yet how it ended
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_hosts():
    assert programs.expand_hosts("a[9-11]") == ["a9", "a10", "a11"]
    assert programs.expand_hosts("a") == ["a"]
    assert programs.expand_hosts("") == []
