"""`auber export`: a pruned model for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import options, screen
from auber.errors import ConfigError
from auber.export import TARGETS, WARN_ABOVE, Exported, export_model

if TYPE_CHECKING:
    from auber.export.speed import Timing


def command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|DIR", help="A finished run or a model folder.")
    ],
    to: Annotated[
        str,
        typer.Option(
            help="; ".join(f"{name}: {doc}" for name, doc in TARGETS.items()),
            autocompletion=options.complete(TARGETS),
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="A new folder. [default: RUN-TO]")] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="With --to int8: a file of your own rows, with or without labels, to compare "
            f"answers on. It warns if more than {100 * WARN_ABOVE:g} % of the answers differ. "
            "[default: random rows]"
        ),
    ] = None,
    text: options.Text = None,
    threads: Annotated[
        int, typer.Option(help="CPU threads while timing; 0: torch's default.", min=0)
    ] = 0,
    no_latency: Annotated[
        bool, typer.Option("--no-latency", help="Do not time the ONNX graph.")
    ] = False,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --to hub: upload it under this name; a new model is private. Log in first "
            "with 'hf auth login'.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Export a pruned model: ONNX, int8, transformers or the hub.

    The export is run on random rows of several lengths and batch sizes and kept only if its logits
    equal those of the model; for int8, the answers that differ are counted. ONNX graphs are also
    timed at batch size 1, against the same model with zeros in place of what was removed.

    Example: auber export runs/mrpc --to onnx
    """
    import torch

    from auber.export import hub

    if push is not None:
        if to != "hub":
            raise ConfigError(f"--push goes with --to hub, found --to {to}; choose one of them")
        hub.check_name(push)
    options.require_model(run)
    is_timed = to in ("onnx", "int8") and not no_latency
    if threads:
        torch.set_num_threads(threads)
    with screen.listening(quiet=quiet) as progress:
        progress.part(0.0, 0.5 if is_timed else 1.0)
        exported = export_model(run, to, out=out, rows=rows, text=text, progress=progress)
        timing = None
        if is_timed and exported.source.encoder.removed:
            from auber.export.measure import time_exported
            from auber.training.timing import Limits

            progress.part(0.5, 1.0)
            timing = time_exported(exported, limits=Limits(), progress=progress)
        pushed = None if push is None else hub.push(exported, push)
    if json:
        screen.print_json({**_to_json(exported, timing), "pushed": pushed})
        return
    _print(exported, timing)
    if pushed is not None:
        print(f"pushed: {pushed}")


def _to_json(exported: Exported, timing: Timing | None) -> dict[str, Any]:
    return {
        "to": exported.to,
        "out": str(exported.place),
        "files": exported.files,
        **{
            unit: {"removed": removed, "total": total}
            for unit, (removed, total) in exported.source.units.items()
        },
        "check": exported.check.to_json(),
        "latency": None if timing is None else timing.to_json(),
    }


def _print(exported: Exported, timing: Timing | None) -> None:
    from auber.training.timing import verdict

    size = sum(exported.files.values()) / 1e6
    print(f"{exported.to}: {exported.place} ({', '.join(exported.files)}; {size:.1f} MB)")
    print(exported.check.words)
    if timing is not None:
        (own,) = timing.variants
        print(
            f"latency in onnxruntime, one row of {timing.length} tokens: "
            f"{own.times.milliseconds:.3g} ms; {timing.unpruned.milliseconds:.3g} ms in float32 "
            "with zeros in place of what was removed (the unpruned weights are not stored)"
        )
        print(f"{verdict(own.ratio)}, {timing.rounds} rounds")
    elif exported.graph is not None and not exported.source.encoder.removed:
        print("nothing is removed, so there is no latency to compare")
