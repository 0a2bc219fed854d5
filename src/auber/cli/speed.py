"""`auber speed`: what pruning buys, measured beside the unpruned model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen
from auber.export.speed.request import Request, parse_batches
from auber.training.timing import Limits

if TYPE_CHECKING:
    from auber.export.speed.record import Speed

_LIMITS = Limits()

_Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...",
        help="Runs, model folders, result.json files, or results files.",
        show_default=False,
    ),
]
_Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="The unpruned model, a folder or hub name, of runs whose weights are gone; only its config is read.",
        show_default=False,
    ),
]
_Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="KEY=VALUE,...",
        help="The runs of a results file by task, method, seed and protocol, such as method=auber,seed=1; may be repeated.",
        show_default=False,
    ),
]
_Batch = Annotated[str, typer.Option("--batch", help="Batch sizes with commas between.")]
_Length = Annotated[
    int | None,
    typer.Option(
        "--length",
        help="Tokens of a row. [default: 128, or as many as the model has positions for]",
        show_default=False,
    ),
]
_Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="Where torch runs: cpu, cuda, or auto (the CPU, and a GPU if there is one).",
    ),
]
_Onnx = Annotated[
    bool | None,
    typer.Option(
        "--onnx/--no-onnx",
        help="Time onnxruntime on the CPU too. [default: if installed, unless --device cuda]",
    ),
]
_Threads = Annotated[int, typer.Option("--threads", help="CPU threads; 0: as many as torch finds.")]
_Repeats = Annotated[int, typer.Option("--repeats", help="Timed rounds of each pair, 6 at least.")]
_Seconds = Annotated[
    float,
    typer.Option("--seconds", help="No further round of a pair begins after so many seconds."),
]
_Out = Annotated[
    Path | None,
    typer.Option("--out", help="A file to keep the result in, as JSON.", show_default=False),
]


def command(
    runs: _Runs,
    model: _Model = None,
    only: _Only = None,
    batch: _Batch = "1,32",
    length: _Length = None,
    device: _Device = "auto",
    onnx: _Onnx = None,
    threads: _Threads = 0,
    repeats: _Repeats = _LIMITS.repeats,
    seconds: _Seconds = _LIMITS.seconds,
    out: _Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure what pruning buys: parameters, multiply-adds, latency and throughput beside the unpruned model.

    Pruned and unpruned are timed in turn, round by round, in torch on the CPU, torch on a GPU (plain, and as a CUDA graph) and
    onnxruntime, as far as they are here. The ratio is the median of the rounds' own; where its 95 % interval holds 1 the verdict
    is "no faster".

    Example: auber speed runs/mrpc runs/rte --batch 1,32 --out speed.json
    """
    request = Request(
        runs=tuple(runs),
        model=model,
        only=tuple(only or ()),
        batches=parse_batches(batch),
        length=length,
        device=device,
        onnx=onnx,
        threads=threads,
        limits=Limits(repeats, seconds),
    )
    if out is not None:
        options.make_room(out)

    from auber.export.speed.measure import measure_speed
    from auber.run.provenance import command_line
    from auber.system.files import write_json

    with screen.listening(quiet=quiet) as progress:
        speed = measure_speed(request, command=command_line(), progress=progress)
    if out is not None:
        write_json(out, speed.to_json(), follow=True)
    if json:
        screen.print_json(speed.to_json())
    else:
        _print(speed)


def _print(speed: Speed) -> None:
    from auber.export.speed.tables import describe, tables_of

    print(describe(speed))
    for table in tables_of(speed):
        print()
        screen.print_table(table.columns, table.rows, title=table.title)
