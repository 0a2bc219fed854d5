"""The generated part of docs/paper.md: the paper's question, then its Tables 2 and 3.

It is made from results files alone, the same bytes each time.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd

from auber.errors import RunError, unknown_name
from auber.export.speed import RunSpeed, Speed, describe, make_tables
from auber.metrics.statistics import FEWEST_PAIRS
from auber.report.analysis import OTHER_START, Row, Section, analyse
from auber.report.answer import control_row, direction, gap_row, no_answer, own_seconds
from auber.report.paper_tables import RULE
from auber.report.records import CONTROL, SUBJECT, count, is_ablation, ordered
from auber.report.results_file import KIND, ResultsFile, read_results_file, runs_of
from auber.report.run_tables import SPEED
from auber.report.runs import RunSet, pool_runs
from auber.report.tables import Table, escape_markdown, markdown_lines, to_markdown
from auber.system.records import parse

_MADE = """\
mpnet-base is sentence-transformers/all-mpnet-base-v2, minilm-l6 is all-MiniLM-L6-v2. The tables are
made from the files below `results/`, which list every run with its scores, plan, settings,
command and commit; `auber report FILE.json... --out DIR` makes all tables from them.
"""
_LEGEND = (
    "Dev score in points (100 times the metric), mean ± sample deviation over the seeds; P: mean "
    f"number of removed heads; then the mean difference to {CONTROL} (Table 3: to "
    f"{SUBJECT}) on the same "
    f"seeds, bold if significant. {RULE}"
)


def render_page(files: Sequence[str | Path]) -> str:
    """Return the generated part as Markdown."""
    found = sorted(map(read_results_file, files), key=lambda file: file.name)
    for file in found:
        if file.kind not in (KIND, SPEED):
            known = unknown_name("kind of results", file.kind, (KIND, SPEED))
            raise RunError(f"{file.name}: {known}")
    runs, speeds = ([file for file in found if file.kind == kind] for kind in (KIND, SPEED))
    parts: list[str] = []
    sources = [runs_of(file) for file in runs]
    if sources:
        parts += _of_runs(sources, [run for file in speeds for run in _read_speed(file).runs])
    if speeds:
        parts += ["## What removing heads buys in speed\n", *map(_speed, speeds)]
    if sources:
        parts.append(_origins(sources))
    return "\n".join(parts)


def _of_runs(sources: Sequence[RunSet], speeds: Sequence[RunSpeed]) -> list[str]:
    report = analyse(pool_runs(sources))
    judged = [section for section in report.sections if _judged(section) is not None]
    judged.sort(key=lambda section: "default" not in section.presets)
    answer = [*_answer(judged), *_speeds(speeds), *(_matrix(judged) if judged else ())]
    parts = ["## Should I prune heads to regularise my model?\n", "\n".join(answer) + "\n"]
    for section in report.sections:
        label = f" ({section.label})" if section.label else ""
        parts.append(f"## {escape_markdown(section.name)}{label}\n")
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


def _by_task(rows: Sequence[Row]) -> Iterable[str]:
    """Yield a table with a row for each method and a column for each task."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(escape_markdown(row["task"]), {})[row["method"]] = _score(row)
    methods = dict.fromkeys(row["method"] for row in rows)
    return _table(pd.DataFrame(cells).reindex([*methods]).rename(index=escape_markdown))


def _table(cells: pd.DataFrame) -> list[str]:
    return markdown_lines(cells.fillna("").rename_axis("").reset_index())


def _score(row: Row) -> str:
    words = f"{row['dev']:.2f}"
    if row["dev deviation"] is not None:
        words += f" ± {row['dev deviation']:.2f}"
    if row["P"]:
        words += f", P {row['P']:.0f}"
    if "difference" not in row:
        return words
    change = f"{round(row['difference'], 1) + 0.0:+.1f}"
    return f"{words}, **{change}**" if row["significant"] else f"{words}, {change}"


def _rows(section: Section) -> list[Row]:
    """Return the comparisons on tasks that the control has learned, if there are any."""
    rows = section.learned or section.pooled
    return [row for row in rows if not is_ablation(row["against"])]


def _judged(section: Section) -> Row | None:
    row = control_row(_rows(section))
    return row if row is not None and row["pairs"] >= FEWEST_PAIRS else None


def _change(section: Section) -> int:
    return direction(_judged(section))


