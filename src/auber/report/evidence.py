"""The page's part on runs: the answer to the reader's question, and the tables it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from auber.report.analysis import Report, Section, analyse
from auber.report.answer import answer_question
from auber.report.collect import pool
from auber.report.columns import Table, TableSection
from auber.report.markdown import escape, render_markdown
from auber.report.results_file import ResultsFile, runs_of
from auber.report.tables import RULE, all_tables


def render_evidence(files: Sequence[ResultsFile]) -> str:
    """Answer, tables by model and protocol, and how to read them."""
    sources = [runs_of(file) for file in files]
    report = analyse(pool(sources))
    tables = all_tables(report)
    tasks, *by_section = tables
    parts = [answer_question(report)]
    parts += [_section(section, by_section) for section in report.sections]
    parts.append(render_markdown(replace(tasks, notes=()), level=2))
    parts.append(_legend(report, tables))
    return "\n".join(parts)


def _section(section: Section, tables: Sequence[Table]) -> str:
    """All tables of one model under one protocol; what several of them must say is said once."""
    lines = [
        f"## {escape(section.model)}, protocol {escape(section.protocol)}{_label(section)}",
        "",
    ]
    found = [(table, part) for table in tables if (part := _part(table, section)) is not None]
    if not found:
        lines += ["No run yet.", ""]
    for table, part in found:
        title = table.title + (f" ({part.label})" if part.label else "")
        bare = TableSection(None, None, part.rows)
        lines += [render_markdown(replace(table, title=title, sections=(bare,), notes=()), level=3)]
    notes = dict.fromkeys(note for _, part in found for note in part.notes)
    lines += [f"- {escape(note)}" for note in notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _label(section: Section) -> str:
    label = section.coverage.label if section.coverage else None
    return f" ({label})" if label else ""


def _part(table: Table, section: Section) -> TableSection | None:
    place = (section.model, section.protocol)
    return next((part for part in table.sections if (part.model, part.protocol) == place), None)


def _legend(report: Report, tables: Iterable[Table]) -> str:
    """What the tables' own notes say, each once, and what has no result."""
    lines = ["## How to read the tables", "", f"- The rule. {escape(RULE)}"]
    said: set[str] = set()
    for table in tables:
        new = [note for note in table.notes if note not in said]
        said.update(new)
        words = " ".join(new).replace(f" {RULE}", "")
        lines += [f"- {escape(table.title)}. {escape(words)}"] if words else []
    if not report.left_out:
        lines.append("- Every run that is not named as missing has a result.")
    return "\n".join(lines) + "\n"
