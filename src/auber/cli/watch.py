"""`auber watch`: a run or a study from outside, while it goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from auber.cli import screen
from auber.cli.live.places import STUDY, find_place
from auber.errors import RunError

if TYPE_CHECKING:
    from rich.text import Text

    from auber.cli.live.drawing import Sheet

# Seconds with nobody at work before it counts as left: between two blocks of a study, or two runs of a folder, there is nobody.
_SURE_AFTER = 5.0
_FILE_WIDTH = 200  # of what is printed into a pipe or a file


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DIR",
            help="The folder of a run or of a study, or one of several runs: the newest is followed.",
            show_default=False,
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Show it as it is now and leave.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", help="Seconds between two looks.", min=0.1)
    ] = 1.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one look as JSON on stdout and leave.")
    ] = False,
) -> None:
    """Follow a search or a study in the terminal: stages, heads, rewards, time left, and whether anybody is at work.

    It only reads the folder, so it can be started before, during or after the run, more than once, and on another machine that
    sees the folder. It leaves when the run is over; Ctrl-C leaves it earlier and does nothing to the run. In a folder of several
    runs, such as that of 'auber demo --out', it goes from one to the next. Exit code 1: the run has stopped without a result, or runs of the study have none at its end.

    Of the heads of a layer, each a square, ■ stays, □ is removed and ▒ is being decided; behind them stand how many went and what
    that gained on the reward set, in points.

    Example: auber watch runs/mrpc
    """
    if once or json:
        sight = _find(folder)
        if sight is None:
            raise RunError(
                f"{folder}: must hold a run or a study, found neither; without --once it is waited for"
            )
        view = sight.look()
        if json:
            screen.print_json(asdict(view))
        else:
            console = Console()
            _print(console, sight.draw(view, _sheet(console, bounded=False)))
        if view.is_left or (view.is_over and not view.is_complete):
            raise typer.Exit(1)
        return
    try:
        ended_well = _follow(folder, interval)
    except KeyboardInterrupt:
        return  # whoever watched has seen enough
    if not ended_well:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Sight:
    """How to look at what lies in a place, and how to draw it."""

    place: Path
    look: Callable[[], Any]
    draw: Callable[[Any, Sheet], list[Text]]


def _find(folder: Path, known: _Sight | None = None) -> _Sight | None:
    """What is to be seen in a folder; None while there is nothing. What is `known` already goes on until a newer run begins."""
    if known is not None and known.place == folder:
        return known
    place = find_place(folder)
    if place is None or (known is not None and known.place == place):
        return known
    if (place / STUDY).is_file():
        from auber.cli.live.study import StudyWatcher
        from auber.cli.live.study_drawing import draw_study

        return _Sight(place, StudyWatcher(place).look, draw_study)
    from auber.cli.live.run import RunWatcher
    from auber.cli.live.run_drawing import draw_run

    return _Sight(place, RunWatcher(place).look, draw_run)


def _follow(folder: Path, interval: float) -> bool:
    """Draw until it is over; whether there is a result, in a study one of every run."""
    from rich.live import Live
    from rich.text import Text

    console = Console()
    on_screen = console.is_terminal and not console.is_dumb_terminal
    sight, last_sign, shown = None, time.monotonic(), ""
    with (
        Live(console=console, auto_refresh=False, vertical_overflow="crop")
        if on_screen
        else nullcontext() as live
    ):
        while True:
            sight = _find(folder, sight)
            view = None
            lines = [Text(f"waiting for a run or a study in {folder} (Ctrl-C leaves)")]
            if sight is not None:
                view = sight.look()
                lines = sight.draw(view, _sheet(console, bounded=on_screen))
            if live is not None:
                live.update(Text("\n").join(lines), refresh=True)
            elif (frame := "\n".join(line.plain for line in lines)) != shown:
                _print(console, [*lines, Text()])
                shown = frame
            if view is not None and view.is_over and sight is not None and sight.place == folder:
                return bool(view.is_complete)
            if view is None or not (view.is_over or view.is_left):
                last_sign = time.monotonic()
            elif time.monotonic() - last_sign >= _SURE_AFTER:
                return bool(view.is_complete)
            time.sleep(interval)


def _sheet(console: Console, *, bounded: bool) -> Sheet:
    """What the terminal takes; a frame that is not drawn over may be as long as it likes."""
    from auber.cli.live.drawing import ASCII, UNICODE, Sheet

    marks = UNICODE if console.encoding.startswith("utf") else ASCII
    is_file = (
        not console.is_terminal and "COLUMNS" not in os.environ
    )  # nothing of a line needs to be cut there
    return Sheet(
        max(console.width, _FILE_WIDTH) if is_file else console.width,
        console.height - 1 if bounded else None,
        marks,
    )


def _print(console: Console, lines: list[Text]) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
