"""`auber watch`: follow a run or a study from another terminal."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext, suppress
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
_LOOKS = {  # of the states of runs, stages and layers: mark and style
    "running": ("▶", "green"),
    "complete": ("✓", "green"),
    "elsewhere": ("▶", "yellow"),
    "waiting": ("▶", "yellow"),
    "stopped": ("!", "red"),
    "failed": ("✗", "red"),
    "skipped": ("○", "yellow"),
    "missing": ("·", "dim"),
    "done": ("✓", ""),
    "current": ("▶", ""),
    "open": ("·", "dim"),
}
_HEADS = {
    "decided": ("✓", "■", "green"),
    "searched": ("✓", "▒", "yellow"),
    "open": ("·", "·", "dim"),
}
_ASCII = str.maketrans("✓▶·■□▒━─✗○…", "+>.#-?=-x~.")


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DIR",
            help="The folder of a run or a study, or of several runs: then the newest is shown.",
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
    runs = []
    for path in folder.glob(f"[!.]*/{RUN}"):
        with suppress(OSError):  # just deleted
            runs.append((path.stat().st_mtime_ns, path.parent))
    if runs:
        return max(runs)[1]
    others = [
        path
        for path in folder.glob("[!.]*")
        if not any((path / name).exists() or path.name == name for name in _BEFORE_RUN)
    ]
    if folder.is_file() or others:
        raise RunError(
            f"{folder}: must be the folder of a run, of several, or of a study, found something "
            "else; name its --out"
        )
    return None


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
    run = status.run
    method = f"  method {run.method}" if run.kind == "prune" else ""
    facts = f"seed {status.seed}  protocol {status.protocol}  model {run.model}"
    parts: list[RenderableType] = [
        _line(f"auber {run.kind}  task {run.task}{method}  {facts}", "bold"),
        _standing(status),
    ]
    if status.result is not None:
        parts += [_line(line) for line in screen.describe_result(status.result.to_json())]
    if status.error is not None:
        parts.append(Text(_STOPS.get(status.error.partition(":")[0], status.error), "red"))
    if status.resume is not None:
        parts.append(Text(f"nobody is at work; go on with: {status.resume}", "yellow"))
    stages = Text()
    for stage in status.stages:
        if not is_layer_stage(stage.name):
            took = "" if stage.seconds is None else f" {describe_seconds(stage.seconds)}"
            mark, style = _LOOKS[stage.state]
            stages.append(f"{mark} {stage.name}{took}   ", style)
    parts += [stages, *_draw_progress(status)]
    if status.layers:
        cells = [
            _layer(index, layer, status.num_heads) for index, layer in enumerate(status.layers)
        ]
        parts.append(Columns(cells, padding=(0, 3), column_first=True))
    for moment, text in status.messages:
        parts.append(_line(f"{time.strftime('%H:%M:%S', time.localtime(moment))} {text}", "dim"))
    return parts


def _standing(status: RunStatus) -> Text:
    """Return whether a process is at work, since when, and where."""
    text = _line(status.state, _LOOKS[status.state][1])
    if status.running_seconds is not None:
        text.append(f" for {describe_seconds(status.running_seconds)}")
    if status.process is not None and status.state != "complete":
        host = f" on {status.process.host}" if status.process.host else ""
        text.append(f"  process {status.process.id}{host}")
        if status.silent_seconds is not None:
            text.append(f"  last sign {describe_seconds(status.silent_seconds)} ago")
    return text.append(f"  in {status.folder}", "dim")


def _draw_progress(status: RunStatus) -> list[Text]:
    """Return the lines on the current stage and the whole run."""
    lines = []
    stage = status.stage
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
    numbers = (f"{name.replace('_', ' ')} {value:.4g}" for name, value in status.numbers.items())
    if status.numbers:
        lines.append(_line("  ".join(numbers)))
    return lines


def _layer(index: int, layer: LayerStatus, num_heads: int) -> Text:
    mark, stays, style = _HEADS.get(layer.state, ("▶", "▒", "yellow"))
    text = Text(f"{mark} {index:>2} ", "dim" if layer.state == "open" else "", no_wrap=True)
    for head in range(num_heads):
        text.append(*(("□", "red") if head in layer.removed else (stays, style)))
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
    states = [cell.state for cell in status.cells]
    counts = {state: states.count(state) for state in _LOOKS if state in states}
    again = f"the same 'auber study ... --out {status.folder}'"
    if status.state == "complete":
        parts.append(Text(f"all runs are settled; next: auber report {status.folder}", "green"))
    elif status.state == "failed":
        bad = " and ".join(f"{counts[s]} {s}" for s in ("failed", "skipped") if s in counts)
        parts.append(Text(f"all runs are settled, {bad}; {again} tries them again", "red"))
    elif status.state == "stopped":
        parts.append(Text(f"nobody is at work; {again} goes on from here", "yellow"))
    failed = [cell for cell in status.cells if cell.state == "failed"]
    parts += [_line(f"{cell.block} {cell.run}: {cell.error}", "red") for cell in failed[-3:]]
    for run in status.current:
        name = "/".join(Path(run.folder).parts[-4:])
        mark, style = _LOOKS[run.state]
        text = _line(f"{mark} {name}", style)
        if run.stage is not None:
            stage, share = run.stage, run.share
            whole = "" if share is None else f"{_bar(share, 10)} {share:.0%}  "
            text.append(f"  {whole}{stage.name} {stage.done}/{stage.total or '?'} {stage.note}")
        parts.append(text)
    runs = dict.fromkeys(cell.run for cell in status.cells)
    grid = Table("", *runs, box=None, pad_edge=False, header_style="dim")
    for block in dict.fromkeys(cell.block for cell in status.cells):
        marks = {
            cell.run: Text(*_LOOKS[cell.state]) for cell in status.cells if cell.block == block
        }
        grid.add_row(Text(block), *(marks.get(run, "") for run in runs))
    legend = "  ".join(f"{_LOOKS[state][0]} {n} {state}" for state, n in counts.items())
    return [*parts, grid, _line(legend, "dim")]