def _answer(sections: Sequence[Section]) -> Iterable[str]:
    if not sections:
        yield f"**{no_answer(0, SUBJECT)}**\n"
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
    smaller = [row for row in gaps if direction(row) < 0]
    if gaps:
        why = ""
        if smaller and all(row["train difference"] < 0 for row in smaller):
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
    found = [{row["against"]: row for row in _rows(section)} for section in sections]
    learned = f", on tasks where {CONTROL} beats a constant answer" * any(
        section.learned for section in sections
    )
    yield (
        f"\nDev score of {SUBJECT} minus that of other methods{learned}: mean difference in points "
        "with its 95 % interval, bold if significant.\n"
    )
    columns = {}
    for section, rows in zip(sections, found, strict=True):
        tasks = rows[CONTROL]["tasks"]
        columns[escape_markdown(section.name)] = {
            "preset": " or ".join(section.presets),
            "tasks": ", ".join(map(escape_markdown, tasks)),
            "heads removed": _removed(section, tasks),
            **{f"against {escape_markdown(name)}": _difference(rows[name]) for name in rows},
        }
    others = ordered({name for rows in found for name in rows} - {CONTROL})
    against = [f"against {escape_markdown(name)}" for name in (CONTROL, *others)]
    cells = pd.DataFrame(columns)
    yield from _table(cells.reindex(["preset", "tasks", "heads removed", *against]))


def _difference(row: Row) -> str:
    words, low = f"{row['difference']:+.1f}", row["difference interval low"]
    if low is not None:
        words += f" ({low:+.1f} to {row['difference interval high']:+.1f})"
    words = f"**{words}**" if row["significant"] else words
    return f"{words}, {count(row['pairs'], 'pair')}"


def _removed(section: Section, tasks: Sequence[str]) -> str:
    rows = [row for row in section.methods if row["method"] == SUBJECT and row["task"] in tasks]
    share = fmean(row["P"] / row["heads"] for row in rows)
    return f"{100 * share:.0f} % of {fmean(row['heads'] for row in rows):.0f}"


def _named(sections: Sequence[Section]) -> str:
    names = "; ".join(escape_markdown(section.name) for section in sections)
    return f"{len(sections)} ({names})" if sections else "none"


def _span(numbers: Sequence[float], form: str) -> str:
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} to {high}"


def _speed(file: ResultsFile) -> str:
    speed = _read_speed(file)
    text = ""
    for number, (title, rows) in enumerate([*make_tables(speed).items()][:2]):  # not single times
        data = pd.DataFrame(rows, dtype=object)
        notes = () if number else tuple(describe(speed).splitlines())
        text += to_markdown(Table(SPEED, title, data, notes=notes), level=3) + "\n"
    return f"{text}Made by:\n\n    {speed.command}\n"


def _read_speed(file: ResultsFile) -> Speed:
    return parse(Speed, dict(file.content), file.name, "measure it again")


def _origins(sources: Sequence[RunSet]) -> str:
    rows = []
    for source in sources:
        devices, commits = (
            sorted({record.origin.facts[name] for record in source.records})
            for name in ("device", "commit")
        )
        rows.append({
            "file": source.name,
            "runs": str(len(source.records)),
            "hours": f"{sum(record.seconds for record in source.records) / 3600:.1f}",
            "device": "; ".join(devices),
            "commits": ", ".join(commits),
        })  # fmt: skip
    lines = ["## Where the numbers come from", "", _MADE]
    lines += markdown_lines(pd.DataFrame(rows).map(escape_markdown))
    notes = [f"- {escape_markdown(f'{of.name}: {note}')}" for of in sources for note in of.notes]
    lines += ["", *notes] * bool(notes)
    commands = dict.fromkeys(f"    {_command(source)}" for source in sources if source.studies)
    lines += ["", "To repeat them:", "", *commands] * bool(commands)
    return "\n".join(lines) + "\n"


def _command(source: RunSet) -> str:
    """Return the command of the whole study, without the part and the place that a call was for."""
    named: Counter[str] = Counter()
    for record in source.records:
        words = shlex.split(record.origin.command or "")[1:3]
        named.update(words[1:] if words[:1] == ["study"] else ())
    file = min(named, key=lambda name: (-named[name], name)) if named else "STUDY.TOML"
    return shlex.join(["auber", "study", file, "--out", f"runs/{Path(file).stem}"])
