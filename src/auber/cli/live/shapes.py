"""What stands in the files of a run, as far as it is shown: files of another shape are refused, lines passed over.

A file that another process is writing is never seen half written, for it is renamed into its place. So one that can be read and
is of another shape was damaged, and is an error that names it. A line of events or scores is one of many: one that is of no use
is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from auber.cli.live.files import read_object
from auber.errors import RunError
from auber.export.charts import MOST_HEADS
from auber.run.fields import is_number
from auber.system.locks import is_moment

Check = Callable[[Any], bool]
Shape = Mapping[str, Check]  # by dotted key

_LARGEST_COUNT = 2**53


def is_count(found: Any) -> bool:
    """A whole number from 0."""
    return type(found) is int and 0 <= found < _LARGEST_COUNT


def is_share(found: Any) -> bool:
    """A share of a whole."""
    return is_number(found) and 0 <= found <= 1


def is_text(found: Any) -> bool:
    """Text that can be shown on a terminal as it is."""
    return isinstance(found, str) and found.isprintable()


def is_words(found: Any) -> bool:
    """Any text."""
    return isinstance(found, str)


def is_object(found: Any) -> bool:
    """A JSON object."""
    return isinstance(found, dict)


def is_heads(found: Any) -> bool:
    """Heads of a layer."""
    return isinstance(found, list) and len(found) <= MOST_HEADS and all(map(is_count, found))


def is_plan(found: Any) -> bool:
    """Heads by layer."""
    return isinstance(found, dict) and all(map(is_heads, found.values()))


def is_sizes(found: Any) -> bool:
    """The best mask of every size, and its score."""
    return isinstance(found, list) and all(
        isinstance(each, dict) and is_heads(each.get("removed")) and is_number(each.get("score"))
        for each in found
    )


def is_names(found: Any) -> bool:
    """Names of stages, which stand in the order of the stages."""
    return isinstance(found, list) and len(found) <= MOST_HEADS and all(map(is_text, found))


def is_numbers(found: Any) -> bool:
    """Numbers by name."""
    return isinstance(found, dict) and all(map(is_number, found.values()))


def either(*checks: Check) -> Check:
    """One of several."""
    return lambda found: any(check(found) for check in checks)


def optional(check: Check) -> Check:
    """It may be missing, or null."""
    return lambda found: found is None or check(found)


IDENTITY: Shape = dict.fromkeys(("kind", "model", "task", "method", "metric"), optional(is_words))
CONFIG: Shape = {"seed": optional(is_count), "protocol": optional(is_words)}
PROGRESS: Shape = {
    "time": is_moment,
    "process.id": is_count,
    "process.host": optional(is_text),
    "process.started": optional(is_moment),
    "process.after_boot": optional(is_moment),
    "process.command": optional(is_text),
    "process.folder": optional(is_text),
    "share": optional(is_share),
    "stage": optional(is_object),
}
PRESENT_STAGE: Shape = {
    "name": is_text,
    "began": is_moment,
    "done": is_count,
    "total": is_count,
    "note": is_text,
}
FINISHED_STAGE: Shape = {
    "seconds": optional(is_number),
    "removed": optional(either(is_heads, is_plan)),
    "search": optional(is_object),
    "sizes": optional(is_sizes),
    "plan": optional(is_plan),
}
SEARCH: Shape = {  # of a stage; methods tell more or less
    "given": optional(is_heads),
    "given_score": optional(is_number),
    "unpruned_score": optional(is_number),
    "best": optional(is_heads),
    "best_score": optional(is_number),
    "rollout": optional(is_heads),
    "rollout_score": optional(is_number),
    "updates": optional(is_count),
}
RESULT: Shape = {
    "dev.score": is_number,
    "train.score": is_number,
    "gap": is_number,
    "heads.removed": is_count,
    "heads.total": is_count,
    "cost.rewards_asked": is_count,
    "cost.rewards_computed": is_count,
    "cost.seconds.total": is_number,
    "plan": optional(is_plan),
}
_EVENTS: Mapping[str, Shape] = {
    "numbers": {"step": is_count, "values": is_numbers},
    "started": {"process": optional(is_count)},
    "resumed": {"process": optional(is_count)},
    "planned": {"stages": is_names, "layers": is_count, "heads_per_layer": is_count},
    "stage": {
        "stage": is_text,
        "seconds": optional(is_number),
        "removed": optional(either(is_heads, is_plan)),
    },
    "dev_evaluation": {"score": is_number, "rows": is_count},
    "stopped": {"error": is_words},
    "said": {"text": is_words},
}


def read_shaped(path: Path, shape: Shape) -> dict[str, Any] | None:
    """The JSON object in a file; None while it is not there or not whole. `RunError` where it has another shape."""
    data = read_object(path)
    if data is not None:
        require_shape(path, data, shape)
    return data


def require_shape(path: Path, data: Mapping[str, Any], shape: Shape, prefix: str = "") -> None:
    """Raise `RunError` unless what a file holds, at `prefix`, has a shape."""
    bad = find_misfit(data, shape)
    if bad is not None:
        raise RunError(
            f"{path}: '{prefix}{bad}' must be what a run writes there, found something else; the file is damaged, put a copy of it "
            "back or make the run again"
        )


def find_misfit(data: Mapping[str, Any], shape: Shape) -> str | None:
    """The first key at which data differ from a shape; None where they do not."""
    for key, check in shape.items():
        value: Any = data
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if not check(value):
            return key
    return None


def is_event(entry: Mapping[str, Any]) -> bool:
    """Whether a line of the events can be told; kinds that are not known are told by their time alone."""
    kind = entry.get("event")
    if not isinstance(kind, str) or not is_moment(entry.get("time")):
        return False
    if find_misfit(entry, _EVENTS.get(kind, {})) is not None:
        return False
    return kind != "planned" or entry["layers"] * entry["heads_per_layer"] <= MOST_HEADS


def is_score(entry: Mapping[str, Any]) -> bool:
    """Whether a line of the ledger can be told."""
    return (
        is_count(entry.get("layer"))
        and is_words(entry.get("key"))
        and is_number(entry.get("score"))
    )
