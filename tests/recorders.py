"""What stands in for CUDA graphs where there is no GPU."""

from __future__ import annotations

from auber.training.cuda_graphs import RecordingError, Work


class Repeater:
    """Records by keeping the work, as a graph keeps its kernels."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, work: Work) -> Work:
        self.recorded += 1
        return work


def refuse(work: Work) -> Work:
    """Records nothing."""
    raise RecordingError("called a synchronizing CUDA operation, at model.py:7")
