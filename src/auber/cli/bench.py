"""`auber bench`: what a reward, a tuning step and a whole run cost here, beside the plain ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.bench.catalogue import ROWS, SIZES, Limits, Request, parse_layers
from auber.cli import options, screen
from auber.errors import ConfigError

if TYPE_CHECKING:
    from auber.bench.record import Bench
    from auber.config import Config
    from auber.data.task import TaskData
    from auber.system.progress import Progress

_DEFAULTS = Request()
_SIZES = ", ".join(SIZES)
_ROWS = ", ".join(f"{shape.name} ({shape.count:,} rows)" for shape in ROWS.values())


_Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="Kept results, for --page.", show_default=False),
]
_Size = Annotated[
    str | None,
    typer.Option(
        "--size", help=f"A BERT made on the spot with random weights: {_SIZES}. [default: base]"
    ),
]
_Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="A model folder, a hub name or a finished run in place of a size."
    ),
]
_Rows = Annotated[
    str | None,
    typer.Option("--rows", help=f"Generated rows of lengths like those of {_ROWS}. [default: rte]"),
]
_Count = Annotated[
    int | None, typer.Option("--count", help="So many generated reward rows instead.")
]
_Layers = Annotated[
    str | None,
    typer.Option("--layers", help="Searched layers to time, such as 0,5,11; all without it."),
]
_Repeats = Annotated[int, typer.Option("--repeats", help="Timed rewards of each way and layer.")]
_Seconds = Annotated[
    float,
    typer.Option(
        "--seconds", help="No further repeat of a way or layer begins after so many seconds."
    ),
]
_Steps = Annotated[int, typer.Option("--steps", help="About so many tuning steps each way.")]
_NoRewards = Annotated[bool, typer.Option("--no-rewards", help="Leave the rewards out.")]
_NoTuning = Annotated[bool, typer.Option("--no-tuning", help="Leave the tuning out.")]
_NoSearch = Annotated[bool, typer.Option("--no-search", help="Leave the whole run out.")]
_Growth = Annotated[
    bool,
    typer.Option(
        "--growth", help="Also time rewards for growing numbers of rows, layers and heads."
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option("--out", help="A file to keep the result in, as JSON.", show_default=False),
]
_Page = Annotated[
    Path | None,
    typer.Option(
        "--page", help="Measure nothing: write this Markdown page, and its plot, from kept results."
    ),
]


def command(
    context: typer.Context,
    files: _Files = None,
    size: _Size = None,
    model: _Model = None,
    rows: _Rows = None,
    count: _Count = None,
    task: options.Task = None,
    data: options.Data = None,
    layers: _Layers = None,
    repeats: _Repeats = _DEFAULTS.limits.repeats,
    seconds: _Seconds = _DEFAULTS.limits.seconds,
    steps: _Steps = _DEFAULTS.steps,
    no_rewards: _NoRewards = False,
    no_tuning: _NoTuning = False,
    no_search: _NoSearch = False,
    growth: _Growth = False,
    seed: options.Seed = None,
    preset: options.Preset = "paper",
    assignments: options.Set = None,
    out: _Out = None,
    page: _Page = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure rewards, tuning and a whole run against plain transformers, side by side in one run.

    Rewards: transformers in float32 padded to 128, the same in the scorer's precision with rows sorted by length, and this
    package's scorer for every layer, with the share of the arithmetic floor at the matrix rate measured here. Tuning:
    against the Trainer with its defaults. A whole run: seconds of rewards, agent, tuning and the rest.

    Example: auber bench --size small --rows cola --no-search --out results/bench/cpu.json
    """
    if page is not None:
        _check_nothing_is_measured(context)
        _write_page(page, files)
        return
    if files:
        raise ConfigError(
            f"kept results go with --page PAGE, found {files[0]} without it; add --page or leave them out"
        )
    request = Request(
        size=size or _DEFAULTS.size,
        model=model,
        rows=rows or _DEFAULTS.rows,
        count=count,
        layers=None if layers is None else parse_layers(layers),
        limits=Limits(repeats, seconds),
        steps=steps,
        rewards=not no_rewards,
        tuning=not no_tuning,
        search=not no_search,
        growth=growth,
    )
    _check_together({"--size": size, "--rows": rows, "--count": count}, model, task, data)
    settings = options.build_config(preset, task or request.rows, None, assignments, seed=seed)
    if out is not None:
        options.make_room(out)
    from auber.data import load_task

    with screen.listening(quiet=quiet) as progress:
        own = None if task is None else load_task(task, data=data, seed=settings.seed)
        bench = _measure(request, settings, preset, progress, own)
    _hand_over(bench, out, as_json=json)


def _measure(
    request: Request, settings: Config, preset: str, progress: Progress, task: TaskData | None
) -> Bench:
    from auber.bench.measure import run_bench
    from auber.run.provenance import command_line

    return run_bench(request, settings, preset, command_line(), progress, task)


def _hand_over(bench: Bench, out: Path | None, *, as_json: bool) -> None:
    from auber.system.files import write_json

    if out is not None:
        write_json(out, bench.to_json(), follow=True)
    if as_json:
        screen.print_json(bench.to_json())
    else:
        _print(bench)


def _check_together(
    given: dict[str, object], model: str | None, task: str | None, data: Path | None
) -> None:
    """Some options take the place of others."""
    refused = []
    if model is not None and given["--size"] is not None:
        refused.append(("--model", "--size"))
    if task is not None:
        refused += [("--task", name) for name in ("--rows", "--count") if given[name] is not None]
    if data is not None and task is None:
        raise ConfigError(
            "--data is the folder of a --task, found none; name it, or leave --data out"
        )
    for name, other in refused:
        raise ConfigError(f"{name} and {other} exclude each other; give one")
    if task is not None and model is None:
        raise ConfigError(
            "--task needs --model: a model made on the spot cannot read real text; give a model or --rows"
        )


def _check_nothing_is_measured(context: typer.Context) -> None:
    """Beside --page all other options would do nothing."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if (
            parameter.name not in ("files", "page")
            and source is not None
            and source.name == "COMMANDLINE"
        ):
            raise ConfigError(
                f"--page measures nothing, found {parameter.opts[0]} beside it; leave one of them out"
            )


def _write_page(page: Path, files: list[Path] | None) -> None:
    from auber.bench.page import write_page

    if not files:
        raise ConfigError(
            "--page needs the results to show, found none; name files made with 'auber bench --out'"
        )
    write_page(page, files)
    print(f"page: {page}")


def _print(bench: Bench) -> None:
    from auber.bench.tables import all_tables, describe, title_of

    print(f"{title_of(bench)}\n{describe(bench)}")
    for table in all_tables(bench):
        print()
        screen.print_table(table.columns, table.rows, title=table.title)
        if table.note:
            print(table.note)
