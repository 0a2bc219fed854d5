"""The scorer: which heads of one layer go -> the metric on the reward set, as often a second as the hardware can.

`slabs` packs the rows without padding, `layers` computes on packed tokens, `kernels` holds what a GPU needs beside matrix
products, `memory` decides what may be kept, `scorer` puts them together. `sharded` and `ray_shards`
spread the rows over several devices or Ray workers; `crossed` has each row scored by the model that never saw it; `base` is what
all scorers share; `noise` says how far a difference of scores can be believed.
"""

from auber.scoring.base import MaskScorer
from auber.scoring.crossfit import CrossedScorer, Part
from auber.scoring.noise import check_caution, standard_error
from auber.scoring.scorer import VERSION, LayerScorer
from auber.scoring.sharded import DeviceWorkers, ShardedScorer, Workers, make_scorer, open_workers

__all__ = [
    "VERSION",
    "CrossedScorer",
    "DeviceWorkers",
    "LayerScorer",
    "MaskScorer",
    "Part",
    "ShardedScorer",
    "Workers",
    "check_caution",
    "make_scorer",
    "open_workers",
    "standard_error",
]
