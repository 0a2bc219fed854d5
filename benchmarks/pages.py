"""Write the generated pages of docs/ from kept results and from the package itself.

    python -m benchmarks.pages                       all of them
    python -m benchmarks.pages performance settings  some of them

`encoders`, `settings` and `results` are whole pages. Of `performance` and `reliability` the parts
between the marks are generated; the rest is written by hand.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas

from auber.config import PRESETS, make_config, settings
from auber.report.analysis import Report, Section, analyse
from auber.report.answer import answers
from auber.report.collect import pool
from auber.report.markdown import escape, render_markdown
from auber.report.origins import by_origin
from auber.report.regrets import regret_table
from auber.report.results_file import ResultsFile, read_results_file, runs_of
from auber.report.speeds import speed_tables
from auber.report.tables import RULE, all_tables
from auber.system.files import write_text
from auber.system.records import read
from benchmarks.common import ROOT, describe_origin, markdown, run_program
from benchmarks.scorer.record import Bench
from benchmarks.scorer.tables import describe, draw_growth, make_tables, name_of
from benchmarks.soak.record import Soak, make_table

DOCS, RESULTS = ROOT / "docs", ROOT / "results"
BEGIN = "<!-- figures: written by python -m benchmarks.pages -->"
END = "<!-- end of figures -->"
_AGAIN = "measure it again"
_SHOWN = ("table2", "comparisons", "overfitting")

_RESULTS_PAGE = f"""\
# Results

Does pruning heads improve a fine-tuned encoder? The table has the difference in dev score between
`auber` and each other method, in points with its 95 % interval, on tasks that `original+tuning`
(the same tuning, no head removed) has learned. Bold differences are significant. This page is
generated from the files in `results/` by `python -m benchmarks.pages results`; the other tables of
a study come from `auber report results/studies/FILE.json --out DIR`.

{{differences}}
How to read it. {RULE}
"""


def main(words: Sequence[str] | None = None) -> None:
    """Write pages."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pages", nargs="*", choices=[*PAGES, []], help="all without it")
    for name in parser.parse_args(words).pages or PAGES:
        text = PAGES[name]()
        if text is not None:
            write_text(DOCS / f"{name}.md", text)
        print(DOCS / f"{name}.md")


def replace_part(page: Path, part: str) -> str:
    """Return a page with its generated part replaced."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def make_performance() -> str:
    """Return the page of the scorer benchmark, and write its figure."""
    files = sorted((RESULTS / "bench").glob("*.json"))
    benches = [(path.name, read(Bench, path, _AGAIN)) for path in files]
    parts = []
    for title, table in make_tables([bench for _, bench in benches]):
        parts += [f"### {title}", "", markdown(table)]
        if title.startswith("Growth"):
            parts += ["![Milliseconds per reward against rows, layers and heads](growth.svg)", ""]
    parts += ["### Measurements", ""]
    parts += [
        f"- {name_of(bench)}: {describe(bench)}. File `{name}`, by `{bench.command}`"
        for name, bench in benches
    ]
    save_figure(DOCS / "growth.svg", [bench for _, bench in benches])
    return replace_part(DOCS / "performance.md", "\n".join(parts) + "\n")


def save_figure(path: Path, benches: Sequence[Bench]) -> None:
    """Write the figure of growth, with the same bytes each time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "auber", "svg.fonttype": "none"}):
        draw_growth(benches).savefig(path, metadata={"Date": None})
    path.write_text(re.sub(r" +$", "", path.read_text(), flags=re.MULTILINE))


def make_reliability() -> str:
    """Return the page of the drills."""
    soak = read(Soak, RESULTS / "soak.json", _AGAIN)
    origins = dict.fromkeys(
        f"- `{drill.command}`, {describe_origin({'commit': drill.commit})}"
        for drill in soak.drills.values()
    )
    used = describe_origin({"versions": soak.versions})
    parts = [markdown(make_table(soak)), f"On {soak.device}, {used}, by:", "", *origins, ""]
    return replace_part(DOCS / "reliability.md", "\n".join(parts))


