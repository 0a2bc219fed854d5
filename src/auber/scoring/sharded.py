"""One layer's scores computed in shards: each worker scores some rows, and the metric is combined.

Each shard is a `LayerScorer` with some of the rows. `DeviceWorkers` runs the shards in threads of
this process, each on a GPU of its own or all on the CPU. `ray_shards` runs them in Ray workers.

Contract: a shard's predictions are those of one scorer, row for row (float32). A metric of counts
(`Metric.exact`: of classes, tags or whole spans) adds up exactly, so a score is that of one scorer,
bit for bit, and has the same key. Sums of regression outputs or of overlaps, and predictions in
bfloat16, depend in their last bits on the distribution of rows, so their keys contain the number of
shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch

from auber.config import Config
from auber.data.encoding import EncodedRows
from auber.errors import ConfigError
from auber.models.checkpoint import weights_digest
from auber.models.plan import PruningPlan
from auber.scoring.base import MaskScorer
from auber.scoring.scorer import LayerScorer, score_key
from auber.system.distributed import num_processes
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, eq=False)
class Assignment:
    """What the workers compute on: one layer of a model, and each shard's rows."""

    model: PreTrainedModel
    layer: int
    metric: str
    parts: tuple[EncodedRows, ...]


class Workers(Protocol):
    """Workers that compute the shards. Nothing starts before the first request."""

    num_shards: int

    def statistics(
        self, assignment: Assignment, masks: Sequence[PruningPlan]
    ) -> list[torch.Tensor]:
        """Return each shard's statistics of each mask, on the CPU.

        A new assignment replaces the previous one.
        """

    def close(self) -> None:
        """Release everything that was started."""


class ShardedScorer(MaskScorer):
    """Scores masks like `LayerScorer`, each shard of the rows by a worker."""

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int,
        rows: EncodedRows,
        metric: str,
        hardware: Hardware,
        workers: Workers,
    ) -> None:
        super().__init__(model, layer, metric)
        self._model, self._rows, self._hardware, self._workers = model, rows, hardware, workers
        dealt = deal_rows(rows.lengths, workers.num_shards)
        parts = tuple(rows.select(part) for part in dealt)
        self._assignment = Assignment(model, layer, metric, parts)

    @cached_property
    def key(self) -> str:
        """What a score depends on besides layer and mask: equal keys mean equal scores."""
        digest, precision = weights_digest(self._model), self._hardware.precision
        key = score_key(digest, self._rows, self.metric.name, precision)
        exact = self.metric.exact and self._hardware.dtype == torch.float32
        return key if exact else f"{key}-{self._workers.num_shards}"

    def _statistics(self, plans: Sequence[PruningPlan]) -> torch.Tensor:
        combined = self._combine(self._workers.statistics(self._assignment, plans))
        if self._hardware.device.type == "cuda":
            # finished on the device of an unsharded scorer, to give the same bits
            combined = combined.to(self._hardware.device)
        return combined


class DeviceWorkers:
    """Shards in threads of this process, one for each of `devices`, which may repeat."""

    def __init__(self, hardware: Hardware, devices: Sequence[torch.device]) -> None:
        self.num_shards = len(devices)
        self._places = [replace(hardware, device=device) for device in devices]
        self._assignment: Assignment | None = None
        self._scorers: list[LayerScorer] = []
        self._threads = ThreadPoolExecutor(len(devices), thread_name_prefix="auber-shard")

    def statistics(
        self, assignment: Assignment, masks: Sequence[PruningPlan]
    ) -> list[torch.Tensor]:
        """Return each shard's statistics of each mask, on the CPU."""
        if assignment is not self._assignment:
            self._scorers = [self._scorer(assignment, shard) for shard in range(self.num_shards)]
            self._assignment = assignment
        return list(self._threads.map(lambda scorer: _statistics(scorer, masks), self._scorers))

    def close(self) -> None:
        """End the threads and drop the scorers."""
        self._threads.shutdown(cancel_futures=True)
        self._scorers, self._assignment = [], None

    def _scorer(self, assignment: Assignment, shard: int) -> LayerScorer:
        place, part = self._places[shard], assignment.parts[shard]
        model, layer, metric = assignment.model, assignment.layer, assignment.metric
        sharing = sum(other.device == place.device for other in self._places)
        return LayerScorer(model, layer, part, metric, place, sharing=sharing)


@contextmanager
def open_workers(config: Config, hardware: Hardware, num_rows: int) -> Iterator[Workers | None]:
    """Open the workers that `reward.shards` and `reward.spread` ask for; None for one shard.

    `num_rows` is the size of the smallest reward set.
    """
    num_shards = config.reward.shards
    if num_shards == 1:
        yield None
        return
    if num_processes() > 1:
        raise ConfigError(
            f"reward.shards must be 1 in a group of {num_processes()} processes, found "
            f"{num_shards}; start one process, it drives all shards"
        )
    _check_shards(num_shards, num_rows)
    workers: Workers
    if config.reward.spread == "ray":
        from auber.scoring.ray_shards import RayWorkers

        workers = RayWorkers(hardware, num_shards)
    else:
        workers = DeviceWorkers(hardware, _devices(hardware.device, num_shards))
    try:
        yield workers
    finally:
        workers.close()


def _check_shards(num_shards: int, num_rows: int) -> None:
    if num_shards > num_rows:
        raise ConfigError(
            f"reward.shards must be at most the number of reward rows ({num_rows}), found "
            f"{num_shards}; lower it"
        )


def deal_rows(lengths: Sequence[int], num_shards: int) -> list[list[int]]:
    """Return the row indices of each shard, with about equal numbers of tokens.

    The longest remaining row goes to the shard with the fewest tokens.
    """
    _check_shards(num_shards, len(lengths))
    parts: list[list[int]] = [[] for _ in range(num_shards)]
    tokens = [0] * num_shards
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        shard = tokens.index(min(tokens))
        parts[shard].append(row)
        tokens[shard] += lengths[row]
    return parts


def _devices(home: torch.device, num_shards: int) -> list[torch.device]:
    """Return a device for each shard, the run's own first. A CPU runs any number of threads."""
    if home.type == "cpu":
        return [home] * num_shards
    here = torch.cuda.device_count() if home.type == "cuda" else 1
    if num_shards > here:
        raise ConfigError(
            f"reward.shards must be at most the number of {home.type} devices here ({here}), found "
            f"{num_shards}; lower it, or set reward.spread=ray to use those of a cluster"
        )
    others = [torch.device(home.type, index) for index in range(here) if index != (home.index or 0)]
    return [home, *others][:num_shards]


def _statistics(scorer: LayerScorer, masks: Sequence[PruningPlan]) -> torch.Tensor:
    """Compute in a thread whose current device is the shard's, as kernels and streams require."""
    device = scorer.device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return scorer.statistics(masks).cpu()
