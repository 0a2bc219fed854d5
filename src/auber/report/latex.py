r"""A table as LaTeX floats to `\input`, one for each section, with booktabs' rules the notes in the caption."""

from __future__ import annotations

from auber.report.columns import Column, Detail, Table, Value, plain

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    # At the start of a row these would be read as arguments of the line break before it.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}


def render_latex(table: Table) -> str:
    """The floats."""
    columns = [place for place, column in enumerate(table.columns) if column.detail <= Detail.PAGE]
    titles = [table.columns[place] for place in columns]
    shapes = {"text": "l", "sentence": "p{0.22\\linewidth}"}
    shape = "".join(shapes.get(column.kind, "r") for column in titles)
    lines = [
        r"% \usepackage{booktabs} in the preamble; wide: set it on a landscape page or with \footnotesize"
    ]
    if not any(section.rows for section in table.sections):
        lines.append(f"% {table.empty}")
    for section in table.sections:
        caption = table.title if section.title is None else f"{table.title}; {section.title}"
        notes = (*section.notes, *table.notes)
        lines += [
            r"\begin{table*}",
            r"\centering",
            f"\\caption{{{' '.join([escape(caption) + '.', *map(escape, notes)])}}}",
            f"\\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            _row([escape(column.title) for column in titles]),
            r"\midrule",
            *(
                _row([_cell(table.columns[place], row[place]) for place in columns])
                for row in section.rows
            ),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that means itself."""
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))


def _cell(column: Column, value: Value) -> str:
    words = escape(plain(column, value))
    return words if column.is_text else words.replace("-", "$-$")


def _row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