def make_settings() -> str:
    """Return the page of settings, made from their declarations."""
    values = {name: make_config(name).flat() for name in PRESETS}
    lines = [
        "# Settings",
        "",
        "Pass a setting with `--set key=value`, in a TOML file (`--config`) or to "
        "`auber.make_config`. Precedence, weakest first:",
        "defaults, preset, the preset's settings for the task and for the protocol, config file, "
        "`--set`. To regenerate this page:",
        "`python -m benchmarks.pages settings`.",
        "",
        f"| setting | {' | '.join(PRESETS)} | allowed | meaning |",
        f"|---|{'---|' * len(PRESETS)}---|---|",
    ]
    for info in settings():
        cells = [_value(values[name][info.key]) for name in PRESETS]
        lines.append(f"| `{info.key}` | {' | '.join(cells)} | {info.allowed} | {info.doc} |")
    for title, part in (
        ("Changes for a task:", "per_task"),
        (
            "Changes under a protocol; the other protocols use the values of `paper`:",
            "per_protocol",
        ),
    ):
        lines += ["", title, ""]
        for name, preset in PRESETS.items():
            for case, changes in getattr(preset, part).items():
                words = ", ".join(f"`{key} = {_value(value)}`" for key, value in changes.items())
                lines.append(f"- `{name}`, {case}: {words}")
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """Return a value as it is typed."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else str(value).lower()


def write_encoders() -> None:
    """Let the tests of surgery write the page, which is the outcome of their checks."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/models/test_surgery.py", "-k", "page"]
    environment = {**os.environ, "AUBER_REGENERATE": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


def make_results() -> str:
    """Return the page of results, and copy the figures that it shows."""
    found: dict[str, list[ResultsFile]] = {}
    for kind in ("studies", "regret/regret", "speed"):
        place = RESULTS / kind
        pattern = "*.json" if place.is_dir() else f"{place.name}*.json"
        folder = place if place.is_dir() else place.parent
        found[kind] = [read_results_file(path) for path in sorted(folder.glob(pattern))]
    report = analyse(pool([runs_of(file) for file in found["studies"]]))
    parts = [_RESULTS_PAGE.format(differences=markdown(_differences(report)))]
    for section, answer in zip(report.sections, answers(report), strict=True):
        parts += [f"## {section.model}, protocol {section.protocol}\n", f"**{answer.headline}**\n"]
        parts += ["\n".join(f"- {escape(point)}" for point in answer.points) + "\n"]
        parts += _tables_of(section, report)
    tasks = all_tables(report)[0]
    parts.append(render_markdown(replace(tasks, notes=()), level=2))
    parts.append("## What a search misses of a layer's best mask\n")
    parts.append("Every mask of some layers was scored, and [searches were replayed](regret.md).\n")
    for file in found["regret/regret"]:
        parts += [render_markdown(regret_table(file), level=3), *_figure(file)]
    parts.append("## Speed of the pruned models\n")
    for file in found["speed"]:
        parts += [render_markdown(speed_tables(file)[0], level=3), *_figure(file)]
        parts += [f"File `{file.name}`, by `{file.content['command']}`.\n"]
    parts += ["## Origin of the numbers\n", _origins(found["studies"])]
    return "\n".join(parts)


def _differences(report: Report) -> pandas.DataFrame:
    """Return the differences from each other method, with a column for each model and protocol."""
    columns = {}
    for section in report.sections:
        rows = [row for row in section.learned or section.pooled if row.method == "auber"]
        if not rows:
            continue
        removed = [row for row in section.methods if row.method == "auber"]
        tasks = section.learned_tasks or rows[0].tasks
        heads = sum(row.removed.mean for row in removed if row.task in tasks)
        total = sum(row.heads for row in removed if row.task in tasks)
        column = {"tasks": ", ".join(tasks), "preset": ", ".join(section.presets)}
        column["heads removed"] = f"{100 * heads / total:.0f} %"
        for row in rows:
            difference = row.comparison.paired.differences
            words = f"{difference.mean:+.1f}, {difference.n} pairs"
            if difference.low is not None and difference.high is not None:
                words = (
                    f"{difference.mean:+.1f} ({difference.low:+.1f} to {difference.high:+.1f}), "
                    f"{difference.n} pairs"
                )
            column[row.reference] = f"**{words}**" if row.comparison.shown else words
        columns[f"{section.model}, {section.protocol}"] = column
    table = pandas.DataFrame(columns).fillna("")
    return table.rename_axis("against").reset_index()


def _tables_of(section: Section, report: Report) -> Iterable[str]:
    """Yield the tables of one model and protocol."""
    place = (section.model, section.protocol)
    for table in all_tables(report):
        mine = [part for part in table.sections if (part.model, part.protocol) == place]
        if table.name in _SHOWN and mine and mine[0].rows:
            part = replace(mine[0], model=None, protocol=None, notes=())
            yield render_markdown(replace(table, sections=(part,), notes=()), level=3)


def _figure(file: ResultsFile) -> Iterable[str]:
    if file.figure is not None:
        write_text(DOCS / file.figure.name, file.figure.read_text(encoding="utf-8"))
        yield f"![{file.figure.stem}]({file.figure.name})\n"


def _origins(files: Sequence[ResultsFile]) -> str:
    rows, notes = [], []
    for file in files:
        source = runs_of(file)
        notes += [f"- {file.name}: {escape(note)}" for note in source.notes]
        for (command, commit, device), records in by_origin(source.records):
            rows.append(
                {
                    "file": file.name,
                    "command": escape(command),
                    "commit": commit,
                    "device": device,
                    "runs": len(records),
                    "seconds": f"{sum(record.seconds for record in records):.0f}",
                }
            )
    return markdown(pandas.DataFrame(rows)) + "\n" + "\n".join(notes) + "\n"


PAGES: dict[str, Callable[[], str | None]] = {
    "encoders": write_encoders,
    "performance": make_performance,
    "reliability": make_reliability,
    "results": make_results,
    "settings": make_settings,
}

if __name__ == "__main__":
    run_program(main)
