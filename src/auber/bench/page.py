"""The page of kept results: tables and a plot made from record files and nothing else, byte for byte the same each time.

What was tried and what it gave is written by hand in `performance-notes.md` beside the page, and taken over as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auber.bench.plot import draw_growth
from auber.bench.record import Bench, read_bench
from auber.bench.tables import Table, all_tables, describe, device_of, title_of
from auber.errors import RunError
from auber.system.files import write_text

PLOT = "growth.svg"
NOTES = "performance-notes.md"

_INTRODUCTION = """\
# Performance

Most time of a run of the preset `paper` goes into rewards (the metric on the reward set with some heads of one layer masked), then
into tuning; `default` tunes scouts as well, and [what it costs](experiments.md#what-it-costs) has its whole runs beside those of `paper`. This page
shows what a reward, a tuning step and a whole run cost, each beside the plain way, measured side by side in one process.
It is made from the result files by `auber bench --page docs/performance.md results/bench/*.json`; a test compares.

- **Plain float32** is transformers' own forward pass over all rows: padded to 128, batches of 32, default attention, the
  heads masked by a hook. **Plain and sorted** is the same in the scorer's precision, rows sorted by length, padded to the
  longest of a batch, batches of 256 on a GPU. Their batches lie on the device beforehand, and neither depends on the searched layer.
- **The floor** is the arithmetic a reward cannot do without (the searched layer from its output projection on, the layers
  above it, of the last layer what the first token needs, the classifier), at the rate the device multiplies large matrices,
  measured in the same run. Norms, activations and softmax are not in it, so it cannot be reached.
- Times are medians after a warm-up, with the device idle at both ends. Preparing a layer's caches is counted apart.
"""


def write_page(page: Path, files: Sequence[Path]) -> None:
    """Write the page and, beside it, the plot that it shows."""
    text, plot = render_page(files, page.parent / NOTES)
    try:
        if plot is not None:
            write_text(page.parent / PLOT, plot)
        write_text(page, text, follow=True)
    except OSError as error:
        raise RunError(f"{page}: cannot be written ({error}); choose another --page") from error


def render_page(files: Sequence[Path], notes: Path) -> tuple[str, str | None]:
    """The page as Markdown, and its plot where a result has growth."""
    benches = [(path.name, read_bench(path)) for path in sorted(files, key=lambda path: path.name)]
    parts = [_INTRODUCTION, _summary([bench for _, bench in benches])]
    grown = [(title_of(bench), bench.growth) for _, bench in benches if bench.growth is not None]
    plot = draw_growth(grown) if grown else None
    if plot is not None:
        parts.append(
            "## Growth\n\n"
            f"![Milliseconds a reward against rows, layers and heads, both axes logarithmic]({PLOT})\n\n"
            "Each line changes one size and holds the others; a slope of 1 is growth in proportion. The numbers are below.\n"
        )
    parts += [_section(name, bench) for name, bench in benches]
    if notes.is_file():
        parts.append(notes.read_text(encoding="utf-8"))
    return "\n".join(parts), plot


def _summary(benches: Sequence[Bench]) -> str:
    rows = []
    for bench in benches:
        if bench.rewards is not None:
            total = bench.rewards.total
            rows.append(
                [
                    bench.subject.model,
                    bench.subject.task,
                    device_of(bench),
                    f"{bench.rewards.plain.milliseconds:,.0f}",
                    f"{bench.rewards.low_precision.milliseconds:,.0f}",
                    f"{total.milliseconds:,.1f}",
                    f"{total.ratio:.1f}",
                    f"{100 * total.floor_share:.0f} %",
                    f"{bench.tuning.ratio:.2f}" if bench.tuning else "-",
                    f"{bench.search.seconds.total:.0f}" if bench.search else "-",
                ]
            )
    columns = [
        "model",
        "rows",
        "device",
        "plain float32, ms",
        "plain sorted, ms",
        "this scorer, ms",
        "times plain float32",
    ]
    columns += ["share of the floor", "tuning, times plain", "whole run, s"]
    return _markdown(Table("", columns, rows))


def _section(name: str, bench: Bench) -> str:
    lines = [f"## {title_of(bench)}", "", f"    {bench.command}", ""]
    lines += [
        f"{describe(bench)}.",
        "",
        f"Result file `{name}`; {_provenance(bench.provenance)}.",
        "",
    ]
    for table in all_tables(bench):
        lines += [f"### {table.title}", "", _markdown(table)]
        if table.note:
            lines += [table.note, ""]
    return "\n".join(lines)


def _provenance(found: dict[str, Any]) -> str:
    commit = found.get("commit")
    words = "no commit recorded"
    if commit:
        words = f"commit `{commit['id'][:12]}`" + (" with changes" if commit["dirty"] else "")
    versions = ", ".join(
        f"{package} {version}" for package, version in found.get("versions", {}).items()
    )
    return f"{words}; {versions}"


def _markdown(table: Table) -> str:
    numeric = [
        bool(table.rows)
        and all(row[place][:1].isdigit() or row[place] == "-" for row in table.rows)
        for place in range(len(table.columns))
    ]
    lines = [_row(table.columns), _row(["--:" if right else "---" for right in numeric])]
    return "\n".join([*lines, *map(_row, table.rows)]) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
