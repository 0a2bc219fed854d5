"""Shards of the reward set in Ray workers, one each.

With `RAY_ADDRESS` set the workers are that cluster's, whose nodes must have this package; inside a program that has already
connected to Ray (a study's worker is one) they are its cluster's. Otherwise a small cluster is started on this machine for
as long as the workers are open (see `auber.system.cluster`).

A worker asks for a GPU where the run computes on one, else for as many CPUs as the run has threads, and computes with the
run's precision and threads. It stays for all layers of a run. One that is lost is started anew, given the same rows and
asked again.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from auber.data.encoding import EncodedRows
from auber.errors import AuberError, ConfigError, RunError
from auber.scoring.scorer import LayerScorer
from auber.scoring.sharded import Assignment
from auber.system import cluster
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

_ATTEMPTS = 4  # to have one answer of a shard; a worker that is lost at each will be lost again
_PATIENCE = 300.0  # seconds to wait for a node with room for a worker; an autoscaler needs some


class RayWorkers:
    """Shards in Ray workers; connects at the first statistics asked for."""

    def __init__(self, hardware: Hardware, num_shards: int) -> None:
        self._ray = cluster.import_ray("reward.spread=ray")
        self._hardware, self._num_shards = hardware, num_shards
        on_gpu = hardware.device.type == "cuda"
        self._request = {
            "num_cpus": 1 if on_gpu else hardware.threads,
            "num_gpus": 1 if on_gpu else 0,
        }
        self._connected = False
        self._assignment: Assignment | None = None
        self._actors: list[Any] = []  # by shard, as all below
        self._given: list[
            tuple[Any, ...]
        ] = []  # arguments of `_Shard.load`; model and rows lie in Ray's store
        self._loaded: list[Any] = []  # references to the end of `load`

    @property
    def num_shards(self) -> int:
        """As many as workers."""
        return self._num_shards

    def statistics(
        self, assignment: Assignment, masks: Sequence[Sequence[int]]
    ) -> list[torch.Tensor]:
        """Each shard's statistics for each mask, on the CPU."""
        if not self._actors:
            self._connect()
            self._actors = [self._start() for _ in range(self._num_shards)]
        if assignment is not self._assignment:
            self._give(assignment)
        wanted = [tuple(mask) for mask in masks]
        answers = [self._ask(shard, wanted) for shard in range(self._num_shards)]
        return [
            torch.from_numpy(self._receive(shard, answer, wanted).copy())
            for shard, answer in enumerate(answers)
        ]

    def close(self) -> None:
        """End the workers, and the connection (with a cluster started for it) if it was made for them."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._given, self._loaded, self._assignment = [], [], [], None
        if self._connected:
            self._ray.shutdown()
            self._connected = False

    def _connect(self) -> None:
        if not self._ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS")
            if address:
                cluster.join_ray(self._ray, address, "reward.spread=ray")
            else:
                cluster.start_ray(self._ray, self._num_shards * self._request["num_cpus"])
            self._connected = True
        if self._request["num_gpus"]:
            here = int(self._ray.cluster_resources().get("GPU", 0))
            if self._num_shards > here:
                raise ConfigError(
                    f"reward.shards must be at most the number of GPUs of the Ray cluster ({here}), "
                    f"found {self._num_shards}; lower it"
                )

    def _start(self) -> Any:
        # Ray's own restarts would lose the rows; SPREAD: one machine's memory and cores are not asked for all shards first.
        actor = self._ray.remote(_Shard).options(
            **self._request, max_restarts=0, scheduling_strategy="SPREAD"
        )
        return actor.remote(
            self._hardware.device.type, self._hardware.precision, self._hardware.threads
        )

    def _give(self, assignment: Assignment) -> None:
        """Hand each shard its rows, and all of them one copy of the model."""
        model = assignment.model
        model = self._ray.put(model if model.device.type == "cpu" else copy.deepcopy(model).cpu())
        layer, metric = assignment.layer, assignment.metric
        tenants = (
            1 if self._request["num_gpus"] else self._num_shards
        )  # at worst all are on one machine
        self._given = [
            (model, layer, self._ray.put(part), metric, tenants) for part in assignment.parts
        ]
        self._loaded = [None] * self._num_shards
        self._load(range(self._num_shards))
        self._assignment = assignment

    def _load(self, shards: Iterable[int]) -> None:
        """Have some shards take what they are given, and wait until they run."""
        shards = list(shards)
        for shard in shards:
            self._loaded[shard] = self._actors[shard].load.remote(*self._given[shard])
        _, waiting = self._ray.wait(
            [self._loaded[shard] for shard in shards], num_returns=len(shards), timeout=_PATIENCE
        )
        if waiting:
            wanted = f"{self._request['num_cpus']} CPUs and {self._request['num_gpus']} GPUs"
            raise RunError(
                f"reward.shards: {len(waiting)} of {self._num_shards} Ray workers found no node with {wanted} free in "
                f"{_PATIENCE:g} s; lower reward.shards or threads, or add nodes, and go on with --resume"
            )

    def _ask(self, shard: int, masks: list[tuple[int, ...]]) -> Any:
        # With the reference to `load` as an argument, an error there is the error here.
        return self._actors[shard].statistics.remote(self._loaded[shard], masks)

    def _receive(self, shard: int, answer: Any, masks: list[tuple[int, ...]]) -> NDArray[Any]:
        """A shard's answer, from a new worker where the one that was asked is lost."""
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
                if attempt == _ATTEMPTS:
                    raise RunError(
                        f"reward.shards: the Ray worker of shard {shard} was lost {attempt} times in a row "
                        f"({type(error).__name__}); see Ray's logs (memory?), then go on with --resume"
                    ) from error
                logger.warning(
                    "the Ray worker of shard %d was lost (%s) and is started anew",
                    shard,
                    type(error).__name__,
                )
                self._actors[shard] = self._start()
                self._load([shard])
                answer = self._ask(shard, masks)
        raise AssertionError("the last attempt returns or raises")


class _Shard:
    """What a Ray worker holds. Ray shows it the GPU it was given, if any, as the first."""

    def __init__(self, device_type: str, precision: str, threads: int) -> None:
        torch.set_num_threads(threads)
        device = (
            torch.device(device_type, 0) if device_type == "cuda" else torch.device(device_type)
        )
        self._hardware = Hardware(device, precision, threads)
        self._scorer: LayerScorer | None = None

    def load(
        self, model: PreTrainedModel, layer: int, rows: EncodedRows, metric: str, tenants: int
    ) -> None:
        """Take another layer or other rows."""
        self._scorer = LayerScorer(model, layer, rows, metric, self._hardware, tenants=tenants)

    def statistics(self, loaded: None, masks: list[tuple[int, ...]]) -> NDArray[Any]:
        """The statistics of these rows for each mask."""  # (masks, ...)
        assert self._scorer is not None
        return self._scorer.statistics(masks).cpu().numpy()
