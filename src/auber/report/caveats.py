"""Caveats of rows: constant answers, missing runs, unequal conditions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from auber.config import Config
from auber.data.user_rows import OWN
from auber.report.cells import CONTROL, CONTROLS, MATCHED, SUBJECT, Cell, Cells
from auber.report.records import RunRecord
from auber.report.words import count

# Settings that may differ between runs of one method: they name the run or the hardware.
_FREE_SETTINGS = {"seed", "random.draw", "device", "precision", "threads"}
# Settings that all methods of a task must share. Runs of a finished start differ in first.when.
_SHARED_SETTINGS = ("first.", "layer.", "last.", "reward.", "max_length")

# Protocols under which the controls start from other weights than the searches.
OTHER_START = {
    "heldout": "Under heldout the controls' first tuning also used the reward rows, so a "
    "difference to them measures pruning and holding rows back together."
}


def find_collapse(cell: Cell) -> Iterable[str]:
    """Yield how many runs score like a constant answer."""
    runs = cell.all_runs
    one_class = sum(run.one_class for run in runs)
    if one_class:
        yield f"one class predicted in {one_class} of {count(len(runs), 'run')}"
    equal = sum(run.equals_majority and not run.one_class for run in runs)
    if equal:
        yield f"equals the majority class in {equal} of {count(len(runs), 'run')}"


def find_flags(cell: Cell, subject: Cell | None, seeds: set[int]) -> Iterable[str]:
    """Yield poor scores, missing runs, and differences from the subject's runs."""
    shares = [
        run.majority
        for run in cell.all_runs
        if run.majority is not None and run.metric == "accuracy"
    ]
    if shares and cell.mean(lambda run: run.above_constant) < 0:
        yield f"below the majority class ({100 * fmean(shares):.2f})"
    missing = sorted(seeds - set(cell.runs))
    if missing:
        yield f"no run of seed {', '.join(map(str, missing))}"
    draws = {len(of_seed) for of_seed in cell.runs.values()}
    if len(draws) > 1:
        yield f"{min(draws)} to {max(draws)} draws a seed"
    if subject is None:
        return
    pairs = [(run, subject.runs[run.seed][0]) for run in cell.all_runs if run.seed in subject.runs]
    if cell.method in MATCHED and any(run.removed != other.removed for run, other in pairs):
        yield f"P is not {SUBJECT}'s"
    if cell.method in (*MATCHED, CONTROL) and any(
        run.tuned_layers != other.tuned_layers for run, other in pairs
    ):
        yield f"tuned after other layers than {SUBJECT}"


def find_notes(cells: Cells, protocol: str) -> Iterable[str]:
    """Yield what holds for several rows: shared dev sets and unequal conditions."""
    shared: list[str] = []
    own_rows: list[str] = []
    for task, of_task in cells.items():
        runs = [run for cell in of_task.values() for run in cell.all_runs]
        if len({run.seed for run in runs}) > 1:
            (shared if len({run.data for run in runs}) == 1 else own_rows).append(task)
    if shared:
        yield (
            f"The seeds of {', '.join(shared)} share one dev set: an interval is about "
            "other seeds, "
            "not about other rows."
        )
    if own_rows:
        names = " If they are several data sets, give each a --name." if OWN in own_rows else ""
        yield f"The rows of {', '.join(own_rows)} differ from seed to seed.{names}"
    present = {method for of_task in cells.values() for method in of_task}
    if protocol in OTHER_START and not present.isdisjoint(CONTROLS):
        yield OTHER_START[protocol]
    for task, of_task in cells.items():
        yield from _several_starts(task, of_task, protocol)
        for method, cell in of_task.items():
            draws = max(map(len, cell.runs.values()))
            if draws > 1:
                yield f"{task}, {method}: the score of a seed is the mean of up to {draws} draws."
            yield from _differing_settings(
                f"the runs of {task}, {method}",
                cell.all_runs,
                lambda key: key not in _FREE_SETTINGS,
            )
        yield from _differing_settings(
            f"the methods of {task}",
            [cell.all_runs[0] for cell in of_task.values()],
            lambda key: key.startswith(_SHARED_SETTINGS) and key != "first.when",
        )


def _several_starts(task: str, of_task: Mapping[str, Cell], protocol: str) -> Iterable[str]:
    starts: dict[int, set[str]] = defaultdict(set)
    for cell in of_task.values():
        if protocol not in OTHER_START or cell.method not in CONTROLS:
            for run in cell.all_runs:
                starts[run.seed].add(run.start)
    seeds = [str(seed) for seed, found in sorted(starts.items()) if len(found) > 1]
    if seeds:
        yield (
            f"Careful: the methods of {task}, seed {', '.join(seeds)}, did not start from the same "
            "fine-tuned weights."
        )


def _differing_settings(
    which: str, runs: Sequence[RunRecord], counts: Callable[[str], bool]
) -> Iterable[str]:
    defaults = Config().flat()  # a setting newer than a run had its default there

    def value(run: RunRecord, key: str) -> str:
        return repr(run.config.get(key, defaults.get(key)))

    keys = {key for run in runs for key in run.config if counts(key)}
    differing = sorted(key for key in keys if len({value(run, key) for run in runs}) > 1)
    if differing:
        yield f"Careful: {which} differ in {', '.join(differing)}."
