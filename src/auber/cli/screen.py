"""What the command line draws: progress bars with the time left, tables, and plain lines where nobody watches."""

from __future__ import annotations

import json
import logging
import sys
import textwrap
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console

from auber.system.distributed import is_main_process
from auber.system.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from rich.progress import Progress as Bars

_BETWEEN = 2  # blanks between two columns of a table
_SPEED_OVER = 600.0  # seconds back that the time left is reckoned from: a run's stages differ, and some last minutes


@contextmanager
def listening(*, quiet: bool, warn: bool = True) -> Iterator[Progress]:
    """A listener that fits the terminal: bars on a screen, a line a stage in a log file, nothing if quiet.

    Quiet is without progress: what a reader of the scores must know is said all the same, unless `warn` is off.
    Of a group of processes the first one speaks; what it says holds for all.
    """
    console = Console(stderr=True)
    warn = warn and is_main_process()
    quiet = quiet or not is_main_process()
    logging.basicConfig(
        level=logging.ERROR if quiet else logging.WARNING,
        format="auber: %(message)s",
        handlers=[_CurrentStderr()],
    )
    _silence_libraries(quiet=quiet)
    with _our_warnings(shown=warn):
        if quiet:
            yield Progress()
        elif console.is_terminal:
            with _make_bars(console) as bars:
                yield BarProgress(bars)
        else:
            yield LineProgress(console)


class _CurrentStderr(logging.StreamHandler["TextIO"]):
    """What is logged goes to the stderr of that moment: bars put one in its place that writes above them, not into their lines."""

    @property
    def stream(self) -> TextIO:
        """The stderr of this moment."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Whatever stood here when the handler was made is not kept."""


