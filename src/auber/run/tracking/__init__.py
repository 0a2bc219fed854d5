"""Everyone who hears of a run while it goes on: the caller's listener, the run's folder, and experiment trackers.

All hear the same calls of `Progress`; none has a say in what is computed.
"""

from auber.run.tracking.trackers import TRACKERS, check_trackers

__all__ = ["TRACKERS", "check_trackers"]
