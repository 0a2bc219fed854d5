"""A study on a Ray cluster: each run is a Ray task, results go through the shared folder.

With `RAY_ADDRESS` set (a cluster's head, or `auto`) the tasks go to that cluster, whose nodes must have this package, the
study's folder and the data under the same paths. Without it a small cluster is started on this machine for the length of
the study (see `auber.system.cluster`). To a cluster that asks for a token, Ray's own `RAY_AUTH_MODE` and `RAY_AUTH_TOKEN` (or its
token file) give it.

A run is handed in when the runs it needs are settled (the start, and the `auber` run it is matched with); the runs of a
block need not be on one node. A run whose worker or node was lost is handed in again and goes on where it was, as often as
`Losses` allows; Ray's own retries, which cannot tell a run that is hit by chance from one that ends its worker itself, are not
used. When no node is left that could take a run, and none comes within `patience` seconds, all that is left is written down as
failed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from auber.errors import ConfigError
from auber.study.block import Listener, Work
from auber.study.engines import (
    LOOK_EVERY,
    RETRIES,
    Losses,
    Watch,
    require_pinned_threads,
    say_busy,
    work_quietly,
)
from auber.study.folder import StudyFolder
from auber.study.plan import Block
from auber.system import cluster
from auber.system.locks import HeldError


@dataclass(frozen=True)
class Request:
    """What a run asks of the cluster, and how many are done at once where the cluster is this machine."""

    jobs: int = 1
    num_cpus: float = 1
    num_gpus: float = 0
    retries: int = RETRIES  # of a run that loses its worker and gets no further
    patience: float = (
        300  # seconds to wait for a node that could take a run; an autoscaler needs some
    )

    @property
    def resources(self) -> dict[str, float]:
        """By Ray's names, without those not asked for."""
        return {
            name: amount
            for name, amount in (("CPU", self.num_cpus), ("GPU", self.num_gpus))
            if amount
        }


def run_ray(works: Sequence[Work], request: Request, listener: Listener) -> None:
    """Every run as a Ray task, handed in when the runs it needs are settled."""
    require_pinned_threads(works, "ray")
    with ExitStack() as claims, _cluster(request) as ray:
        ours = []
        for work in works:
            try:
                claims.enter_context(StudyFolder(work.folder).claim(work.block))
            except HeldError as error:
                say_busy(work, error.reason, listener)
            else:
                ours.append(work)
        _distribute(ray, ours, request, listener)


def _distribute(ray: Any, works: Sequence[Work], request: Request, listener: Listener) -> None:
    watch, losses = Watch(works, listener), Losses(request.retries)
    task = ray.remote(work_quietly).options(
        num_cpus=request.num_cpus,
        num_gpus=request.num_gpus,
        max_retries=0,
        scheduling_strategy="SPREAD",
    )
    gpus = ray.cluster_resources().get("GPU", 0)
    if gpus and not request.num_gpus:
        listener.say(
            f"the cluster has {gpus:g} GPUs and runs ask for none; --num-gpus 1, or a part, gives them one"
        )
    waiting = [run for work in works for run in work.single_runs()]
    active: dict[Any, Work] = {}
    last_room = time.monotonic()
    while waiting or active:
        unsettled = {(run.block, run.names[0]) for run in (*waiting, *active.values())}
        for run in [run for run in waiting if not _needs(run) & unsettled]:
            waiting.remove(run)
            active[task.remote(run)] = run
        done, _ = ray.wait(list(active), timeout=LOOK_EVERY)
        for reference in done:
            run = active.pop(reference)
            try:
                ray.get(reference)
            except (
                ray.exceptions.RayTaskError
            ) as error:  # an error of ours, which would only come again
                _record_error(run, error)
            except ray.exceptions.RayError as error:
                reason = f"its worker or node was lost ({type(error).__name__})"
                if losses.take_up_again(run, reason):
                    waiting.append(run)
        if _has_room(ray, request):
            last_room = time.monotonic()
        elif time.monotonic() - last_room > request.patience:
            _give_up([*waiting, *active.values()], request)
            for reference in active:
                ray.cancel(reference, force=True)
            waiting, active = [], {}
        if watch.look():
            losses.hear_of_progress()


def _record_error(work: Work, error: Any) -> None:
    """Write down that the work itself, and not its worker, broke off; `error` is Ray's account of it."""
    folder = StudyFolder(work.folder)
    for name in work.names:
        if not folder.state(work.block, name).is_settled:
            folder.record_failure(work.block, name, error.cause)


def _needs(work: Work) -> set[tuple[Block, str]]:
    """The runs of its block that a run must wait for."""
    (name,) = work.names
    (run,) = [run for run in work.study.runs(work.block) if run.name == name]
    return {(work.block, needed) for needed in run.needs}


def _has_room(ray: Any, request: Request) -> bool:
    """Whether a node that is alive could take a run, now or when others are done."""
    return any(
        node["Alive"]
        and all(
            node["Resources"].get(name, 0) >= amount for name, amount in request.resources.items()
        )
        for node in ray.nodes()
    )


def _give_up(left: Sequence[Work], request: Request) -> None:
    wanted = " and ".join(f"{amount:g} {name}" for name, amount in request.resources.items())
    for work in left:
        folder = StudyFolder(work.folder)
        for name in work.names:
            if not folder.state(work.block, name).is_settled:
                folder.record_failure(
                    work.block,
                    name,
                    f"no node with {wanted} is left, and none came in {request.patience:g} s",
                )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what the program does at SIGTERM: Ray would put a handler in its place that ends it on the spot."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _cluster(request: Request) -> Iterator[Any]:
    """Ray, connected."""
    address = os.environ.get("RAY_ADDRESS")
    ray = cluster.import_ray("engine ray")
    if address and request.jobs > 1:
        raise ConfigError(
            f"engine ray: --jobs is for a cluster on this machine, found {request.jobs} beside RAY_ADDRESS; "
            "leave it out: --num-cpus and --num-gpus say how many runs a node takes"
        )
    with _own_signals():
        if address:
            cluster.join_ray(ray, address, "engine ray")
        else:
            cluster.start_ray(ray, max(1, round(request.jobs * request.num_cpus)))
    try:
        if not address and not _has_room(ray, request):
            raise ConfigError(
                f"engine ray: a run asks for {request.resources}, this machine has "
                f"{ray.cluster_resources().get('GPU', 0):g} GPUs; ask for less or set RAY_ADDRESS to a cluster"
            )
        yield ray
    finally:
        ray.shutdown()
