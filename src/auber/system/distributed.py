"""The processes of a distributed run, as `torchrun` and `accelerate launch` describe them."""

from __future__ import annotations

import os


def num_processes() -> int:
    """Return the number of processes; 1 if the run is not distributed."""
    return int(os.environ.get("WORLD_SIZE", 1))


def is_main_process() -> bool:
    """Return whether this process writes files and prints."""
    return num_processes() == 1 or int(os.environ.get("RANK", 0)) == 0


def launch_words() -> list[str]:
    """Return the words before `auber` that start the same number of processes again."""
    number = num_processes()
    return ["torchrun", "--nproc-per-node", str(number), "-m"] if number > 1 else []


def wait_for_all() -> None:
    """Wait until every process has reached this call."""
    if num_processes() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()
