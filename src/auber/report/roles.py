"""The methods by the part they play in a report: what is judged, what it is judged against, and who stands beside it."""

from __future__ import annotations

CONTROL = "original+tuning"
SUBJECT = "auber"

# The order of the paper's tables; methods that are not named here follow by name.
METHODS = (
    "original",
    CONTROL,
    SUBJECT,
    "random",
    "confidence",
    "michel",
    "voita",
    "greedy",
    "exhaustive",
)
ABLATIONS = ("auber-query", "auber-key", "auber-l2", "auber-reverse")

CONTROLS = ("original", CONTROL)  # they remove nothing

# These are to have the heads and the tunings of the run they are compared with.
MATCHED = ("random", "confidence", "michel", "voita")


def is_ablation(method: str) -> bool:
    """Whether a method is the subject with one thing changed."""
    return method.startswith(f"{SUBJECT}-")