@contextmanager
def _our_warnings(*, shown: bool) -> Iterator[None]:
    """Whether this package's warnings are heard, as long as the context is entered."""
    logger = logging.getLogger("auber")
    before = logger.level
    logger.setLevel(logging.WARNING if shown else logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _silence_libraries(*, quiet: bool) -> None:
    """The libraries' own bars would draw over ours, and their advice is meant for whoever calls them directly.

    What the hub's client says while it tries again is kept, for it may be half a minute; but once, not also as ours.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    hub = logging.getLogger("huggingface_hub")
    hub.propagate = not hub.handlers
    if quiet:
        hub.setLevel(logging.ERROR)


def _make_bars(console: Console) -> Bars:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    return Bars(
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=True,
        speed_estimate_period=_SPEED_OVER,
    )


class BarProgress(Progress):
    """Show two bars: one for the whole run, one for the current stage."""

    def __init__(self, bars: Bars) -> None:
        super().__init__()
        self._bars = bars
        self._whole = bars.add_task("whole run", total=None, note="")
        self._stage = bars.add_task("", total=None, note="", visible=False)

    def plan(self, stages: int) -> None:
        """Start the bar of the whole run."""
        super().plan(stages)
        self._bars.reset(self._whole, total=1.0)

    def skip(self, stages: int) -> None:
        """Move the bar of the whole run."""
        super().skip(stages)
        self._move()

    def begin(self, stage: str, total: int) -> None:
        """Show the bar of a stage."""
        super().begin(stage, total)
        self._bars.reset(
            self._stage, total=total or None, description=f"  {stage}", note="", visible=True
        )

    def step(self, done: int, note: str = "") -> None:
        """Move both bars."""
        super().step(done, note)
        self._bars.update(self._stage, completed=done, note=note)
        self._move()

    def end(self) -> None:
        """Hide the bar of the stage."""
        super().end()
        self._move()
        self._bars.update(self._stage, visible=False)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        print_line(self._bars.console, text)

    def _move(self) -> None:
        self._bars.update(self._whole, completed=self.share or 0.0)


class LineProgress(Progress):
    """Print one line when a stage ends: for log files and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console, self._started = console, 0.0

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage."""
        super().begin(stage, total)
        self._started = time.perf_counter()

    def end(self) -> None:
        """Print how long the stage took."""
        note = f", {self.note}" if self.note else ""
        self.say(f"{self.stage}: {time.perf_counter() - self._started:.1f} s{note}")
        super().end()

    def say(self, text: str) -> None:
        """Print a line."""
        print_line(self._console, text)


def print_line(console: Console, text: str) -> None:
    """A text as it is: on a terminal wrapped between words, in a log file one line however long."""
    console.print(text, highlight=False, markup=False, soft_wrap=not console.is_terminal)


def print_json(data: Any) -> None:
    """JSON on stdout."""
    print(json.dumps(data, indent=2, ensure_ascii=False))


def print_table(columns: list[str], rows: list[list[str]], *, title: str | None = None) -> None:
    """A table on stdout; numbers to the right. No word is torn: where the words have no room side by side, a row is a block of lines."""
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if title is not None:
        console.print(Text(title, "italic"))
    widths = fit_columns(columns, rows, console.width)
    if widths is None:
        _print_blocks(console, columns, rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(_looks_numeric(row[index]) for row in rows)
        table.add_column(
            Text(column),
            justify="right" if numeric else "left",
            width=widths[index],
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def fit_columns(columns: list[str], rows: list[list[str]], width: int) -> list[int] | None:
    """The width of each column so that they fit side by side, the first unbroken, the others between words; None if they cannot."""
    cells = [[title, *(row[index] for row in rows)] for index, title in enumerate(columns)]
    widths = [max(map(cell_len, column)) for column in cells]
    least = [
        widths[0],
        *(
            max(cell_len(word) for cell in column for word in cell.split() or [""])
            for column in cells[1:]
        ),
    ]
    room = width - _BETWEEN * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max(
            (index for index in range(len(widths)) if widths[index] > least[index]),
            key=lambda index: widths[index],
        )
        widths[widest] -= 1
    return widths


def _print_blocks(console: Console, columns: list[str], rows: list[list[str]]) -> None:
    """Each row as its first cell, and below it the others in a line each behind their titles; empty ones are left out."""
    from rich.text import Text

    longest = max(map(cell_len, columns[1:]), default=0)
    for row in rows:
        console.print(Text(row[0], "bold"), soft_wrap=True)
        for title, cell in zip(columns[1:], row[1:], strict=True):
            if cell:
                console.print(
                    Text(f"  {title}{' ' * (longest - cell_len(title))}  {cell}"), soft_wrap=True
                )


def wrap(text: str, *, first: str = "", later: str = "") -> str:
    """A text in lines as wide as the terminal, the first and the later ones behind something; words are not torn."""
    width = max(Console().width, len(first) + 20, len(later) + 20)
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _looks_numeric(cell: str) -> bool:
    return cell in ("", "-") or cell.lstrip("+-")[:1].isdigit()


def describe_result(result: dict[str, Any]) -> list[str]:
    """A result in a few lines."""
    dev, heads, cost = result["dev"], result["heads"], result["cost"]
    lines = [
        f"dev {result['metric']} {100 * dev['score']:.2f}, train {100 * result['train']['score']:.2f}, "
        f"gap {100 * result['gap']:+.2f} points (protocol {result['protocol']}, seed {result['seed']})",
        f"{heads['removed']} of {heads['total']} heads removed; {cost['rewards_computed']} rewards computed for "
        f"{cost['rewards_asked']} asked; {tuning_words(cost)}; {cost['seconds']['total']:.0f} s",
    ]
    return [*lines, *warnings_of(dev, result["metric"], "dev")]


def tuning_words(cost: dict[str, Any]) -> str:
    """The steps of a run's own tunings, and of those that its search made to decide."""
    others = {"scouts": cost.get("scout_steps"), "gates": cost.get("gate_steps")}
    words = ", ".join(f"{steps} of {name}" for name, steps in others.items() if steps)
    return f"{cost['tuning_steps']} tuning steps" + (f" (and {words})" if words else "")


def warnings_of(scores: dict[str, Any], metric: str, split: str) -> Iterator[str]:
    """What a reader of a score must know."""
    if scores["one_class"]:
        yield f"careful: the model gives everything in {split} the same answer, so its score says nothing of the rows"
    elif (
        scores["majority"] is not None
        and metric == "accuracy"
        and scores["score"] <= scores["majority"]
    ):
        yield f"careful: always answering the most frequent class would score {100 * scores['majority']:.2f}"
