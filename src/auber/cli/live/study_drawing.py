"""A study as lines for a terminal."""

from __future__ import annotations

import textwrap

from rich.text import Text

from auber.cli.live.drawing import STATE_STYLES, Marks, Sheet, bar, cut, fold
from auber.cli.live.run_view import RunView
from auber.cli.live.study import StudyView
from auber.system.progress import describe_seconds


def draw_study(view: StudyView, sheet: Sheet) -> list[Text]:
    """A study in at most the sheet's lines."""
    head = [Text(f"study {view.folder}  model {view.model}", "bold")]
    words = [f"{view.settled} of {view.total} runs settled"]
    if view.seconds_left is not None:
        words.append(f"about {describe_seconds(view.seconds_left)} left")
    head += [Text("  ".join([bar(view.settled / view.total, 28, sheet.marks), *words]))]
    columns = list(dict.fromkeys(cell.run for block in view.blocks for cell in block.cells))
    grid = _grid(view, columns, sheet)
    present = [_run_line(run, sheet) for run in view.present]
    foot = _study_ending(view)
    if sheet.height is not None:
        room = sheet.height - len(head) - len(foot) - 1
        present = fold(present, max(1, room // 3))
        grid = fold(grid, max(2, room - len(present)))
    return cut([*head, *grid, *present, *foot, _legend(view, sheet)], sheet)


def _grid(view: StudyView, columns: list[str], sheet: Sheet) -> list[Text]:
    """Blocks down, runs across; the names of the columns are in the legend by number where they do not fit."""
    labels = [f"{block.task} {block.protocol} seed {block.seed}" for block in view.blocks]
    label_width = max(map(len, labels)) + 2
    wide = label_width + sum(len(name) + 2 for name in columns) <= sheet.width
    names = columns if wide else [str(number) for number in range(1, len(columns) + 1)]
    header = Text(" " * label_width, "dim")
    for name in names:
        header.append(f"{name}  ")
    lines = [header]
    for label, block in zip(labels, view.blocks, strict=True):
        line = Text(label.ljust(label_width))
        states = {cell.run: cell.state for cell in block.cells}
        for column, name in zip(columns, names, strict=True):
            state = states.get(column)
            mark = " " if state is None else _cell_mark(state, sheet.marks)
            line.append(mark.ljust(len(name) + 2), STATE_STYLES.get(state or "", ""))
        line.rstrip()
        lines.append(line)
    if not wide:
        words = "  ".join(f"{number} {name}" for number, name in zip(names, columns, strict=True))
        lines += [Text(part, "dim") for part in textwrap.wrap(words, sheet.width)]
    return lines


def _cell_mark(state: str, marks: Marks) -> str:
    return {
        "complete": marks.done,
        "failed": marks.failed,
        "skipped": marks.skipped,
        "running": marks.present,
        "elsewhere": marks.present,
        "stopped": "!",
        "waiting": marks.present,
        "missing": marks.open,
    }[state]


def _legend(view: StudyView, sheet: Sheet) -> Text:
    states = [cell.state for block in view.blocks for cell in block.cells]
    counted = {state: states.count(state) for state in STATE_STYLES if state in states}
    return Text(
        "  ".join(f"{_cell_mark(s, sheet.marks)} {count} {s}" for s, count in counted.items()),
        "dim",
    )


def _run_line(view: RunView, sheet: Sheet) -> Text:
    """One run at work in one line."""
    name = "/".join(view.folder.replace("\\", "/").split("/")[-4:])
    text = Text(f"{_cell_mark(view.state, sheet.marks)} {name}  ", STATE_STYLES[view.state])
    progress = view.progress
    if progress is not None:
        share = progress.finished_share
        whole = "" if share is None else f"{bar(share, 10, sheet.marks)} {share:.0%}  "
        text.append(
            f"{whole}{progress.stage} {progress.done}/{progress.total or '?'} {progress.note}".rstrip()
        )
    return text


def _study_ending(view: StudyView) -> list[Text]:
    lines = [
        Text(f"{block.task} {block.protocol} seed {block.seed} {cell.run}: {cell.error}", "red")
        for block in view.blocks
        for cell in block.cells
        if cell.state == "failed"
    ][-3:]
    if view.is_over and not view.is_complete:
        states = [cell.state for block in view.blocks for cell in block.cells]
        counts = " and ".join(
            f"{states.count(s)} {s}" for s in ("failed", "skipped") if s in states
        )
        lines.append(
            Text(
                f"all runs are settled, {counts}; the same 'auber study ... --out {view.folder}' tries them again",
                "red",
            )
        )
    elif view.is_over:
        lines.append(Text(f"all runs are settled; next: auber report {view.folder}", "green"))
    elif view.is_left:
        lines.append(
            Text(
                f"nobody is at work; the same 'auber study ... --out {view.folder}' goes on from here",
                "yellow",
            )
        )
    return lines
