"""Write the generated pages of docs/ from kept results and from the package itself.

    python -m benchmarks.pages                       all of them
    python -m benchmarks.pages performance settings  some of them

`encoders` and `settings` are whole pages. Of `fidelity`, `paper`, `performance`, `regret`,
`reliability` and `results` the parts between the marks are generated; the rest is written by hand.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from auber.cli.list import format_value
from auber.config import PRESETS, make_config, settings
from auber.export.speed import Speed
from auber.system.files import write_text
from auber.system.records import read
from benchmarks.common import ROOT, describe_origin, make_parser, markdown, run_program
from benchmarks.fidelity import tables as fidelity
from benchmarks.fidelity.record import Entry, read_entries
from benchmarks.mutants.record import Mutants, count_mutants
from benchmarks.paper_page import render_page
from benchmarks.regret.result import Regret, summarise
from benchmarks.scorer.record import Bench
from benchmarks.scorer.tables import describe, draw_growth, make_tables, name_of
from benchmarks.sizes import page as sizes
from benchmarks.sizes.plan import PLAN, read_plan
from benchmarks.sizes.record import read_models
from benchmarks.soak.record import Soak, make_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS, RESULTS = ROOT / "docs", ROOT / "results"
SIZES = RESULTS / "studies" / "sizes.json"
BEGIN = "<!-- figures: written by python -m benchmarks.pages -->"
END = "<!-- end of figures -->"
_AGAIN = "measure it again"


def main(words: Sequence[str] | None = None) -> None:
    """Write pages."""
    parser = make_parser("pages", __doc__)
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
        if "by searched layer" in title:  # a row for each layer: too long for the page
            continue
        parts += [f"### {title}", "", markdown(table)]
        if title.startswith("Growth"):
            parts += ["![Milliseconds per reward against rows, layers and heads](growth.svg)", ""]
    parts += ["### Measurements", ""]
    parts += [
        f"- {name_of(bench)}: {describe(bench)}. File `{name}`, by `{bench.command}`"
        for name, bench in benches
    ]
    save_figure(DOCS / "growth.svg", draw_growth([bench for _, bench in benches]))
    return replace_part(DOCS / "performance.md", "\n".join(parts) + "\n")


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure, with the same bytes each time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "auber", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Creator": None, "Date": None})
    path.write_text(re.sub(r" +$", "", path.read_text(), flags=re.MULTILINE))


def make_fidelity() -> str:
    """Return the page of models pruned without labels, and write its figure."""
    folder = RESULTS / "fidelity"
    files = {
        path: read_entries(path)
        for path in sorted(folder.glob("*.json"))
        if not path.stem.endswith("-speed")
    }
    speeds = {
        path.stem.removesuffix("-speed"): read(Speed, path, _AGAIN)
        for path in sorted(folder.glob("*-speed.json"))
    }
    groups = fidelity.group_entries([entry for entries in files.values() for entry in entries])
    parts = ["### Goals", "", markdown(fidelity.make_goals(groups))]
    parts += ["![Fidelity against the number of texts](fidelity.svg)", ""]
    for group in groups:
        name = " as ".join(dict.fromkeys((group.model, group.kind)))
        parts += [f"### {name}", "", markdown(fidelity.make_table(group))]
    if speeds:
        parts += ["### Speed in onnxruntime", "", markdown(fidelity.make_speeds(speeds))]
    parts += ["### Measurements", ""]
    for path, entries in files.items():
        parts += [f"- `{path.name}`: {line}" for line in dict.fromkeys(map(_made_by, entries))]
    parts += [f"- `{name}-speed.json`: `{speed.command}`" for name, speed in speeds.items()]
    save_figure(DOCS / "fidelity.svg", fidelity.draw(groups))
    return replace_part(DOCS / "fidelity.md", "\n".join(parts) + "\n")


def _made_by(entry: Entry) -> str:
    origin = f"{entry.provenance['device']}, {describe_origin(entry.provenance)}"
    return f"`{entry.command}`; measured on {entry.held_out:,} rows; {origin}"


def make_regret() -> str:
    """Return the page of regret, and copy its figure."""
    source = RESULTS / "regret" / "regret.json"
    regret = read(Regret, source, _AGAIN)
    shutil.copy(source.with_suffix(".svg"), DOCS)
    return replace_part(DOCS / "regret.md", markdown(summarise(regret)))


def make_reliability() -> str:
    """Return the page of the drills."""
    soak = read(Soak, RESULTS / "soak.json", _AGAIN)
    origins = dict.fromkeys(
        f"- `{drill.command}`, {describe_origin({'commit': drill.commit})}"
        for drill in soak.drills.values()
    )
    used = describe_origin({"versions": soak.versions})
    parts = [markdown(make_table(soak)), f"On {soak.device}, {used}, by:", "", *origins, ""]
    found = read(Mutants, RESULTS / "mutants.json", _AGAIN)
    parts += ["### Mutants", "", markdown(count_mutants(found))]
    parts += [f"By `{found.command}`, {describe_origin(found.provenance)}.", ""]
    return replace_part(DOCS / "reliability.md", "\n".join(parts))


def make_results() -> str:
    """Return the page of the study of sizes, and write its figures."""
    plan, models = read_plan(PLAN), read_models(SIZES)
    speeds = {
        path.name: read(Speed, path, _AGAIN)
        for path in sorted((RESULTS / "sizes").glob("study-*.json"))
    }
    for name, figure in sizes.draw(models, speeds, plan).items():
        save_figure(DOCS / name, figure)
    return replace_part(DOCS / "results.md", sizes.render(models, speeds, plan))


def make_settings() -> str:
    """Return the page of settings, made from their declarations."""
    values = {name: make_config(name).flat() for name in PRESETS}
    lines = [
        "# Settings",
        "",
        "Pass a setting with `--set key=value`, in a TOML file (`--config`) or to "
        "`auber.make_config`. Precedence, weakest first:",
        "defaults, preset, the preset's settings for the task, for the protocol and for texts "
        "without labels, config file, `--set`. To regenerate this page:",
        "`python -m benchmarks.pages settings`.",
        "",
        f"| setting | {' | '.join(PRESETS)} | allowed | meaning |",
        f"|---|{'---|' * len(PRESETS)}---|---|",
    ]
    for info in settings():
        cells = [format_value(values[name][info.key]) for name in PRESETS]
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
                words = ", ".join(
                    f"`{key} = {format_value(value)}`" for key, value in changes.items()
                )
                lines.append(f"- `{name}`, {case}: {words}")
    lines += ["", "Changes for texts without labels:", ""]
    for name, preset in PRESETS.items():
        for key, value in preset.without_labels.items():
            lines.append(f"- `{name}`: `{key} = {format_value(value)}`")
    return "\n".join(lines) + "\n"


def write_encoders() -> None:
    """Let the tests of surgery write the page, which is the outcome of their checks."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/models/test_surgery.py", "-k", "page"]
    environment = {**os.environ, "AUBER_REGENERATE": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


def make_paper() -> str:
    """Return the page of the paper's tables."""
    folders = (RESULTS / "studies", RESULTS / "speed")
    files = [path for folder in folders for path in folder.glob("*.json") if path != SIZES]
    return replace_part(DOCS / "paper.md", render_page(files))


PAGES: dict[str, Callable[[], str | None]] = {
    "encoders": write_encoders,
    "fidelity": make_fidelity,
    "paper": make_paper,
    "performance": make_performance,
    "regret": make_regret,
    "reliability": make_reliability,
    "results": make_results,
    "settings": make_settings,
}

if __name__ == "__main__":
    run_program(main)
