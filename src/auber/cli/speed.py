"""`auber speed`: the size and speed of pruned models beside the unpruned one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from auber.cli import options, screen
from auber.training.timing import Limits

_LIMITS = Limits()


def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="Runs, model folders, result.json files or results files."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="The unpruned model, a folder or hub name, for runs without weights; only its "
            "config is read."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...",
            help="Only these runs of a results file, by task, method, seed and protocol, such as "
            "method=auber,seed=1; may be repeated.",
        ),
    ] = None,
    batch: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,16",
    length: Annotated[
        int | None,
        typer.Option(help="Tokens per row. [default: 128, or the model's maximum if it is less]"),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or auto (the CPU, and a GPU if there is one).")
    ] = "auto",
    onnx: Annotated[
        bool | None,
        typer.Option(
            help="Also time onnxruntime on the CPU, in float32 and int8. [default: if it is "
            "installed, unless --device cuda]"
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0: torch's default.")] = 0,
    repeats: Annotated[
        int, typer.Option(help="Timed rounds per batch size, at least 6.")
    ] = _LIMITS.repeats,
    seconds: Annotated[
        float, typer.Option(help="Start no further round of a batch size after this time.")
    ] = _LIMITS.seconds,
    out: Annotated[Path | None, typer.Option(help="A JSON file to write the result to.")] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure what pruning saves: size, latency and throughput.

    The pruned and the unpruned model are timed alternately: in torch on the CPU, in torch on a GPU
    (plain and as a CUDA graph) and in onnxruntime (also with 8-bit weights), where available.
    Ratios compare with the unpruned float32 model in the same runtime: medians over the rounds with
    95 % intervals.

    Example: auber speed runs/mrpc runs/rte --batch 1,16 --out speed.json
    """
    from auber.export.speed import SpeedRequest, parse_batches

    request = SpeedRequest(
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

    from auber.export.measure import measure_speed
    from auber.export.speed import describe, make_tables
    from auber.run.provenance import typed_command, without_folders
    from auber.system.files import write_json

    typed = without_folders(typed_command())
    with screen.listening(quiet=quiet) as progress:
        speed = measure_speed(request, command=typed, progress=progress)
    if out is not None:
        write_json(out, speed.to_json(), follow=True)
    if json:
        screen.print_json(speed.to_json())
        return
    print(describe(speed))
    for title, rows in make_tables(speed).items():
        print()
        screen.print_table([*rows[0]], [[*row.values()] for row in rows], title=title)
