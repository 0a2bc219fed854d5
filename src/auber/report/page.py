"""The page of results: made from results files and nothing else, byte for byte the same each time.

The page is a row of sections. A section takes the files of its kind, in the order of their names, and gives Markdown that
begins with a heading of the second level; it is left out where there is no such file. A new kind of result is a line in
`SECTIONS` and a function there; the file's top-level `kind` says whose it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from auber.errors import RunError, unknown_name
from auber.files import write_text
from auber.regret.result import KIND as REGRET
from auber.report import results_file, speeds
from auber.report.evidence import render_evidence
from auber.report.in_short import render_in_short
from auber.report.origins import render_origins
from auber.report.repeating import render_repeating
from auber.report.results_file import ResultsFile, read_results_file
from auber.report.yardsticks import render_regret, render_speed


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
by `auber report FILE.json... --page docs/results.md`; a test compares. Nothing on it is written by hand.
"""

_EMPTY = """\
No results are kept yet, so there is no answer here to whether pruning heads regularises a model. To make some:

    auber study studies/table2.toml --out runs/table2
    auber report runs/table2 --save results/studies/table2.json
"""


def write_page(page: str | Path, files: Sequence[str | Path]) -> None:
    """Write the page."""
    text = render_page(files, folder=Path(page).parent)
    try:
        write_text(Path(page), text)
    except OSError as error:
        raise RunError(f"{page}: cannot be written ({error}); choose another --page") from error


def render_page(
    files: Sequence[str | Path], sections: Sequence[PageSection] = SECTIONS, *, folder: str | Path = "."
) -> str:
    """The page as Markdown; it is to lie in `folder`, which its links to drawings begin from."""
    found = sorted((_seen_from(folder, read_results_file(path)) for path in files), key=lambda file: file.name)
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


def _seen_from(folder: str | Path, file: ResultsFile) -> ResultsFile:
    """The file with its drawing's place as seen from a folder."""
    if file.figure is None:
        return file
    return replace(file, figure=Path(os.path.relpath(file.figure, folder)))
