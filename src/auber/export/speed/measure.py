"""One measurement of speed from a request to its record."""

from __future__ import annotations

import time
from importlib import metadata
from typing import Any

import torch

from auber.export.speed.arithmetic import count_multiply_adds, count_parameters
from auber.export.speed.record import Amount, Pair, RunSpeed, Speed
from auber.export.speed.request import Request
from auber.export.speed.subjects import Subject, choose_length, read_subjects
from auber.export.speed.ways import Way, choose_ways
from auber.models.encoders import encoder_of
from auber.run import provenance
from auber.system.progress import Progress
from auber.training.cuda_graphs import CaptureError
from auber.training.timing import make_timer, side_by_side


def measure_speed(
    request: Request, *, command: str = "", progress: Progress | None = None
) -> Speed:
    """Measure every run of a request in every way it asks for, one after the other."""
    progress, started = progress or Progress(), time.perf_counter()
    ways, left_out = choose_ways(request)
    subjects = read_subjects(request.runs, request.model, request.only)
    progress.plan(len(subjects) * len(ways) * len(request.batches))
    found = tuple(_measure_run(subject, ways, request, progress, left_out) for subject in subjects)
    return Speed(command, found, tuple(left_out), time.perf_counter() - started, _provenance(ways))


def _measure_run(
    subject: Subject, ways: list[Way], request: Request, progress: Progress, left_out: list[str]
) -> RunSpeed:
    models = unpruned, pruned = subject.build()
    length = choose_length(unpruned, subject, request.length)
    encoder = encoder_of(pruned)
    pairs = []
    for way in ways:
        timer = make_timer(way.hardware.device)
        with way.open(models, way.hardware) as calls:
            for batch in request.batches:
                progress.begin(
                    f"{subject.name}: {way.runtime}, {way.hardware.name}, batch {batch}",
                    request.limits.repeats,
                )
                try:
                    seconds = side_by_side(
                        calls(batch, length), timer, request.limits, progress.step
                    )
                except (MemoryError, RuntimeError) as error:
                    reason = _why_not(error)
                    if reason is None:
                        raise
                    left_out.append(f"{subject.name}: {way.runtime}, batch {batch}: {reason}")
                    progress.end()
                    continue
                pairs.append(Pair.of(way.words, batch, length, *seconds))
                progress.step(request.limits.repeats, pairs[-1].verdict)
                progress.end()
    return RunSpeed(
        name=subject.name,
        family=encoder.family,
        heads_removed=subject.plan.num_removed,
        heads=encoder.num_layers * encoder.num_heads,
        plan=subject.plan.to_json(),
        parameters=Amount(count_parameters(unpruned), count_parameters(pruned)),
        multiply_adds=Amount(
            count_multiply_adds(unpruned, length), count_multiply_adds(pruned, length)
        ),
        pairs=tuple(pairs),
    )


def _why_not(error: Exception) -> str | None:
    """Why a batch is left out; None where the error is another one."""
    if isinstance(error, CaptureError):
        return f"it cannot be recorded: {error}"
    # On a CPU torch and onnxruntime have no class for it; their messages say it.
    told = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        words in str(error).lower()
        for words in ("allocate memory", "not enough memory", "storage size calculation overflowed")
    )
    return "it does not fit into the memory" if told else None


def _provenance(ways: list[Way]) -> dict[str, Any]:
    """Where the numbers come from; device and precision stand in each pair."""
    described = provenance.describe(ways[0].hardware)
    found = {key: described[key] for key in ("versions", "commit", "threads")}
    if any(way.runtime == "onnxruntime" for way in ways):
        found["versions"]["onnxruntime"] = metadata.version("onnxruntime")
    return found
