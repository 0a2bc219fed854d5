"""The page's first lines: what all results together say to someone who asks whether to prune, in sentences and a table, by rules.

The rules are those of `answer`, over all models and protocols at once, on tasks that the control has learned: on others a score
moves by chance, and by more than all real differences. Sizes and speeds come from the kept measurements. What is not measured is
not spoken of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from auber.export.speed import RunSpeed
from auber.metrics.statistics import FEWEST_PAIRS
from auber.report.analysis import PooledRow, Section, analyse
from auber.report.answer import control_row, direction, gap_row
from auber.report.caveats import OTHER_START
from auber.report.collect import pool
from auber.report.markdown import escape, render_row
from auber.report.results_file import KIND, ResultsFile, runs_of
from auber.report.roles import CONTROL, METHODS, SUBJECT, is_ablation
from auber.report.speeds import KIND as SPEED
from auber.report.speeds import read_speed
from auber.report.words import count
from auber.training.timing import Ratio

_HEADING = "## Should I prune heads to regularise my model, and what will I get?\n"
_FIRST = "default"  # the preset that a reader who sets nothing has


def render_in_short(files: Sequence[ResultsFile]) -> str:
    """The answer in a few lines, from files of which one at least holds runs."""
    report = analyse(pool([runs_of(file) for file in files if file.kind == KIND]))
    speeds = [run for file in files if file.kind == SPEED for run in read_speed(file).runs]
    sections = [section for section in report.sections if _judged(section) is not None]
    sections.sort(key=lambda section: _FIRST not in section.presets)
    lines = [
        _HEADING,
        *_from_runs(sections),
        *_from_speeds(speeds),
        *(_table(sections) if sections else ()),
    ]
    return "\n".join(lines) + "\n"


def _from_runs(sections: Sequence[Section]) -> Iterable[str]:
    if not sections:
        yield f"**No answer yet**: no {FEWEST_PAIRS} pairs of {SUBJECT} and {CONTROL}, of one model under one protocol, are there.\n"
        return
    better, worse = (
        [section for section in sections if _direction(section) == sign] for sign in (1, -1)
    )
    yield f"**{_headline(len(better), len(worse), len(sections))}**\n"
    yield (
        f"- Asked in {count(len(sections), 'setting')}, each a model under a protocol{_presets(sections)}, beside the same model with the same "
        f"tuning and all its heads: a better dev score is shown in {_named(better)}, a worse one in {_named(worse)}.{_incomplete(sections)}"
    )
    yield from (
        f"- {OTHER_START[protocol]}" for protocol in _protocols(sections) if protocol in OTHER_START
    )
    yield from _gaps(sections)
    yield from _prices(sections)


def _protocols(sections: Sequence[Section]) -> list[str]:
    return sorted({section.protocol for section in sections})


def _presets(sections: Sequence[Section]) -> str:
    """Whose settings the runs have, as far as studies say."""
    found = sorted({preset for section in sections for preset in section.presets})
    return (
        f" with the settings of preset {' or '.join(found)} and what its study changes of them"
        if found
        else ""
    )


def _judged(section: Section) -> PooledRow | None:
    """The comparison with the control on the tasks it has learned, where it can show anything."""
    row = control_row(_rows(section))
    return row if row is not None and row.comparison.paired.differences.n >= FEWEST_PAIRS else None


def _rows(section: Section) -> Sequence[PooledRow]:
    """The comparisons that count: on tasks that the control has learned, if there are some."""
    return [row for row in section.learned or section.pooled if not is_ablation(row.reference)]


def _direction(section: Section) -> int:
    row = _judged(section)
    return 0 if row is None else direction(row.comparison)


def _headline(better: int, worse: int, settings: int) -> str:
    if better == settings:
        return f"Yes: a better dev score of {SUBJECT} is shown wherever it was asked."
    if better:
        return f"It depends: a better dev score of {SUBJECT} is shown in some settings and not in others."
    if worse:
        return f"No: a better dev score of {SUBJECT} is shown nowhere, a worse one in some settings. What you get is a smaller model."
    return f"Not for a better dev score of {SUBJECT}, which is shown nowhere. What you get is a smaller model."


def _incomplete(sections: Sequence[Section]) -> str:
    missing = [
        section for section in sections if section.coverage is not None and section.coverage.missing
    ]
    return (
        f" Runs are still missing in {len(missing)} of them, so this is not the last word."
        if missing
        else ""
    )


def _table(sections: Sequence[Section]) -> Iterable[str]:
    """What goes, and what it does to the score beside each other method, setting by setting."""
    found = [{row.reference: row for row in _rows(section)} for section in sections]
    others = sorted({name for rows in found for name in rows if name != CONTROL}, key=_place)
    only = f", only on tasks where {CONTROL} beats always giving the most frequent answer" * any(
        section.learned for section in sections
    )
    yield f"\nDev score of {SUBJECT} against the other methods{only}: mean difference in points with its 95 % interval, in bold where one is shown.\n"
    yield render_row(["", *map(_name, sections)])
    yield render_row(["---"] + ["--:"] * len(sections))
    controls = [rows[CONTROL] for rows in found]
    if any(section.presets for section in sections):
        yield render_row(["preset", *(" or ".join(section.presets) for section in sections)])
    yield render_row(["tasks", *map(_tasks, sections, controls)])
    yield render_row(
        ["(task, seed) pairs", *(str(row.comparison.paired.differences.n) for row in controls)]
    )
    yield render_row(
        [
            "heads removed",
            *(
                _removed(section, row.tasks)
                for section, row in zip(sections, controls, strict=True)
            ),
        ]
    )
    for name in (CONTROL, *others):
        cells = [_cell(rows[name], rows[CONTROL]) if name in rows else "" for rows in found]
        yield render_row([f"against {escape(name)}", *cells])


def _place(method: str) -> tuple[int, str]:
    """As in the other tables: the paper's methods first, in its order."""
    return METHODS.index(method) if method in METHODS else len(METHODS), method


