"""Caveats of rows: constant answers, missing runs, unequal conditions.

They read data frames of `auber.report.analysis` with a row for each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from auber.config import Config
from auber.data.user_rows import OWN
from auber.report.records import CONTROL, CONTROLS, MATCHED, SUBJECT, count

# Settings that may differ between runs of one method: they name the run or the hardware.
_FREE_SETTINGS = {"seed", "random.draw", "device", "precision", "threads"}
# Settings that all methods of a task must share. Runs of a finished start differ in first.when.
_SHARED_SETTINGS = ("first.", "layer.", "last.", "reward.", "max_length")

# Protocols under which the controls start from other weights than the searches.
OTHER_START = {
    "heldout": "Under heldout the controls' first tuning also used the reward rows, so a "
    "difference to them measures pruning and holding rows back together."
}


def find_collapse(runs: pd.DataFrame) -> Iterable[str]:
    """Yield how many runs of a method score like a constant answer."""
    one_class, equal = runs["one_class"], runs["equals_majority"]
    if one_class.any():
        yield f"one class predicted in {one_class.sum()} of {count(len(runs), 'run')}"
    if (equal & ~one_class).any():
        number = (equal & ~one_class).sum()
        yield f"equals the majority class in {number} of {count(len(runs), 'run')}"


def find_flags(runs: pd.DataFrame, subject: pd.DataFrame, seeds: set[int]) -> Iterable[str]:
    """Yield poor scores, missing runs, and differences from the subject's runs."""
    method = runs["method"].iloc[0]
    shares = runs.loc[runs["metric"] == "accuracy", "majority"].dropna()
    if len(shares) and runs.groupby("seed")["above_constant"].mean().mean() < 0:
        yield f"below the majority class ({100 * shares.mean():.2f})"
    missing = sorted(seeds - set(runs["seed"]))
    if missing:
        yield f"no run of seed {', '.join(map(str, missing))}"
    draws = runs["seed"].value_counts()
    if draws.nunique() > 1:
        yield f"{draws.min()} to {draws.max()} draws a seed"
    pairs = runs.merge(subject.drop_duplicates("seed"), on="seed", suffixes=("", "_subject"))
    name = subject["method"].iloc[0] if len(subject) else SUBJECT
    if method in MATCHED and (pairs["removed"] != pairs["removed_subject"]).any():
        yield f"P is not {name}'s"
    tuned = pairs["tuned_layers"] != pairs["tuned_layers_subject"]
    if method in (*MATCHED, CONTROL) and tuned.any():
        yield f"tuned after other layers than {name}"


def find_notes(runs: pd.DataFrame, protocol: str) -> Iterable[str]:
    """Yield what holds for several rows: shared dev sets and unequal conditions."""
    sets = runs.groupby("task")[["seed", "data"]].nunique().query("seed > 1")["data"]
    shared, own_rows = sets.index[sets == 1], sets.index[sets > 1]
    if len(shared):
        yield (
            f"The seeds of {', '.join(shared)} share one dev set: an interval is about other "
            "seeds, not about other rows."
        )
    if len(own_rows):
        names = " If they are several data sets, give each a --name." if OWN in own_rows else ""
        yield f"The rows of {', '.join(own_rows)} differ from seed to seed.{names}"
    if protocol in OTHER_START and runs["method"].isin(CONTROLS).any():
        yield OTHER_START[protocol]
    for task, of_task in runs.groupby("task"):
        searches = ~of_task["method"].isin(CONTROLS if protocol in OTHER_START else ())
        starts = of_task[searches].groupby("seed")["start"].nunique()
        if (starts > 1).any():
            yield (
                f"Careful: the methods of {task}, seed "
                f"{', '.join(map(str, starts.index[starts > 1]))}, did not start from the same "
                "fine-tuned weights."
            )
        for method, own in of_task.groupby("method"):
            draws = own["seed"].value_counts().max()
            if draws > 1:
                yield f"{task}, {method}: the score of a seed is the mean of up to {draws} draws."
            yield from _differing_settings(
                f"the runs of {task}, {method}", own, lambda key: key not in _FREE_SETTINGS
            )
        yield from _differing_settings(
            f"the methods of {task}",
            of_task.drop_duplicates("method"),
            lambda key: key.startswith(_SHARED_SETTINGS) and key != "first.when",
        )


def _differing_settings(
    which: str, runs: pd.DataFrame, counts: Callable[[str], bool]
) -> Iterable[str]:
    defaults = Config().flat()  # a setting newer than a run had its default there
    keys = {key for config in runs["config"] for key in config if counts(key)}
    differing = [
        key
        for key in sorted(keys)
        if len({repr(config.get(key, defaults.get(key))) for config in runs["config"]}) > 1
    ]
    if differing:
        yield f"Careful: {which} differ in {', '.join(differing)}."
