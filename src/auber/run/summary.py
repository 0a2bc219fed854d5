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
    """Return the size, score and time of the model in one sentence; None if not measured.

    The unpruned model agrees with itself, so without labels its score is left out.
    """
    before, after = result.get("before"), result.get("after")
    if before is None or after is None:
        return None
    was_pruned, is_smaller = before["multiply_adds"] < 1, after["parameters"] < before["parameters"]
    reference = "unpruned" if is_smaller and not was_pruned else "before"

    def change(key: str, write: Callable[[float], str], noun: str = "") -> str:
        return f"{write(after[key])}{noun} ({reference}: {write(before[key])})"

    score = _percent(after["score"])
    if not result.get("answered", False):
        score = change("score", _percent)
    words = f"dev {measure_of(result)} is {score} on {after['rows']} rows"
    if not is_smaller:
        return f"Nothing is removed; {words}"
    share = _whole_percent(after["multiply_adds"])
    if was_pruned:
        share += f" ({reference}: {_whole_percent(before['multiply_adds'])})"
    parameters = change("parameters", write_parameters, " parameters")
    time, device = change("milliseconds", _milliseconds), result["provenance"]["device"]
    return (
        f"With {share} of the multiply-adds and {parameters}, {words}, and a row of "
        f"{after['tokens']} tokens takes {time} on {'this CPU' if device == 'cpu' else device}"
    )


def describe_sizes(result: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each of several sizes, and one that says which was chosen and why."""
    sizes, measure = result.get("sizes") or [], measure_of(result)
    for size in sizes:
        after, held_out = size["after"], size.get("held_out")
        parameters, time = (
            write_parameters(after["parameters"]),
            _milliseconds(after["milliseconds"]),
        )
        loss = ""
        if held_out is not None and size["keep"] < 1:
            loss = f"; loses {held_out['loss']:.1f} points, at most {held_out['bound']:.1f} (95 %)"
            loss += f", on {held_out['rows']} held-out rows"
        yield (
            f"models/{size['name']}: dev {measure} {_percent(after['score'])}, multiply-adds "
            f"{_whole_percent(after['multiply_adds'])}, parameters {parameters}, {time} per row"
            f"{loss}"
        )
    if sizes and (choice := describe_choice(result, result["chosen"])) is not None:
        yield choice


def describe_choice(result: dict[str, Any], chosen: str) -> str | None:
    """Return why a size was chosen within a tolerance; None without a tolerance."""
    tolerance = result["config"].get("size.tolerance")
    if tolerance is None:
        return None
    points = f"at most {tolerance:g} point{'s' if tolerance != 1 else ''} (95 %)"
    if chosen == "1":
        return f"chosen: the unpruned model, because no size was shown to lose {points}"
    if chosen == f"{result['sizes'][-1]['keep']:g}":
        return f"chosen: {chosen}, the smallest size tried, which loses {points}"
    return f"chosen: {chosen}, because the next size was not shown to lose {points}"


def _percent(score: float) -> str:
    return f"{100 * score:.1f}"


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def write_parameters(count: float) -> str:
    """Format a number of parameters."""
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,.0f}"


def _milliseconds(milliseconds: float) -> str:
    decimals = 0 if milliseconds >= 10 else 1 if milliseconds >= 1 else 2
    return f"{milliseconds:.{decimals}f} ms"
