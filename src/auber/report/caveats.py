"""What a reader must know before believing a row: constant answers, missing runs, other conditions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from auber.config import Config
from auber.data.user_rows import OWN
from auber.report.cells import Cell, Cells
from auber.report.record import RunRecord
from auber.report.roles import CONTROL, CONTROLS, MATCHED, SUBJECT
from auber.report.words import count

_DEFAULTS = Config().flat()

# Settings that may differ between the runs of one method: they choose the run, or where it was computed.
_FREE_SETTINGS = {"seed", "random.draw", "device", "precision", "threads"}
# Settings that all methods of a task must share for their scores to be comparable; a run that begins with a finished start
# says so in first.when and in nothing else.
_SHARED_SETTINGS = ("first.", "layer.", "last.", "reward.", "max_length")

# Protocols under which the controls begin with other weights than the searches, and what that makes of a difference to them.
OTHER_START = {
    "heldout": "Under heldout the controls' first tuning also had the rows that pay the rewards, so a difference to them is the "
    "price of pruning and of holding rows back, together."
}


def find_collapse(cell: Cell) -> Iterable[str]:
    """In how many runs the score is that of a constant answer."""
    runs = cell.every
    one_class = sum(run.one_class for run in runs)
    if one_class:
        yield f"one class predicted in {one_class} of {count(len(runs), 'run')}"
    equal = sum(run.equals_majority and not run.one_class for run in runs)
    if equal:
        yield f"equals the majority class in {equal} of {count(len(runs), 'run')}"


def find_flags(cell: Cell, subject: Cell | None, seeds: set[int]) -> Iterable[str]:
    """Which runs are missing or had other conditions, and what the score is worth."""
    majority = [
        run.majority for run in cell.every if run.majority is not None and run.metric == "accuracy"
    ]
    if majority and cell.mean(lambda run: run.above_constant) < 0:
        yield f"below the majority class ({100 * fmean(majority):.2f})"
    missing = sorted(seeds - set(cell.runs))
    if missing:
        yield f"no run of seed {', '.join(map(str, missing))}"
    draws = {len(of_seed) for of_seed in cell.runs.values()}
    if len(draws) > 1:
        yield f"{min(draws)} to {max(draws)} draws a seed"
    if subject is not None:
        yield from _mismatches(cell, subject)


def _mismatches(cell: Cell, subject: Cell) -> Iterable[str]:
    """Where a method that is matched with the subject's run of the same seed had other heads or other tunings."""
    pairs = [(run, subject.runs[run.seed][0]) for run in cell.every if run.seed in subject.runs]
    if cell.method in MATCHED and any(run.removed != other.removed for run, other in pairs):
        yield f"P is not {SUBJECT}'s"
    if cell.method in (*MATCHED, CONTROL) and any(
        run.tuned_layers != other.tuned_layers for run, other in pairs
    ):
        yield f"tuned after other layers than {SUBJECT}"


def find_notes(cells: Cells, protocol: str) -> Iterable[str]:
    """What holds for all rows of a section: whose rows the seeds share, and where conditions differ."""
    shared: list[str] = []
    own_rows: list[str] = []
    for task, of_task in cells.items():
        runs = [run for cell in of_task.values() for run in cell.every]
        if len({run.seed for run in runs}) > 1:
            (shared if len({run.data for run in runs}) == 1 else own_rows).append(task)
    if shared:
        yield (
            f"The seeds of {', '.join(shared)} share one dev set: an interval speaks of other seeds, not of other rows."
        )
    if own_rows:
        names = " If they are several data sets, give each a --name." if OWN in own_rows else ""
        yield f"The rows of {', '.join(own_rows)} differ from seed to seed.{names}"
    if protocol in OTHER_START and any(
        name in of_task for of_task in cells.values() for name in CONTROLS
    ):
        yield OTHER_START[protocol]
    for task, of_task in cells.items():
        yield from _several_starts(task, of_task, protocol)
        for method, cell in of_task.items():
            draws = max(map(len, cell.runs.values()))
            if draws > 1:
                yield f"{task}, {method}: a seed's score is the mean of its draws, up to {draws}."
            yield from _differing_settings(
                f"{task}, {method}: its runs", cell.every, lambda key: key not in _FREE_SETTINGS
            )
        one_each = [cell.every[0] for cell in of_task.values()]
        yield from _differing_settings(
            f"{task}: its methods",
            one_each,
            lambda key: key.startswith(_SHARED_SETTINGS) and key != "first.when",
        )


def _several_starts(task: str, of_task: Mapping[str, Cell], protocol: str) -> Iterable[str]:
    """Where runs of one seed did not begin with the same fine-tuned weights, their difference is not the method's alone."""
    counted = [
        cell
        for cell in of_task.values()
        if protocol not in OTHER_START or cell.method not in CONTROLS
    ]
    starts: dict[int, set[str]] = defaultdict(set)
    for cell in counted:
        for run in cell.every:
            starts[run.seed].add(run.start)
    seeds = [str(seed) for seed, found in sorted(starts.items()) if len(found) > 1]
    if seeds:
        yield f"Careful: {task}, seed {', '.join(seeds)}: its methods did not begin with the same fine-tuned weights."


def _differing_settings(
    which: str, runs: Sequence[RunRecord], counts: Callable[[str], bool]
) -> Iterable[str]:
    keys = {key for run in runs for key in run.config if counts(key)}
    differing = sorted(key for key in keys if len({repr(_value(run, key)) for run in runs}) > 1)
    if differing:
        yield f"Careful: {which} differ in {', '.join(differing)}."


def _value(run: RunRecord, key: str) -> object:
    """A setting of a run; of one that is newer than the run its default, which does what was done before there was a choice."""
    return run.config.get(key, _DEFAULTS.get(key))
