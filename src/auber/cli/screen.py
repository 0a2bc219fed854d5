"""The output of the commands: progress, log messages, tables, JSON and results."""

from __future__ import annotations

import json
import logging
import os
import textwrap
import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console

from auber.run.summary import describe_agreement, describe_change, describe_sizes, measure_of
from auber.system.distributed import is_main_process
from auber.system.progress import LogProgress, Progress, describe_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType
    from rich.progress import Progress as Bars

_UNLEARNED = (
    "warning: the fine-tuned model learned nothing, so the choice of what to remove is arbitrary"
)
_NO_LIMIT = 10_000  # columns
_WHOLE_CELL = 40  # columns of a cell that is not wrapped
_TICK_SECONDS = 5.0


@contextmanager
def listening(*, quiet: bool, warn: bool = True) -> Iterator[Progress]:
    """Yield a listener that shows progress on stderr, and set up logging.

    It shows a bar on a terminal, a line per stage and half minute in a file, nothing if `quiet`.
    Warnings are shown even then, unless `warn` is off. Of several processes only the main one
    prints.
    """
    is_main = is_main_process()
    quiet = quiet or not is_main
    root = logging.getLogger()
    # The handler of last resort prints to the current stderr: rich replaces it to print above bars.
    if not root.handlers and logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter("auber: warning: %(message)s"))
        root.setLevel(logging.ERROR if quiet else logging.WARNING)
    _silence_libraries(quiet=quiet)
    logger, console = logging.getLogger("auber"), Console(stderr=True)
    level = logger.level
    logger.setLevel(logging.WARNING if warn and is_main else logging.ERROR)
    began = time.monotonic()
    try:
        if quiet:
            yield Progress()
            return
        progress: Progress
        if console.is_terminal:
            with make_bars(console) as bars:
                progress = BarProgress(bars)
                yield progress
        else:
            progress = LogProgress(lambda text: print_line(console, text))
            with ticking(progress.tick):
                yield progress
        if progress.planned:
            print_line(console, f"took {describe_seconds(time.monotonic() - began)} in all")
    finally:
        logger.setLevel(level)


@contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call a function every few seconds in the background, so that no log stays silent for long."""
    is_over = Event()

    def run() -> None:
        while not is_over.wait(_TICK_SECONDS):
            tick()

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _silence_libraries(*, quiet: bool) -> None:
    """Hide the libraries' progress bars and advice, which are for those who call them directly.

    Messages about retries of downloads stay, because these can take half a minute.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    hub = logging.getLogger("huggingface_hub")
    hub.propagate = not hub.handlers  # or its messages are printed twice
    if quiet:
        hub.setLevel(logging.ERROR)


def make_bars(console: Console) -> Bars:
    """Return bars for a terminal, each with its note below; in a file they stay invisible."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Noted(Bars):
        def get_renderables(self) -> Iterator[RenderableType]:
            for task in self.tasks:
                yield self.make_tasks_table([task])
                yield Text(task.fields["note"], no_wrap=True, overflow="ellipsis")

    return Noted(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def describe_left(seconds: float | None) -> str:
    """Return the time left in words; nothing if it is not known."""
    return "" if seconds is None else f"about {describe_seconds(seconds)} left"


class BarProgress(Progress):
    """Show a bar for the whole run, and below it the current step."""

    def __init__(self, bars: Bars) -> None:
        super().__init__()
        self._bars = bars
        self._bar = bars.add_task("whole run", total=1.0, note="  loading", left="")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        print_line(self._bars.console, text)

    def _notify(self, method: str, *values: object) -> None:
        steps = f"  {self.done} of {self.total}" if self.total else ""
        note = f"  {self.stage}{steps}  {self.note}" if self.stage else ""
        self._bars.update(
            self._bar,
            completed=self.share or 0.0,
            left=describe_left(self.seconds_left),
            note=note,
        )


def print_line(console: Console, text: str) -> None:
    """Print a text as one line, which a terminal may wrap: commands in it can be copied."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print JSON on stdout."""
    print(json.dumps(data, indent=2, ensure_ascii=False))


