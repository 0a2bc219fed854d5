"""The page's parts on results of other commands: what searches miss (`auber regret`), what pruning buys (`auber speed`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from auber.report.markdown import escape, render_markdown
from auber.report.regrets import regret_table, sources_of
from auber.report.results_file import ResultsFile
from auber.report.speeds import speed_tables
from auber.run.fields import Fields

_REGRET = """\
## What a search misses of a layer's best mask

Every mask of some layers was scored, and the searches were replayed on these scores. How, and what the numbers do not say:
[regret](regret.md).
"""

_SPEED = """\
## What removing heads buys in speed

The pruned model beside the unpruned one, timed in turn, round by round.
"""


def render_regret(files: Sequence[ResultsFile]) -> str:
    """A table and a drawing for each file."""
    return "\n".join([_REGRET, *("\n".join(_regret(file)) for file in files)])


def render_speed(files: Sequence[ResultsFile]) -> str:
    """The tables of each file."""
    return "\n".join([_SPEED, *("\n".join(_speed(file)) for file in files)])


def _regret(file: ResultsFile) -> Iterable[str]:
    yield render_markdown(regret_table(file), level=3)
    yield from _figure(file, "Regret in points against the number of rewards")
    yield f"From {escape(file.name)}, made by:\n"
    yield from (f"    {command}" for command in sources_of(file))
    yield ""


def _speed(file: ResultsFile) -> Iterable[str]:
    yield from (render_markdown(table, level=3) for table in speed_tables(file))
    yield from _figure(file, "How many times as fast")
    yield f"From {escape(file.name)}, made by:\n"
    yield f"    {Fields(file.name, file.content).get('command', str)}"
    yield ""


def _figure(file: ResultsFile, words: str) -> Iterable[str]:
    if file.figure is not None:
        yield f"![{words}]({quote(file.figure.name)})\n"
