"""The page of kept results, docs/results.md: the answer first, then the main tables.

It is made from results files alone, the same bytes each time.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

from auber.errors import RunError, unknown_name
from auber.export.speed import RunSpeed
from auber.metrics.statistics import FEWEST_PAIRS
from auber.report.analysis import MethodRow, PooledRow, Section, analyse
from auber.report.answer import control_row, direction, gap_row, own_seconds
from auber.report.caveats import OTHER_START
from auber.report.measurements import (
    REGRET,
    SPEED,
    read_regret,
    read_speed,
    regret_table,
    speed_tables,
)
from auber.report.paper_tables import RULE
from auber.report.records import CONTROL, SUBJECT, count, is_ablation, ordered
from auber.report.results_file import KIND, ResultsFile, read_results_file, runs_of
from auber.report.runs import Source, pool
from auber.report.tables import escape_markdown, to_markdown
from auber.system.files import write_text

_INTRODUCTION = """\
# Results

mpnet-base is sentence-transformers/all-mpnet-base-v2, minilm-l6 is all-MiniLM-L6-v2. This page is
generated from the files below `results/`, which list every run with its scores, plan, settings,
command and commit; `auber report FILE.json... --out DIR` makes all tables from them.
"""
_EMPTY = "No results are kept yet.\n"
_LEGEND = (
    "Dev score in points (100 times the metric), mean ± sample deviation over the seeds; P: mean "
    f"number of removed heads; then the mean difference to {CONTROL} (Table 3: to "
    f"{SUBJECT}) on the same "
    f"seeds, bold if significant. {RULE}"
)


def write_page(page: str | Path, files: Sequence[str | Path]) -> None:
    """Write the page, with copies of the figures that lie beside the files."""
    text = render_page(files)
    try:
        for file in map(read_results_file, files):
            if file.figure is not None:
                figure = file.figure.read_text(encoding="utf-8")
                write_text(Path(page).parent / file.figure.name, figure)
        write_text(Path(page), text, follow=True)
    except OSError as error:
        raise RunError(f"{page}: cannot be written ({error}); choose another place") from error


def render_page(files: Sequence[str | Path]) -> str:
    """Return the page as Markdown."""
    found = sorted(map(read_results_file, files), key=lambda file: file.name)
    for file in found:
        if file.kind not in (KIND, REGRET, SPEED):
            known = unknown_name("kind of results", file.kind, (KIND, REGRET, SPEED))
            raise RunError(f"{file.name}: {known}")
    runs, regrets, speeds = (
        [file for file in found if file.kind == kind] for kind in (KIND, REGRET, SPEED)
    )
    parts = [_INTRODUCTION] if found else [_INTRODUCTION, _EMPTY]
    sources = [runs_of(file) for file in runs]
    if sources:
        parts += _of_runs(sources, [run for file in speeds for run in read_speed(file).runs])
    if regrets:
        parts += ["## What a search misses of a layer's best mask\n", *map(_regret, regrets)]
    if speeds:
        parts += ["## What removing heads buys in speed\n", *map(_speed, speeds)]
    if sources:
        parts.append(_origins(sources))
    return "\n".join(parts)


def _of_runs(sources: Sequence[Source], speeds: Sequence[RunSpeed]) -> list[str]:
    report = analyse(pool(sources))
    judged = [section for section in report.sections if _judged(section) is not None]
    judged.sort(key=lambda section: "default" not in section.presets)
    answer = [*_answer(judged), *_speeds(speeds), *(_matrix(judged) if judged else ())]
    parts = ["## Should I prune heads to regularise my model?\n", "\n".join(answer) + "\n"]
    for section in report.sections:
        label = f" ({section.label})" if section.label else ""
        parts.append(f"## {escape_markdown(_name(section))}{label}\n")
        for title, rows in (
            ("Table 2: methods", section.methods),
            ("Table 3: ablations", section.ablations),
        ):
            parts += ["\n".join([f"### {title}", "", *_by_task(rows)]) + "\n"] if rows else []
        if not section.rows:
            parts.append("No run yet.\n")
        notes = [*section.notes, *(f"Missing: {words}." for words in section.missing)]
        parts += ["\n".join(f"- {escape_markdown(note)}" for note in notes) + "\n"] if notes else []
    return [*parts, f"## How to read the tables\n\n{escape_markdown(_LEGEND)}\n"]


def _by_task(rows: Sequence[MethodRow]) -> Iterable[str]:
    """Yield a table with a row for each method and a column for each task."""
    cells = {(row.method, row.task): row for row in rows}
    tasks = list(dict.fromkeys(row.task for row in rows))
    yield _line("", map(escape_markdown, tasks))
    yield _line("---", ["---"] * len(tasks))
    for method in dict.fromkeys(row.method for row in rows):
        found = (cells.get((method, task)) for task in tasks)
        yield _line(escape_markdown(method), (_score(row) if row else "" for row in found))


def _score(row: MethodRow) -> str:
    words = f"{row.dev.mean:.2f}"
    if row.dev.deviation is not None:
        words += f" ± {row.dev.deviation:.2f}"
    if row.removed.mean:
        words += f", P {row.removed.mean:.0f}"
    if row.comparison is None:
        return words
    change = f"{round(row.comparison.paired.differences.mean, 1) + 0.0:+.1f}"
    return f"{words}, **{change}**" if row.comparison.significant else f"{words}, {change}"


def _line(title: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join([title, *cells])} |"


def _name(section: Section) -> str:
    return f"{section.model}, protocol {section.protocol}"


def _rows(section: Section) -> list[PooledRow]:
    """Return the comparisons on tasks that the control has learned, if there are any."""
    return [row for row in section.learned or section.pooled if not is_ablation(row.reference)]


def _judged(section: Section) -> PooledRow | None:
    row = control_row(_rows(section))
    return row if row is not None and row.comparison.paired.differences.n >= FEWEST_PAIRS else None


def _change(section: Section) -> int:
    row = _judged(section)
    return direction(row.comparison if row else None)


def _answer(sections: Sequence[Section]) -> Iterable[str]:
    if not sections:
        yield f"**No answer yet**: no {FEWEST_PAIRS} pairs of {SUBJECT} and {CONTROL} are there.\n"
        return
    better, worse = ([each for each in sections if _change(each) == sign] for sign in (1, -1))
    if len(better) == len(sections):
        headline = f"Yes: {SUBJECT} has a significantly better dev score in every setting."
    elif better:
        headline = (
            f"It depends: {SUBJECT} has a significantly better dev score in some settings only."
        )
    else:
        headline = f"No: {SUBJECT} has a significantly better dev score in no setting"
        headline += ", a worse one in some." if worse else "."
        headline += " What you get is a smaller model."
    yield f"**{headline}**\n"
    settings = count(len(sections), "setting")
    yield (
        f"- Compared with the same model, the same tuning and all heads, in {settings} of "
        "model and "
        f"protocol: better in {_named(better)}, worse in {_named(worse)}."
    )
    missing = sum(bool(section.missing) for section in sections)
    if missing:
        yield f"- Preliminary: runs are missing in {missing} of them."
    protocols = sorted({section.protocol for section in sections})
    yield from (f"- {OTHER_START[each]}" for each in protocols if each in OTHER_START)
    gaps = [row for section in sections if (row := gap_row(section)) is not None]
    smaller = [row for row in gaps if direction(row.comparison) < 0]
    if gaps:
        why = ""
        if smaller and all(row.train < 0 for row in smaller):
            why = ", because the training rows are fitted less"
        yield (
            f"- The gap between train and dev is significantly smaller in {len(smaller)} of "
            f"{len(gaps)}{why}."
        )
    times = [(own_seconds(each, SUBJECT), own_seconds(each, CONTROL)) for each in sections]
    factors = [own / other for own, other in times if own is not None and other]
    if factors:
        yield (
            f"- A run takes {_span(factors, '.1f')} times as long as {CONTROL}, not "
            "counting the first "
            "tuning that both need."
        )


def _speeds(runs: Sequence[RunSpeed]) -> Iterable[str]:
    if not runs:
        return
    shares = [100 * (1 - run.parameters.pruned / run.parameters.unpruned) for run in runs]
    yield (
        f"- The measured plans remove {_span(shares, '.0f')} % of the parameters. Speed of the "
        "pruned model:"
    )
    timings = [timing for run in runs for timing in run.timings]
    for setup in dict.fromkeys((timing.runtime, timing.device) for timing in timings):
        ratios = [
            each.ratio
            for timing in timings
            for each in timing.variants
            if (timing.runtime, timing.device) == setup and each.name == "pruned"
        ]
        faster = [each.median for each in ratios if each.low > 1]
        slower = [each.median for each in ratios if each.high < 1]
        words = [f"{_span(faster, '.2f')} times as fast in {len(faster)}"] if faster else []
        words += [f"slower ({_span(slower, '.2f')}) in {len(slower)}"] if slower else []
        equal = len(ratios) - len(faster) - len(slower)
        words += [f"not significant in {equal}"] if equal else []
        yield f"    - {setup[0]} on {setup[1]}: {', '.join(words)} of {len(ratios)} measurements."


def _matrix(sections: Sequence[Section]) -> Iterable[str]:
    """Yield a table of the subject against every other method in every setting."""
    found = [{row.reference: row for row in _rows(section)} for section in sections]
    others = {name for rows in found for name in rows} - {CONTROL}
    learned = f", on tasks where {CONTROL} beats a constant answer" * any(
        s.learned for s in sections
    )
    yield (
        f"\nDev score of {SUBJECT} minus that of other methods{learned}: mean difference in "
        "points with "
        "its 95 % interval, bold if significant.\n"
    )

    yield _line("", (escape_markdown(_name(section)) for section in sections))
    yield _line("---", ["--:"] * len(sections))
    yield _line("preset", (" or ".join(section.presets) for section in sections))
    yield _line("tasks", (", ".join(map(escape_markdown, rows[CONTROL].tasks)) for rows in found))
    yield _line("heads removed", map(_removed, sections, (rows[CONTROL].tasks for rows in found)))
    for name in (CONTROL, *ordered(others)):
        cells = (_difference(rows[name]) if name in rows else "" for rows in found)
        yield _line(f"against {escape_markdown(name)}", cells)


def _difference(row: PooledRow) -> str:
    found = row.comparison.paired.differences
    words = f"{found.mean:+.1f}"
    if found.low is not None and found.high is not None:
        words += f" ({found.low:+.1f} to {found.high:+.1f})"
    words = f"**{words}**" if row.comparison.significant else words
    return f"{words}, {count(found.n, 'pair')}"


def _removed(section: Section, tasks: Sequence[str]) -> str:
    rows = [row for row in section.methods if row.method == SUBJECT and row.task in tasks]
    share = fmean(row.removed.mean / row.heads for row in rows)
    return f"{100 * share:.0f} % of {fmean(row.heads for row in rows):.0f}"


def _named(sections: Sequence[Section]) -> str:
    names = "; ".join(escape_markdown(_name(section)) for section in sections)
    return f"{len(sections)} ({names})" if sections else "none"


def _span(numbers: Sequence[float], form: str) -> str:
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def _regret(file: ResultsFile) -> str:
    table = to_markdown(regret_table(read_regret(file)), level=3)
    return (
        f"How it is measured: [regret](regret.md).\n\n{table}\n{_figure(file, 'Regret in points')}"
    )


def _speed(file: ResultsFile) -> str:
    speed = read_speed(file)
    sizes, ratios, _ = (to_markdown(table, level=3) for table in speed_tables(speed))
    command = f"Made by:\n\n    {speed.command}\n"
    return f"{sizes}\n{ratios}\n{_figure(file, 'Speed')}{command}"


def _figure(file: ResultsFile, alt: str) -> str:
    return "" if file.figure is None else f"![{alt}]({quote(file.figure.name)})\n"


def _origins(sources: Sequence[Source]) -> str:
    lines = ["## Where the numbers come from", "", "| file | runs | hours | device | commits |"]
    lines.append("| --- | --: | --: | --- | --- |")
    notes, commands = [], []
    for source in sources:
        name = escape_markdown(source.name)
        hours = sum(record.seconds for record in source.records) / 3600
        devices, commits = (
            sorted({record.origin.facts[name] for record in source.records})
            for name in ("device", "commit")
        )
        facts = (str(len(source.records)), f"{hours:.1f}", "; ".join(devices), ", ".join(commits))
        lines.append(f"| {' | '.join([name, *map(escape_markdown, facts)])} |")
        notes += [f"- {name}: {escape_markdown(note)}" for note in source.notes]
        commands += [_command(source)] if source.studies else []
    if notes:
        lines += ["", *notes]
    if commands:
        lines += [
            "",
            "To repeat them:",
            "",
            *(f"    {command}" for command in dict.fromkeys(commands)),
        ]
    return "\n".join(lines) + "\n"


def _command(source: Source) -> str:
    """Return the command of the whole study, without the part and the place that a call was for."""
    named: Counter[str] = Counter()
    for record in source.records:
        words = shlex.split(record.origin.command or "")[1:3]
        named.update(words[1:] if words[:1] == ["study"] else ())
    file = min(named, key=lambda name: (-named[name], name)) if named else "STUDY.TOML"
    return shlex.join(["auber", "study", file, "--out", f"runs/{Path(file).stem}"])