def open_stdout() -> Console:
    """Return a console on stdout; a pipe or file gets unwrapped lines, unless COLUMNS is set."""
    console = Console(highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(highlight=False, width=_NO_LIMIT)


def print_table(columns: list[str], rows: list[list[str]], *, title: str | None = None) -> None:
    """Print a table on stdout, with numbers to the right.

    Only cells of many words are wrapped: where the others do not fit, lines are too long.
    """
    from rich.table import Table
    from rich.text import Text

    console = open_stdout()
    if title is not None:
        console.print(Text(title, "italic"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, cells in enumerate(zip(columns, *rows, strict=True)):
        is_numeric = bool(rows) and all(map(_looks_numeric, cells[1:]))
        is_whole = index == 0 or max(map(cell_len, cells)) <= _WHOLE_CELL
        words = cells if is_whole else " ".join(cells).split()
        table.add_column(
            Text(cells[0]),
            justify="right" if is_numeric else "left",
            min_width=max(map(cell_len, words), default=0),
            no_wrap=is_whole,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table, crop=False, no_wrap=True, overflow="ignore")


def wrap(text: str, *, first: str = "", later: str = "") -> str:
    """Wrap a text to the terminal between words; `first` and `later` begin the lines."""
    width = max(open_stdout().width, len(first) + 20, len(later) + 20)
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
    """Return the lines that summarise a result."""
    dev, cost, learned = result["dev"], result["cost"], result.get("learned")
    others = {"fold models": cost.get("scout_steps"), "gates": cost.get("gate_steps")}
    more = ", ".join(f"{steps} of {name}" for name, steps in others.items() if steps)
    protocol = f"protocol {result['protocol']}, " if cost["rewards_asked"] else ""
    rewards = f"{cost['rewards_computed']} rewards computed of {cost['rewards_asked']} requested; "
    return [
        f"dev {measure_of(result)} {100 * dev['score']:.2f}, train "
        f"{100 * result['train']['score']:.2f}, gap {100 * result['gap']:+.2f} points "
        f"({protocol}seed {result['seed']})",
        describe_size(result),
        f"{rewards if cost['rewards_asked'] else ''}"
        f"{cost['tuning_steps']} tuning steps{f' (and {more})' if more else ''}; "
        f"{cost['seconds']['total']:.0f} s",
        *describe_warnings(dev, result["metric"], "dev"),
        *describe_sizes(result),
        *([agreement] if (agreement := describe_agreement(result)) else []),
        *([change] if (change := describe_change(result)) else []),
        *([_UNLEARNED] if learned and not learned["learned"] else []),
    ]


def describe_size(result: dict[str, Any]) -> str:
    """Return what was removed and what remains, in one line."""
    removed = [
        f"{counts['removed']:,} of {counts['total']:,} {unit}"
        for unit in ("heads", "neurons")
        if (counts := result.get(unit)) is not None
    ]
    remaining = result.get("remaining")
    if remaining is None:
        return f"{' and '.join(removed)} removed"
    return (
        f"{' and '.join(removed)} removed; {100 * remaining['multiply_adds']:.1f} % of the "
        f"multiply-adds (rows of {remaining['length']} tokens) and "
        f"{100 * remaining['parameters']:.1f} % of the parameters remain"
    )


def describe_warnings(scores: dict[str, Any], metric: str, split: str) -> Iterator[str]:
    """Yield warnings if the model always predicts one class, or scores like one that does."""
    majority = scores.get("majority")
    if scores.get("one_class"):
        always = f"warning: the model predicts the same for every row of {split}"
        yield f"{always}, so the score means little"
    elif majority is not None and metric == "accuracy" and scores["score"] <= majority:
        yield f"warning: always predicting the most frequent class would score {100 * majority:.2f}"
