"""What stands in for CUDA graphs where there is no GPU."""

from __future__ import annotations

from auber.training.cuda_graphs import CaptureError, Computation


class Repeater:
    """Records by keeping the work, as a graph keeps its kernels."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, work: Computation) -> Computation:
        self.recorded += 1
        return work


def refuse(work: Computation) -> Computation:
    """Records nothing."""
    raise CaptureError("called a synchronizing CUDA operation, at model.py:7")
