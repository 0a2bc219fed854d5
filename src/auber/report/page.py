"""The page of results: made from results files and nothing else, byte for byte the same each time.

The page is a row of sections. A section takes the files of its kind, in the order of their names, and gives Markdown that
begins with a heading of the second level; it is left out where there is no such file. A new kind of result is a line in
`SECTIONS` and a function there; the file's top-level `kind` says whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from auber.errors import RunError, unknown_name
from auber.report import results_file, speeds
from auber.report.evidence import render_evidence
from auber.report.in_short import render_in_short
from auber.report.origins import render_origins
from auber.report.regrets import KIND as REGRET
from auber.report.repeating import render_repeating
from auber.report.results_file import ResultsFile, read_results_file
from auber.report.yardsticks import render_regret, render_speed
from auber.system.files import write_text


@dataclass(frozen=True)
class PageSection:
    """A part of the page: the kind of results it shows, and how."""

    kind: str
    render: Callable[[Sequence[ResultsFile]], str]


# In the order of reading.
SECTIONS: tuple[PageSection, ...] = (
    PageSection(results_file.KIND, render_evidence),
    PageSection(REGRET, render_regret),
    PageSection(speeds.KIND, render_speed),
    PageSection(results_file.KIND, render_origins),
    PageSection(results_file.KIND, render_repeating),
)

_INTRODUCTION = """\
# Results

What was measured with this package, and what it shows. The page is made from the files below `results/` (studies, regret, speed)
by `python -m benchmarks.pages results`; a test compares. Nothing on it is written by hand but the notes.
"""

_EMPTY = """\
No results are kept yet, so there is no answer here to whether pruning heads regularises a model. To make some:

    auber study studies/table2.toml --out runs/table2
    auber report runs/table2 --save results/studies/table2.json
"""


def write_page(page: str | Path, files: Sequence[str | Path]) -> None:
    """Write the page, and copies of the drawings that lie beside the files beside it: a site is made of its folder alone."""
    text = render_page(files)
    try:
        for drawing in _drawings(files):
            write_text(Path(page).parent / drawing.name, drawing.read_text(encoding="utf-8"))
        write_text(Path(page), text, follow=True)
    except OSError as error:
        raise RunError(f"{page}: cannot be written ({error}); choose another --page") from error


def render_page(files: Sequence[str | Path], sections: Sequence[PageSection] = SECTIONS) -> str:
    """The page as Markdown; its links lead to drawings beside it."""
    found = sorted(map(read_results_file, files), key=lambda file: file.name)
    known = {section.kind for section in sections}
    for file in found:
        if file.kind not in known:
            raise RunError(f"{file.name}: {unknown_name('kind of results', file.kind, known)}")
    parts = [_INTRODUCTION]
    if any(file.kind == results_file.KIND for file in found):
        parts.append(render_in_short(found))
    for section in sections:
        of_kind = [file for file in found if file.kind == section.kind]
        if of_kind:
            parts.append(section.render(of_kind))
    return "\n".join(parts if found else [_INTRODUCTION, _EMPTY])


def _drawings(files: Sequence[str | Path]) -> Iterable[Path]:
    """The drawings of the files, each under a name of its own."""
    found: dict[str, Path] = {}
    for file in map(read_results_file, files):
        if file.figure is None:
            continue
        if found.setdefault(file.figure.name, file.figure) != file.figure:
            raise RunError(
                f"{file.figure}: another drawing of this name, {found[file.figure.name]}, goes beside the page; rename one and its file"
            )
    return found.values()
