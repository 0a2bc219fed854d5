"""The scorers: they map masks to the metric on the reward set, as fast as possible.

`packing` packs the rows without padding, `layers` computes on packed tokens, `kernels` has the GPU
kernels, and `scorer` puts them together. `sharded` and `ray_shards` spread the rows over devices or
Ray workers. `crossfit` scores each row with the fold model that was trained without it. `base` is
what all scorers share.
"""

from auber.scoring.base import MaskScorer, check_caution, standard_errors
from auber.scoring.crossfit import CrossFitScorer, Fold
from auber.scoring.scorer import LayerScorer, PlanScorer
from auber.scoring.sharded import DeviceWorkers, ShardedScorer, Workers, open_workers

__all__ = [
    "CrossFitScorer",
    "DeviceWorkers",
    "Fold",
    "LayerScorer",
    "MaskScorer",
    "PlanScorer",
    "ShardedScorer",
    "Workers",
    "check_caution",
    "open_workers",
    "standard_errors",
]
