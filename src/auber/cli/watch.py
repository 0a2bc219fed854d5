"""`auber watch`: follow a run or a study from another terminal."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from auber.cli import screen
from auber.cli.status import RunStatus, StudyStatus, read_status
from auber.errors import RunError, printable
from auber.run.files import is_run
from auber.search.stages import is_layer_stage
from auber.study.folder import RECORD
from auber.system.progress import describe_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

# Between two runs of a study or of a folder, no process is at work.
_SURE_SECONDS = 5.0
_STOPS = {"KeyboardInterrupt": "stopped by Ctrl-C", "Terminated": "stopped by SIGTERM"}
_STYLES = {"running": "green", "complete": "green", "stopped": "red", "failed": "red"}


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DIR",
            help="The folder of a run or a study, or of several runs: then the newest is shown.",
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Print the status and exit.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two updates.", min=0.1)] = 1.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print the status as JSON on stdout and exit.")
    ] = False,
) -> None:
    """Follow a run or a study from another terminal.

    It shows the stage, the time left, the heads removed, scores, and what stopped the run. It only
    reads the folder: start it before, during or after the run, also on another machine that sees
    the folder. It exits when the run is over; Ctrl-C exits earlier and does not affect the run. In
    a folder of several runs, such as that of 'auber demo', it moves on to the next run.
    Exit code 1: the run stopped without a result, or runs of the study failed.

    Heads are squares: ■ stays, □ is removed, · is not decided. The gain is that on the reward set,
    in points.

    Example: auber watch runs/mrpc
    """
    if not once and not json:
        with suppress(KeyboardInterrupt):
            last = _follow(folder, interval)
            _print_resume(last)
            if last is None or last.state != "complete":
                raise typer.Exit(1)
        return
    place = find_place(folder)
    if place is None:
        raise RunError(
            f"{folder}: must hold a run or a study, found neither; without --once 'auber watch' "
            "waits for it"
        )
    status = read_status(place)
    if json:
        screen.print_json(status.to_json())
    else:
        screen.open_stdout().print(draw(status))
        _print_resume(status)
    if status.state in ("stopped", "failed"):
        raise typer.Exit(1)


def find_place(folder: Path) -> Path | None:
    """Return the folder itself, or that of the newest run in it; None if there is nothing yet."""
    if is_run(folder) or (folder / RECORD).is_file():
        return folder
    runs = []
    for path in folder.glob("[!.]*/run.json"):
        with suppress(OSError):  # just deleted
            runs.append((path.stat().st_mtime_ns, path.parent))
    if runs:
        return max(runs)[1]
    found = (*folder.glob("[!.]*"), *folder.glob("*/[!.]*"))
    # A run that is being created has nothing but folders and its settings.
    if folder.is_file() or any(path.is_file() and path.name != "config.toml" for path in found):
        raise RunError(
            f"{folder}: must be the folder of a run, of several, or of a study, found something "
            "else; name its --out"
        )
    return None


def _follow(folder: Path, interval: float) -> RunStatus | StudyStatus | None:
    """Show the status until the run or study is over; return the last one."""
    console = screen.open_stdout()
    is_live = console.is_terminal and not console.is_dumb_terminal
    last_sign, shown = time.monotonic(), ""
    with Live(console=console, auto_refresh=False) if is_live else nullcontext() as live:
        while True:
            place = find_place(folder)
            status = read_status(place) if place else None
            waiting = f"waiting for a run or a study in {folder} (Ctrl-C exits)"
            frame = draw(status) if status else Text(waiting)
            if live is not None:
                live.update(frame, refresh=True)
            else:
                with console.capture() as capture:
                    console.print(frame, "")  # an empty line between two frames
                if capture.get() != shown:
                    shown = capture.get()
                    print(shown, end="", flush=True)
            state = status.state if status else "waiting"
            if state in ("waiting", "running", "elsewhere"):
                last_sign = time.monotonic()
            # In a folder of several runs or an unfinished study, the next run may begin soon.
            is_over = state in ("complete", "failed") and place == folder
            if is_over or time.monotonic() - last_sign >= _SURE_SECONDS:
                return status
            time.sleep(interval)


def _print_resume(status: RunStatus | StudyStatus | None) -> None:
    """Print the command that resumes a stopped run, unwrapped so that it can be copied."""
    if isinstance(status, RunStatus) and status.resume is not None:
        print(f"resume with: {status.resume}")


def draw(status: RunStatus | StudyStatus) -> Group:
    """Return the status to print, the important lines first: the screen may be short."""
    return Group(*(_draw_run(status) if isinstance(status, RunStatus) else _draw_study(status)))


def _draw_table(columns: list[str], rows: list[list[str | ProgressBar]]) -> Table:
    """Return a table; without names of columns it has no heading."""
    table = Table(*columns, box=None, pad_edge=False, header_style="dim", show_header=any(columns))
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def _bar(done: float, total: float = 1.0) -> ProgressBar:
    return ProgressBar(total or 1.0, min(done, total), width=20)


def _left(before: str, seconds: float | None) -> str:
    return "" if seconds is None else f"{before}{describe_seconds(seconds)} left"


def _draw_run(status: RunStatus) -> Iterator[RenderableType]:
    run, progress, folder = status.run, status.progress, printable(status.folder)
    if run is None:
        yield Text(f"waiting for a run in {folder}", "yellow")
        return
    method = f"  method {run.method}" if run.kind == "prune" else ""
    facts = f"seed {status.seed}  model {run.model}"
    yield Text(f"auber {run.kind}  task {run.task}{method}  {facts}", "bold")
    standing = status.state
    if progress is not None:
        host = f" on {progress.process.host}" if progress.process.host else ""
        standing += f"  process {progress.process.id}{host}"
        standing += f"  updated {describe_seconds(status.silent_seconds)} ago"
    yield Text(f"{standing}  in {folder}", _STYLES.get(status.state, "yellow"))
    if status.result is not None:
        yield from map(Text, screen.describe_result(status.result.to_json()))
    if status.error is not None:
        yield Text(_STOPS.get(status.error.partition(":")[0], status.error), "red")
    if status.resume is not None:
        yield Text("not running", "yellow")
    if progress is not None and progress.stage is not None:
        stage = progress.stage
        count = f"{stage.done}/{stage.total or '?'}{_left('  ', status.stage_seconds_left)}"
        rows: list[list[str | ProgressBar]] = [
            [stage.name, _bar(stage.done, stage.total), f"{count}  {stage.note}"]
        ]
        if progress.share is not None:
            left = _left("  about ", status.seconds_left)
            rows.append(["whole run", _bar(progress.share), f"{progress.share:.0%}{left}"])
        yield _draw_table(["", "", ""], rows)
    if status.numbers:
        numbers = (f"{name.replace('_', ' ')} {n:.4g}" for name, n in status.numbers.items())
        yield Text("  ".join(numbers))
    later = [name for name, s in status.stages.items() if s is None and not is_layer_stage(name)]
    if later:
        yield Text(f"next stages: {', '.join(later)}", "dim")
    if status.layers:
        layers: list[list[str | ProgressBar]] = []
        for index, layer in enumerate(status.layers):
            is_decided = layer.state == "decided"
            stays = "■" if is_decided else "·"
            heads = ("□" if head in layer.removed else stays for head in range(status.num_heads))
            removed = str(len(layer.removed)) if is_decided else ""
            gain = "" if layer.gain is None else f"{100 * layer.gain:+.2f}"
            layers.append([str(index), "".join(heads), layer.state, removed, gain])
        yield _draw_table(["layer", "heads", "", "removed", "gain"], layers)


def _draw_study(status: StudyStatus) -> Iterator[RenderableType]:
    states, folder = [cell["state"] for cell in status.cells], printable(status.folder)
    again = f"the same 'auber study ... --out {folder}'"
    bad = " and ".join(f"{states.count(s)} {s}" for s in ("failed", "skipped") if s in states)
    standing = {
        "complete": f"all runs are complete; next: auber report {folder}",
        "failed": f"all runs have ended, {bad}; {again} retries them",
        "stopped": f"not running; {again} continues it",
    }.get(status.state, status.state)
    finished = sum(state in ("complete", "failed", "skipped") for state in states)
    counts = f"{finished} of {len(states)} runs finished{_left('  about ', status.seconds_left)}"
    yield Text(f"study {folder}  model {status.model}", "bold")
    yield _draw_table(["", ""], [[_bar(finished, len(states)), counts]])
    yield Text(standing, _STYLES.get(status.state, "yellow"))
    blocks: dict[str, dict[str, list[str]]] = {}
    errors = []
    for cell in status.cells:
        block, name = f"{cell['task']} {cell['protocol']} seed {cell['seed']}", cell["run"]
        if cell["state"] == "failed":
            errors.append(Text(f"{block} {name}: {cell['error']}", "red"))
        stage = ((cell["status"] or {}).get("progress") or {}).get("stage")
        if stage is not None:
            steps = f"{stage['name']} {stage['done']}/{stage['total'] or '?'} {stage['note']}"
            name += f" ({steps.rstrip()})"
        blocks.setdefault(block, {}).setdefault(cell["state"], []).append(name)
    yield from errors[-3:]
    rows: list[list[str | ProgressBar]] = [
        [block, "\n".join(f"{state}: {', '.join(names)}" for state, names in runs.items())]
        for block, runs in blocks.items()
    ]
    yield _draw_table(["block", "runs"], rows)
