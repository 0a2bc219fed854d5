"""Run a study on Ray: each run is a Ray task, and results go through the shared folder.

With `RAY_ADDRESS` the tasks go to that cluster, whose nodes need this package and the study's
folder and data under the same paths. Without it, a cluster is started on this machine.

A run is submitted when the runs that it needs are settled. A run that lost its worker or node is
submitted again as often as `LostWorkers` allows; Ray's own retries are off, because they cannot
distinguish a run that ends its worker from one that is hit by chance. If no node has room for a
run for `patience` seconds, all runs that are left are recorded as failed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from auber.errors import ConfigError
from auber.study.block import BlockJob
from auber.study.engines import (
    LOOK_INTERVAL,
    Engine,
    FolderWatcher,
    LostWorkers,
    claim_block,
    run_block_quietly,
)
from auber.study.folder import Listener
from auber.study.plan import Block
from auber.system import cluster


def run_ray(jobs: Sequence[BlockJob], listener: Listener, engine: Engine) -> None:
    """Run everything as Ray tasks; the engine's `jobs` is the size of a cluster on this machine."""
    with ExitStack() as claims, _connected(engine) as ray:
        ours = [job for job in jobs if claim_block(job, listener, claims)]
        _distribute(ray, ours, listener, engine)


def _distribute(ray: Any, jobs: Sequence[BlockJob], listener: Listener, engine: Engine) -> None:
    resources = engine.resources
    watch, losses = FolderWatcher(jobs, listener), LostWorkers(engine.retries)
    task = ray.remote(run_block_quietly).options(
        num_cpus=resources.get("CPU", 0),
        num_gpus=resources.get("GPU", 0),
        max_retries=0,
        scheduling_strategy="SPREAD",
    )
    gpus = ray.cluster_resources().get("GPU", 0)
    if gpus and "GPU" not in resources:
        listener.say(
            f"the cluster has {gpus:g} GPUs and runs ask for none; "
            "--num-gpus 1, or a fraction, gives them one"
        )
    waiting = [replace(job, names=(name,)) for job in jobs for name in job.names]
    active: dict[Any, BlockJob] = {}
    last_room = time.monotonic()
    while waiting or active:
        unsettled = {(run.block, run.names[0]) for run in (*waiting, *active.values())}
        for run in [run for run in waiting if not _needs(run) & unsettled]:
            waiting.remove(run)
            active[task.remote(run)] = run
        done, _ = ray.wait(list(active), timeout=LOOK_INTERVAL)
        for reference in done:
            run = active.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.RayTaskError as error:  # raised by our code: no use in repeating
                _record_failures([run], error.cause)
            except ray.exceptions.RayError as error:
                reason = f"its worker or node was lost ({type(error).__name__})"
                if losses.may_retry(run, reason):
                    waiting.append(run)
        if _has_room(ray, resources):
            last_room = time.monotonic()
        elif time.monotonic() - last_room > engine.patience:
            wanted = " and ".join(f"{amount:g} {name}" for name, amount in resources.items())
            message = f"no node with {wanted} is left, and none came in {engine.patience:g} s"
            _record_failures([*waiting, *active.values()], message)
            for reference in active:
                ray.cancel(reference, force=True)
            waiting, active = [], {}
        watch.look()


def _record_failures(jobs: Sequence[BlockJob], error: BaseException | str) -> None:
    for job in jobs:
        for name in job.unsettled():
            job.folder.record_failure(job.block, name, error)


def _needs(job: BlockJob) -> set[tuple[Block, str]]:
    """Return the runs that the only run of a job must wait for."""
    (needs,) = [run.needs for run in job.study.runs(job.block) if run.name in job.names]
    return {(job.block, name) for name in needs}


def _has_room(ray: Any, resources: Mapping[str, float]) -> bool:
    """Return whether a live node is large enough for a run, now or when others are done."""
    return any(
        node["Alive"]
        and all(node["Resources"].get(name, 0) >= amount for name, amount in resources.items())
        for node in ray.nodes()
    )


@contextmanager
def _connected(engine: Engine) -> Iterator[Any]:
    """Connect to Ray, or start it on this machine."""
    address, resources = os.environ.get("RAY_ADDRESS"), engine.resources
    ray = cluster.import_ray("engine ray")
    if address and engine.jobs > 1:
        raise ConfigError(
            f"engine ray: --jobs is for a cluster on this machine, found {engine.jobs} with "
            "RAY_ADDRESS; leave it out and set --num-cpus and --num-gpus, which limit the runs of "
            "a node"
        )
    before = signal.getsignal(signal.SIGTERM)
    try:
        num_cpus = max(1, round(engine.jobs * resources.get("CPU", 0)))
        cluster.open_ray(ray, address, "engine ray", num_cpus)
    finally:  # Ray's handling of SIGTERM ends the process at once
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
    try:
        if not address and not _has_room(ray, resources):
            raise ConfigError(
                f"engine ray: a run asks for {resources}, this machine has "
                f"{ray.cluster_resources().get('GPU', 0):g} GPUs; ask for less or set RAY_ADDRESS "
                "to a cluster"
            )
        yield ray
    finally:
        ray.shutdown()
