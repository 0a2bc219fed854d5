"""The dev results that the paper published, shown beside ours.

They are of bert-base-cased. The paper does not state the number of runs, and some numbers (MRPC
83.97, WNLI 43.07) cannot come from a single run.
"""

from __future__ import annotations

MODEL = "bert-base-cased"


_TASKS = ("mrpc", "cola", "rte", "wnli")
_NOT_GIVEN = (None,) * len(_TASKS)
_TABLES: dict[str, tuple[tuple[float, ...], tuple[int | None, ...]]] = {
    "original": ((84.07, 57.01, 63.54, 46.48), _NOT_GIVEN),
    "auber": ((86.03, 61.28, 66.43, 56.34), (20, 53, 87, 86)),
    "random": ((83.97, 57.89, 63.47, 43.07), _NOT_GIVEN),
    "confidence": ((83.33, 55.74, 64.26, 56.34), _NOT_GIVEN),
    "michel": ((83.09, 54.73, 63.18, 54.93), _NOT_GIVEN),
    "voita": ((84.17, 57.24, 63.61, 56.34), _NOT_GIVEN),
    "auber-query": ((83.33, 55.52, 65.34, 56.34), (27, 72, 83, 96)),
    "auber-key": ((84.56, 55.78, 63.18, 56.34), (42, 55, 86, 101)),
    "auber-l2": ((83.33, 54.85, 66.43, 53.52), (33, 63, 61, 94)),
    "auber-reverse": ((86.52, 59.48, 64.62, 54.93), (58, 57, 99, 101)),
}


def published(task: str, method: str) -> tuple[float | None, int | None]:
    """Return the score in points and the number of removed heads that the paper gives, if any."""
    if task not in _TASKS or method not in _TABLES:
        return None, None
    scores, removed = _TABLES[method]
    place = _TASKS.index(task)
    return scores[place], removed[place]
