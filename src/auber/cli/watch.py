"""`auber watch`: follow a run or a study from another terminal."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from auber.cli import screen
from auber.errors import RunError
from auber.search.stages import is_layer_stage
from auber.system.progress import describe_seconds

if TYPE_CHECKING:
    from auber.cli.status import LayerStatus, RunReader, RunStatus
    from auber.cli.study_status import StudyReader, StudyStatus

RUN, STUDY = "run.json", "study.toml"
_BEFORE_RUN = {"stages", "config.toml"}  # written before run.json
# Between two runs of a study or of a folder, no process is at work.
_SURE_SECONDS = 5.0
_FILE_WIDTH = 200
_STOPS = {"KeyboardInterrupt": "stopped by Ctrl-C", "Terminated": "stopped by SIGTERM"}
_MARKS = {
    "done": "✓",
    "complete": "✓",
    "failed": "✗",
    "skipped": "○",
    "stopped": "!",
    "open": "·",
    "missing": "·",
}
_STYLES = {
    "running": "green",
    "complete": "green",
    "elsewhere": "yellow",
    "waiting": "yellow",
    "stopped": "red",
    "failed": "red",
    "skipped": "yellow",
    "missing": "dim",
}
_ASCII = str.maketrans("✓▶·■□▒━─✗○…", "+>.#-?=-x~.")


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DIR",
            help="The folder of a run or a study, or of several runs: then the newest is shown.",
            show_default=False,
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Print the status once and exit.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", help="Seconds between two updates.", min=0.1)
    ] = 1.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print the status as JSON on stdout and exit.")
    ] = False,
) -> None:
    """Follow a run or a study: stage, heads, scores, time left, and whether a process works on it.

    It only reads the folder: start it before, during or after the run, also on another machine that
    sees the folder. It exits when the run is over; Ctrl-C exits earlier and does not affect the
    run. In a folder of several runs, such as that of 'auber demo', it moves on to the next run.
    Exit code 1: the run stopped without a result, or runs of the study failed.

    Heads are squares: ■ stays, □ is removed, ▒ is not decided. Behind them: how many heads the
    layer lost, and the gain on the reward set in points.

    Example: auber watch runs/mrpc
    """
    if not once and not json:
        try:
            ended_well = _follow(folder, interval)
        except KeyboardInterrupt:
            return
        if not ended_well:
            raise typer.Exit(1)
        return
    reader = find_reader(folder)
    if reader is None:
        raise RunError(
            f"{folder}: must hold a run or a study, found neither; without --once 'auber watch' "
            "waits for it"
        )
    status = reader.read()
    if json:
        screen.print_json(status.to_json())
    else:
        console = _console()
        console.print(draw(status, console))
    if status.state in ("stopped", "failed"):
        raise typer.Exit(1)


def find_reader(
    folder: Path, known: RunReader | StudyReader | None = None
) -> RunReader | StudyReader | None:
    """Return the reader of what is in a folder, `known` if nothing newer is; None if nothing is."""
    place = known.folder if known and known.folder == folder else find_place(folder)
    if place is None or (known is not None and known.folder == place):
        return known
    if (place / STUDY).is_file():
        from auber.cli.study_status import StudyReader

        return StudyReader(place)
    from auber.cli.status import RunReader

    return RunReader(place)


def find_place(folder: Path) -> Path | None:
    """Return the folder itself, or that of the newest run in it; None if there is nothing yet."""
    if (folder / RUN).is_file() or (folder / STUDY).is_file():
        return folder
    below = _visible(folder)
    runs = [path for path in below if (path / RUN).is_file()]
    if runs:
        return max(runs, key=_began)
    names = {
        path.name for path in below if not {each.name for each in _visible(path)} & _BEFORE_RUN
    }
    if folder.is_file() or names - _BEFORE_RUN:
        raise RunError(
            f"{folder}: must be the folder of a run, of several, or of a study, found something "
            "else; name its --out"
        )
    return None


def _visible(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _began(run: Path) -> tuple[float, Path]:
    try:
        return (run / RUN).stat().st_mtime, run
    except OSError:  # just deleted
        return 0.0, run


def _follow(folder: Path, interval: float) -> bool:
    """Show the status until the run or study is over; return whether it has its results."""
    console = _console()
    is_live = console.is_terminal and not console.is_dumb_terminal
    reader, last_sign, shown = None, time.monotonic(), ""
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
    with live if is_live else nullcontext():
        while True:
            reader = find_reader(folder, reader)
            status = None if reader is None else reader.read()
            waiting = f"waiting for a run or a study in {folder} (Ctrl-C exits)"
            frame = Text(waiting) if status is None else draw(status, console)
            if is_live:
                live.update(frame, refresh=True)
            else:
                with console.capture() as capture:
                    console.print(frame, "")  # an empty line between two frames
                if capture.get() != shown:
                    shown = capture.get()
                    console.file.write(shown)
                    console.file.flush()
            state = status.state if status else "waiting"
            if state in ("complete", "failed") and reader is not None and reader.folder == folder:
                return state == "complete"
            if state in ("waiting", "running", "elsewhere"):
                last_sign = time.monotonic()
            elif time.monotonic() - last_sign >= _SURE_SECONDS:
                return state == "complete"
            time.sleep(interval)


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _FILE_WIDTH
    return console


def draw(status: RunStatus | StudyStatus, console: Console) -> RenderableType:
    """Return the status to print, the important lines first: the screen may be short."""
    from auber.cli.status import RunStatus

    parts = _draw_run(status) if isinstance(status, RunStatus) else _draw_study(status)
    frame = Group(*parts)
    if console.encoding.startswith("utf"):
        return frame
    with console.capture() as capture:
        console.print(frame, end="")
    return Text.from_ansi(capture.get().translate(_ASCII))


def _line(text: str, style: str = "") -> Text:
    return Text(text.rstrip(), style, no_wrap=True, overflow="ellipsis")


def _bar(share: float, width: int) -> str:
    filled = round(share * width)
    return "━" * filled + "─" * (width - filled)


def _draw_run(status: RunStatus) -> list[RenderableType]:
    if status.run is None:
        return [_line(f"waiting for a run in {status.folder}", "yellow")]
    run, result = status.run, status.result
    method = f"  method {run.method}" if run.kind == "prune" else ""
    facts = f"seed {status.seed}  protocol {status.protocol}  model {run.model}"
    parts: list[RenderableType] = [
        _line(f"auber {run.kind}  task {run.task}{method}  {facts}", "bold"),
        _standing(status),
    ]
    if result is not None:
        parts.append(
            _line(
                f"dev {run.metric} {100 * result.dev.score:.2f}, train "
                f"{100 * result.train.score:.2f}, "
                f"gap {100 * result.gap:+.2f} points; {result.heads.removed} of "
                f"{result.heads.total} heads removed; "
                f"{describe_seconds(result.cost.seconds['total'])}"
            )
        )
    if status.error is not None:
        parts.append(Text(_STOPS.get(status.error.partition(":")[0], status.error), "red"))
    if status.resume is not None:
        parts.append(Text(f"nobody is at work; go on with: {status.resume}", "yellow"))
    stages = Text(no_wrap=True)
    for stage in status.stages:
        if not is_layer_stage(stage.name):
            took = "" if stage.seconds is None else f" {describe_seconds(stage.seconds)}"
            style = "dim" if stage.state == "open" else ""
            stages.append(f"{_MARKS.get(stage.state, '▶')} {stage.name}{took}   ", style)
    parts += [stages, *_draw_progress(status)]
    if status.layers:
        cells = [
            _layer(index, layer, status.num_heads) for index, layer in enumerate(status.layers)
        ]
        parts.append(Columns(cells, padding=(0, 3), column_first=True))
    events = status.events
    if status.error is not None and events and events[-1][1].startswith("stopped: "):
        events = events[:-1]
    for moment, text in events[-3:]:
        parts.append(_line(f"{time.strftime('%H:%M:%S', time.localtime(moment))} {text}", "dim"))
    return parts


def _standing(status: RunStatus) -> Text:
    """Return whether a process is at work, since when, and where."""
    text = _line(status.state, _STYLES[status.state])
    if status.running_seconds is not None and status.state != "stopped":
        text.append(f" for {describe_seconds(status.running_seconds)}")
    if status.process is not None and status.state != "complete":
        host = f" on {status.process.host}" if status.process.host else ""
        text.append(f"  process {status.process.id}{host}")
        if status.silent_seconds is not None:
            text.append(f"  last sign {describe_seconds(status.silent_seconds)} ago")
    return text.append(f"  in {status.folder}", "dim")


def _draw_progress(status: RunStatus) -> list[Text]:
    """Return the lines on the current stage, the whole run, the search and the tuning."""
    lines = []
    stage, search, tuning = status.stage, status.search, status.tuning
    if stage is not None:
        left = status.stage_seconds_left
        bar = _bar(min(1.0, stage.done / stage.total) if stage.total else 0.0, 20)
        time_left = "" if left is None else f"  {describe_seconds(left)} left"
        count = f"{stage.done}/{stage.total or '?'}{time_left}"
        lines.append(_line(f"{stage.name:<20}  {bar}  {count}  {stage.note}"))
        if status.share is not None:
            left = status.layers_seconds_left
            time_left = "" if left is None else f"  open layers about {describe_seconds(left)}"
            bar = _bar(status.share, 20)
            lines.append(_line(f"{'whole run':<20}  {bar}  {status.share:.0%}{time_left}"))
    if search is not None:
        asked = "" if search.rewards_asked is None else f"{search.rewards_asked} requested, "
        words = f"rewards {asked}{search.rewards_computed} computed"
        if search.best_score is not None:
            words += f"  best {search.best_score:.4f}"
            if search.given_score is not None:
                base = "begun at" if search.given else "unpruned"
                gain = 100 * (search.best_score - search.given_score)
                words += f", {base} {search.given_score:.4f} ({gain:+.2f})"
        lines.append(_line(words))
    if tuning is not None:
        pace = f", {tuning.steps_per_second:.1f} steps/s" if tuning.steps_per_second else ""
        lines.append(_line(f"loss {tuning.loss:.4f} at step {tuning.step}{pace}"))
    return lines


def _layer(index: int, layer: LayerStatus, num_heads: int) -> Text:
    is_open = layer.state == "open"
    mark = {"decided": "✓", "searched": "✓", "open": "·"}.get(layer.state, "▶")
    text = Text(f"{mark} {index:>2} ", "dim" if is_open else "", no_wrap=True)
    others = {"decided": ("■", "green"), "open": ("·", "dim")}.get(layer.state, ("▒", "yellow"))
    for head in range(num_heads):
        text.append(*(("□", "red") if head in layer.removed else others))
    if layer.state == "decided":
        text.append(f" {-len(layer.removed) or '0':>3}")
        if layer.gain is not None:
            text.append(f" {100 * layer.gain:+.2f}", "dim")
    return text


def _draw_study(status: StudyStatus) -> list[RenderableType]:
    parts: list[RenderableType] = [_line(f"study {status.folder}  model {status.model}", "bold")]
    seconds = status.seconds_left
    left = "" if seconds is None else f"  about {describe_seconds(seconds)} left"
    bar = _bar(status.settled / status.total, 28)
    parts.append(_line(f"{bar}  {status.settled} of {status.total} runs settled{left}"))
    states = [cell.state for _, cell in status.cells]
    counts = {state: states.count(state) for state in _STYLES if state in states}
    again = f"the same 'auber study ... --out {status.folder}'"
    if status.state == "complete":
        parts.append(Text(f"all runs are settled; next: auber report {status.folder}", "green"))
    elif status.state == "failed":
        bad = " and ".join(f"{counts[s]} {s}" for s in ("failed", "skipped") if s in counts)
        parts.append(Text(f"all runs are settled, {bad}; {again} tries them again", "red"))
    elif status.state == "stopped":
        parts.append(Text(f"nobody is at work; {again} goes on from here", "yellow"))
    failed = [(block, cell) for block, cell in status.cells if cell.state == "failed"]
    parts += [_line(f"{block} {cell.run}: {cell.error}", "red") for block, cell in failed[-3:]]
    for run in status.current:
        name = "/".join(Path(run.folder).parts[-4:])
        text = _line(f"{_MARKS.get(run.state, '▶')} {name}  ", _STYLES[run.state])
        if run.stage is not None:
            stage, share = run.stage, run.share
            whole = "" if share is None else f"{_bar(share, 10)} {share:.0%}  "
            text.append(f"  {whole}{stage.name} {stage.done}/{stage.total or '?'} {stage.note}")
        parts.append(text)
    names = list(dict.fromkeys(cell.run for _, cell in status.cells))
    grid = Table("", *names, box=None, pad_edge=False, header_style="dim")
    for block in status.blocks:
        cells = {cell.run: cell.state for cell in block.cells}
        marks = [
            Text(_MARKS.get(cells[name], "▶"), _STYLES[cells[name]]) if name in cells else Text()
            for name in names
        ]
        grid.add_row(Text(f"{block.task} {block.protocol} seed {block.seed}"), *marks)
    legend = "  ".join(f"{_MARKS.get(state, '▶')} {n} {state}" for state, n in counts.items())
    return [*parts, grid, _line(legend, "dim")]
