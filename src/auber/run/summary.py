"""Describe a result for people: each size of the model, and what changed from before to after.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def name_measure(metric: str, *, answered: bool) -> str:
    """Return what a score is: the metric or, without labels, the agreement that it measures."""
    if not answered:
        return metric
    return f"{'agreement' if metric == 'accuracy' else metric} with the unpruned model"


def measure_of(result: dict[str, Any]) -> str:
    """Return what the scores of a result are."""
    return name_measure(result["metric"], answered=result.get("answered", False))


def describe_agreement(result: dict[str, Any]) -> str | None:
    """Return all that was measured of the agreement, on dev; None for rows with labels."""
    agreement = result.get("agreement")
    if agreement is None:
        return None
    values = [
        f"{'same answer' if name == 'accuracy' else name} {_percent(value)}"
        for name, value in agreement["metrics"].items()
    ]
    words = f"agreement with the unpruned model: {', '.join(values)}"
    orders = agreement.get("orders")
    if orders is None:
        return words
    return (
        f"{words}; within {orders['groups']} groups: same first row in "
        f"{_percent(orders['same_first'])} %, NDCG@10 {orders['ndcg']:.3f} (a tenth below "
        f"{orders['low_ndcg']:.3f}), rank correlation {orders['spearman']:.3f}"
    )


def describe_change(result: dict[str, Any]) -> str | None:
    """Return score, size and time before and after in one line; None if they were not measured.

    The unpruned model agrees with itself, so without labels its score is left out.
    """
    before, after = result.get("before"), result.get("after")
    if before is None or after is None:
        return None

    def change(key: str, write: Callable[[float], str]) -> str:
        return f"{write(before[key])} -> {write(after[key])}"

    share = _whole_percent(after["multiply_adds"])
    if before["multiply_adds"] < 1:
        share = change("multiply_adds", _whole_percent)
    device, is_answered = result["provenance"]["device"], result.get("answered", False)
    score = _percent(after["score"]) if is_answered else change("score", _percent)
    return (
        f"{measure_of(result)} {score} (dev, {after['rows']} rows), "
        f"multiply-adds {share}, parameters {change('parameters', _millions)}, "
        f"{change('milliseconds', _milliseconds)} per row of {after['tokens']} tokens on "
        f"{'this CPU' if device == 'cpu' else device}"
    )


def describe_sizes(result: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each of several sizes, and one that says which was chosen and why."""
    sizes, measure = result.get("sizes") or [], measure_of(result)
    for size in sizes:
        after, held_out = size["after"], size.get("held_out")
        parameters, time = _millions(after["parameters"]), _milliseconds(after["milliseconds"])
        loss = ""
        if held_out is not None and size["keep"] < 1:
            loss = f"; loses {held_out['loss']:.1f} points, at most {held_out['bound']:.1f} (95 %)"
            loss += f", on {held_out['rows']} held-out rows"
        yield (
            f"models/{size['name']}: {measure} {_percent(after['score'])}, multiply-adds "
            f"{_whole_percent(after['multiply_adds'])}, parameters "
            f"{parameters}, {time} per row{loss}"
        )
    tolerance = result["config"].get("size.tolerance") if sizes else None
    if tolerance is None:
        return
    points = f"at most {tolerance:g} points (95 %)"
    if result["chosen"] == "1":
        yield f"chosen: the unpruned model, because no size was shown to lose {points}"
    elif result["chosen"] == sizes[-1]["name"]:
        yield f"chosen: {result['chosen']}, the smallest size tried, which loses {points}"
    else:
        yield f"chosen: {result['chosen']}, because the next size was not shown to lose {points}"


def _percent(score: float) -> str:
    return f"{100 * score:.1f}"


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _millions(count: float) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"


def _milliseconds(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"
