"""One bench from a request to its record."""

from __future__ import annotations

import os
import time

from auber.bench.arithmetic import MatrixRate, measure_matrix_rate
from auber.bench.catalogue import ROWS, SIZES, Request
from auber.bench.growth import measure_growth
from auber.bench.record import Bench, DeviceRecord, SubjectRecord
from auber.bench.rewards import compare_rewards
from auber.bench.search import check_search, measure_search
from auber.bench.subjects import Subject, make_subject
from auber.bench.tunings import compare_tunings
from auber.config import Config
from auber.data.task import TaskData
from auber.export.measure import count_parameters
from auber.run import provenance
from auber.system.progress import Progress
from auber.training.devices import Hardware, resolve_hardware


def run_bench(
    request: Request,
    config: Config,
    preset: str,
    command: str,
    progress: Progress,
    task: TaskData | None = None,
) -> Bench:
    """Measure what is asked for, one part after the other on the same subject."""
    started, load = time.perf_counter(), _load()
    hardware = resolve_hardware(config)
    subject = make_subject(request, config, hardware, task)
    layers = request.check_layers(subject.encoder.num_layers)
    if request.search:
        check_search(subject)
    rate = measure_matrix_rate(hardware)
    rewards = tuning = search = growth = None
    if request.rewards:
        rewards = compare_rewards(subject, layers, rate.flops_per_second, request.limits, progress)
    if request.tuning:
        tuning = compare_tunings(subject, request.steps, progress)
    if request.search:
        search = measure_search(subject, preset, progress)
    if request.growth:
        growth = measure_growth(
            SIZES[request.size],
            ROWS[request.rows],
            request.count,
            config,
            hardware,
            rate.flops_per_second,
            request.limits,
            progress,
        )
    return Bench(
        command=command,
        subject=_describe(subject),
        device=_describe_device(hardware, rate, load),
        rewards=rewards,
        tuning=tuning,
        search=search,
        growth=growth,
        seconds=time.perf_counter() - started,
        provenance=provenance.describe(hardware),
    )


def _describe(subject: Subject) -> SubjectRecord:
    encoder = subject.encoder
    return SubjectRecord(
        model=subject.name,
        family=encoder.family,
        attention=str(subject.model.config._attn_implementation),
        layers=encoder.num_layers,
        heads=encoder.num_heads,
        hidden_size=encoder.hidden_size,
        intermediate_size=encoder.parts(0).contract.in_features,
        parameters=count_parameters(subject.model),
        task=subject.task.name,
        metric=subject.task.metric,
        rows=len(subject.rows),
        tokens=sum(subject.rows.lengths),
        longest=max(subject.rows.lengths),
        train_rows=len(subject.task.train),
        seed=subject.config.seed,
    )


def _describe_device(hardware: Hardware, rate: MatrixRate, load: float | None) -> DeviceRecord:
    teraflops = rate.flops_per_second / 1e12
    return DeviceRecord(
        hardware.name, hardware.precision, hardware.threads, rate.size, teraflops, load
    )


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
