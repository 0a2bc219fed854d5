"""`auber watch`: a run or a study from outside, while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from auber.cli import screen
from auber.errors import RunError

if TYPE_CHECKING:
    from rich.text import Text

    from auber.watch.drawing import Sheet

_SURE_AFTER = 5.0  # seconds with nobody at work before it counts as left: between two blocks of a study there is nobody


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|DIR", help="The folder of a run or of a study.", show_default=False)
    ],
    once: Annotated[bool, typer.Option("--once", help="Show it as it is now and leave.")] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.1)] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print one look as JSON on stdout and leave.")] = False,
) -> None:
    """Follow a search or a study in the terminal: stages, heads, rewards, time left, and whether anybody is at work.

    It only reads the folder, so it can be started before, during or after the run, more than once, and on another machine that
    sees the folder. It leaves when the run is over; Ctrl-C leaves it earlier and does nothing to the run.
    Exit code 1: the run has stopped without a result.

    Example: auber watch runs/mrpc
    """
    if once or json:
        found = _find(folder)
        if found is None:
            raise RunError(f"{folder}: must hold a run or a study, found neither; without --once it is waited for")
        look, draw = found
        if json:
            screen.print_json(asdict(look()))
        else:
            console = Console()
            _print(console, draw(look(), _sheet(console, bounded=False)))
        return
    try:
        ended_well = _follow(folder, interval)
    except KeyboardInterrupt:
        return  # whoever watched has seen enough
    if not ended_well:
        raise typer.Exit(1)


def _find(folder: Path) -> tuple[Callable[[], Any], Callable[[Any, Sheet], list[Text]]] | None:
    """How to look at what lies in a folder, and how to draw it; None while there is nothing."""
    if (folder / "study.toml").is_file():
        from auber.watch.study import StudyWatcher
        from auber.watch.study_drawing import draw_study

        return StudyWatcher(folder).look, draw_study
    if (folder / "run.json").is_file():
        from auber.watch.run import RunWatcher
        from auber.watch.run_drawing import draw_run

        return RunWatcher(folder).look, draw_run
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.is_dir() else set()
    if folder.is_file() or names - {
        "stages",
        "config.toml",
    }:  # these two are made before the run can be told by its file
        raise RunError(f"{folder}: must be the folder of a run or of a study, found something else; name its --out")
    return None


def _follow(folder: Path, interval: float) -> bool:
    """Draw until it is over; whether there is a result."""
    from rich.live import Live
    from rich.text import Text

    console = Console()
    on_screen = console.is_terminal and not console.is_dumb_terminal
    found, last_sign, shown = None, time.monotonic(), ""
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") if on_screen else nullcontext() as live:
        while True:
            found = found or _find(folder)
            view = None
            lines = [Text(f"waiting for a run or a study in {folder} (Ctrl-C leaves)")]
            if found is not None:
                look, draw = found
                view = look()
                lines = draw(view, _sheet(console, bounded=on_screen))
            if live is not None:
                live.update(Text("\n").join(lines), refresh=True)
            elif (frame := "\n".join(line.plain for line in lines)) != shown:
                _print(console, [*lines, Text()])
                shown = frame
            if view is None or not view.is_left:
                last_sign = time.monotonic()
            if view is not None and view.is_over:
                return True
            if time.monotonic() - last_sign >= _SURE_AFTER:
                return False
            time.sleep(interval)


def _sheet(console: Console, *, bounded: bool) -> Sheet:
    """What the terminal takes; a frame that is not drawn over may be as long as it likes."""
    from auber.watch.drawing import ASCII, UNICODE, Sheet

    marks = UNICODE if console.encoding.startswith("utf") else ASCII
    return Sheet(console.width, console.height - 1 if bounded else None, marks)


def _print(console: Console, lines: list[Text]) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