def _tasks(section: Section, row: PooledRow) -> str:
    names = ", ".join(map(escape, row.tasks))
    return names if section.learned_tasks else f"{names} (none is learned)"


def _cell(row: PooledRow, control: PooledRow) -> str:
    """The difference, and what it is of where that is not what the control's is of."""
    words, pairs = _interval(row), row.comparison.paired.differences.n
    if row.tasks != control.tasks:
        return f"{words}, {count(pairs, 'pair')} of {', '.join(map(escape, row.tasks))}"
    return (
        words
        if pairs == control.comparison.paired.differences.n
        else f"{words}, {count(pairs, 'pair')}"
    )


def _removed(section: Section, tasks: Sequence[str]) -> str:
    """How much of the heads goes, in the mean of these tasks."""
    rows = [row for row in section.methods if row.method == SUBJECT and row.task in tasks]
    share = fmean(row.removed.mean / row.heads for row in rows)
    return f"{100 * share:.0f} % of {fmean(row.heads for row in rows):.0f}"


def _interval(row: PooledRow) -> str:
    found = row.comparison.paired.differences
    words = f"{found.mean:+.1f}"
    if found.low is not None and found.high is not None:
        words += f" ({found.low:+.1f} to {found.high:+.1f})"
    return f"**{words}**" if row.comparison.significant else words


def _gaps(sections: Sequence[Section]) -> Iterable[str]:
    rows = [row for section in sections if (row := gap_row(section)) is not None]
    smaller = [row for row in rows if direction(row.comparison) < 0]
    if rows:
        why = (
            ", by fitting the training rows less"
            if smaller and all(row.train < 0 for row in smaller)
            else ""
        )
        yield f"- The distance between train and dev is shown to be smaller in {len(smaller)} of {len(rows)}{why}."


def _prices(sections: Sequence[Section]) -> Iterable[str]:
    factors = []
    for section in sections:
        seconds = [
            [row.cost.own_seconds for row in section.methods if row.method == name]
            for name in (SUBJECT, CONTROL)
        ]
        if all(map(len, seconds)) and fmean(seconds[1]) > 0:
            factors.append(fmean(seconds[0]) / fmean(seconds[1]))
    if factors:
        yield f"- A run takes {_span(factors, '.1f')} times as long as {CONTROL}, beside the first tuning that both need."


def _from_speeds(runs: Sequence[RunSpeed]) -> Iterable[str]:
    if not runs:
        return
    shares = [100 * (1 - run.parameters.pruned / run.parameters.unpruned) for run in runs]
    by_device: dict[str, list[Ratio]] = {}
    for pair in (pair for run in runs for pair in run.pairs):
        by_device.setdefault(f"{pair.runtime} on {pair.device}", []).append(pair.ratio)
    words = "; ".join(f"{way}, {_of_measurements(ratios)}" for way, ratios in by_device.items())
    batches = " and ".join(map(str, sorted({pair.batch for run in runs for pair in run.pairs})))
    yield (
        f"- The plans that were measured take {_span(shares, '.0f')} % of the parameters away. How many times as fast the model "
        f"is, at batches of {batches}: {words}."
    )


def _of_measurements(ratios: Sequence[Ratio]) -> str:
    """How many measurements show what."""
    faster = [ratio.median for ratio in ratios if ratio.low > 1]
    slower = [ratio.median for ratio in ratios if ratio.high < 1]
    level = len(ratios) - len(faster) - len(slower)
    parts = [
        *([f"{_span(faster, '.2f')} in {len(faster)}"] if faster else []),
        *([f"no faster in {level}"] if level else []),
        *([f"slower ({_span(slower, '.2f')}) in {len(slower)}"] if slower else []),
    ]
    return f"{', '.join(parts)} of {len(ratios)}"


def _named(sections: Sequence[Section]) -> str:
    return f"{len(sections)} ({'; '.join(map(_name, sections))})" if sections else "none"


def _name(section: Section) -> str:
    return f"{escape(section.model)}, {escape(section.protocol)}"


def _span(numbers: Sequence[float], form: str) -> str:
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"
