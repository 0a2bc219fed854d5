"""A made result of `auber speed`."""

from __future__ import annotations

from auber.export.speed import Amount, RunSpeed, Speed, SpeedProvenance, Timing


def make_speed() -> Speed:
    """A run that is faster one by one and slower in batches."""
    names = ("unpruned", "pruned")
    timings = tuple(
        Timing.of(("torch", "cpu", "float32"), batch, 128, names, ([0.04] * 6, [pruned] * 6))
        for batch, pruned in ((1, 0.02), (32, 0.05))
    )
    run = RunSpeed(
        name="rte auber seed 0",
        family="bert",
        heads_removed=40,
        heads=144,
        neurons_removed=3000,
        neurons=36_864,
        plan={},
        parameters=Amount(unpruned=109_483_778, pruned=101_000_000),
        multiply_adds=Amount(unpruned=11_000_000_000, pruned=9_900_000_000),
        int8_bytes=Amount(unpruned=110_000_000, pruned=101_500_000),
        timings=timings,
    )
    return Speed(
        command="auber speed x",
        runs=(run,),
        left_out=("torch on a GPU: there is none here",),
        seconds=1.0,
        provenance=SpeedProvenance(versions={}, commit=None, threads=2),
    )
