"""Shards of the reward set in Ray workers, one each.

With `RAY_ADDRESS` set, the workers belong to that cluster, whose nodes must have this package. In a
process that is already connected to Ray, such as a study's worker, they belong to its cluster.
Otherwise a small cluster on this machine is started while the workers are open (see
`auber.system.cluster`).

A worker requests a GPU if the run computes on one, else as many CPUs as the run has threads. It
computes with the run's precision and threads, and stays for all layers of a run. A worker that is
lost is started again with the same rows, and the request is repeated.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from auber.errors import AuberError, ConfigError, RunError
from auber.models.plan import PruningPlan
from auber.scoring.scorer import LayerScorer
from auber.scoring.sharded import Assignment
from auber.system import cluster
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_ATTEMPTS = 4  # to get a shard's answer; a worker that is lost each time will be lost again
_PATIENCE = 300.0  # seconds to wait for a node with room for a worker; autoscalers are slow


class RayWorkers:
    """Shards in Ray workers; connects at the first request."""

    def __init__(self, hardware: Hardware, num_shards: int) -> None:
        self._ray = cluster.import_ray("reward.spread=ray")
        self._hardware, self.num_shards = hardware, num_shards
        on_gpu = hardware.device.type == "cuda"
        num_cpus = 1 if on_gpu else hardware.threads
        self._resources = {"num_cpus": num_cpus, "num_gpus": 1 if on_gpu else 0}
        self._connected = False
        self._assignment: Assignment | None = None
        self._actors: list[Any] = []  # by shard
        self._arguments: list[list[Any]] = []  # of each shard's scorer; large ones in Ray's store

    def statistics(
        self, assignment: Assignment, masks: Sequence[PruningPlan]
    ) -> list[torch.Tensor]:
        """Return each shard's statistics of each mask, on the CPU."""
        if not self._actors:
            self._connect()
            self._actors = self._start_actors(self.num_shards)
        if assignment is not self._assignment:
            self._assign(assignment)
        answers = [self._request(shard, masks) for shard in range(self.num_shards)]
        return [
            torch.from_numpy(self._receive(shard, answer, masks).copy())
            for shard, answer in enumerate(answers)
        ]

    def close(self) -> None:
        """End the workers, and the connection if it was made for them."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._assignment = [], None
        if self._connected:
            self._ray.shutdown()
            self._connected = False

    def _connect(self) -> None:
        if not self._ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS")
            num_cpus = self.num_shards * self._resources["num_cpus"]
            cluster.open_ray(self._ray, address, "reward.spread=ray", num_cpus)
            self._connected = True
        if self._resources["num_gpus"]:
            here = int(self._ray.cluster_resources().get("GPU", 0))
            if self.num_shards > here:
                raise ConfigError(
                    "reward.shards must be at most the number of GPUs of the Ray cluster "
                    f"({here}), found {self.num_shards}; lower it"
                )

    def _start_actors(self, count: int) -> list[Any]:
        """Return new workers, which run."""
        # Ray's own restarts would lose the rows. SPREAD: use the memory and cores of all machines.
        start = self._ray.remote(_Shard).options(
            **self._resources, max_restarts=0, scheduling_strategy="SPREAD"
        )
        hardware = self._hardware
        arguments = hardware.device.type, hardware.precision, hardware.threads
        actors = [start.remote(*arguments) for _ in range(count)]
        running = [actor.__ray_ready__.remote() for actor in actors]
        _, waiting = self._ray.wait(running, num_returns=count, timeout=_PATIENCE)
        if waiting:
            wanted = f"{self._resources['num_cpus']} CPUs and {self._resources['num_gpus']} GPUs"
            raise RunError(
                f"reward.shards: {len(waiting)} of {self.num_shards} Ray workers found no node "
                f"with {wanted} free in {_PATIENCE:g} s; lower reward.shards or threads, or add "
                "nodes, and go on with --resume"
            )
        return actors

    def _assign(self, assignment: Assignment) -> None:
        """Send each shard its rows, and all of them one copy of the model."""
        model = assignment.model
        model = self._ray.put(model if model.device.type == "cpu" else copy.deepcopy(model).cpu())
        layer, metric = assignment.layer, assignment.metric
        # at worst all shards are on one machine
        sharing = 1 if self._resources["num_gpus"] else self.num_shards
        self._arguments = [
            [model, layer, self._ray.put(part), metric, sharing] for part in assignment.parts
        ]
        self._assignment = assignment

    def _request(self, shard: int, masks: Sequence[PruningPlan]) -> Any:
        return self._actors[shard].statistics.remote(self._arguments[shard], masks)

    def _receive(self, shard: int, answer: Any, masks: Sequence[PruningPlan]) -> NDArray[Any]:
        """Return a shard's answer, from a new worker if the old one is lost."""
        exceptions = self._ray.exceptions
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                found: NDArray[Any] = self._ray.get(answer)
                return found
            except exceptions.RayTaskError as error:
                if isinstance(error.cause, AuberError):
                    raise error.cause from None
                raise
            except exceptions.RayActorError as error:
                reason = type(error).__name__
                if attempt == _ATTEMPTS:
                    raise RunError(
                        f"reward.shards: the Ray worker of shard {shard} was lost {attempt} times "
                        f"in a row ({reason}); see Ray's logs (memory?), then go on with --resume"
                    ) from error
                logger.warning(
                    "the Ray worker of shard %d was lost (%s) and is being replaced", shard, reason
                )
                (self._actors[shard],) = self._start_actors(1)
                answer = self._request(shard, masks)
        raise AssertionError("the last attempt returns or raises")


class _Shard:
    """The state of a Ray worker. If it has a GPU, Ray makes it the first one visible."""

    def __init__(self, device_type: str, precision: str, threads: int) -> None:
        torch.set_num_threads(threads)
        device = torch.device("cuda", 0) if device_type == "cuda" else torch.device(device_type)
        self._hardware = Hardware(device, precision, threads)
        self._arguments: list[Any] = []

    def statistics(self, arguments: list[Any], masks: Sequence[PruningPlan]) -> NDArray[Any]:
        """Return the statistics for each mask, (masks, ...), on the rows of the arguments.

        Ray leaves references in a list alone, so the scorer stays while the arguments do.
        """
        if arguments != self._arguments:
            import ray

            model, layer, rows, metric, sharing = arguments
            model, rows = ray.get([model, rows])
            self._scorer = LayerScorer(model, layer, rows, metric, self._hardware, sharing=sharing)
            self._arguments = arguments
        return self._scorer.statistics(masks).cpu().numpy()
