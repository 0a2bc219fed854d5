"""The group of processes that share a run's tuning; `torchrun` and `accelerate launch` tell each its place in the environment."""

from __future__ import annotations

import os


def num_processes() -> int:
    """How many there are; 1 without a group."""
    return int(os.environ.get("WORLD_SIZE", 1))


def is_main_process() -> bool:
    """Whether this process is the one that writes and speaks."""
    return num_processes() == 1 or int(os.environ.get("RANK", 0)) == 0


def launch_words() -> list[str]:
    """The words before `auber` that start such a group again; none without a group."""
    return (
        ["torchrun", "--nproc-per-node", str(num_processes()), "-m"] if num_processes() > 1 else []
    )


def wait_for_all() -> None:
    """Return when every process of the group has come here."""
    if num_processes() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()
