"""`auber export`: a pruned model in the forms others take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import completion, options, screen
from auber.errors import ConfigError
from auber.export import TARGETS, export_model

if TYPE_CHECKING:
    from auber.export.base import Exported
    from auber.export.speed.record import Pair

_Run = Annotated[
    Path,
    typer.Argument(metavar="RUN|DIR", help="A finished run or a model folder.", show_default=False),
]
_To = Annotated[
    str,
    typer.Option(
        "--to",
        help="; ".join(f"{target.name}: {target.doc}" for target in TARGETS.values()),
        show_default=False,
        autocompletion=completion.targets,
    ),
]
_Out = Annotated[
    Path | None, typer.Option("--out", help="A new folder. [default: RUN with -TO behind it]")
]
_Threads = Annotated[
    int,
    typer.Option("--threads", help="CPU threads of the timing; 0: as many as torch finds.", min=0),
]
_NoLatency = Annotated[bool, typer.Option("--no-latency", help="Do not time the graph.")]
_Push = Annotated[
    str | None,
    typer.Option(
        "--push",
        metavar="NAME",
        help="With --to hub: upload it as this model, a new one as a private one; log in first with 'hf auth login'.",
        show_default=False,
    ),
]


def command(
    run: _Run,
    to: _To,
    out: _Out = None,
    threads: _Threads = 0,
    no_latency: _NoLatency = False,
    push: _Push = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a pruned model as an ONNX graph, at full size for plain transformers, or as a folder to share.

    What is written is run on random rows of several lengths and batch sizes; unless its logits are those of the model, nothing
    is kept. An ONNX graph is also timed, batch 1, beside the same model with its removed heads put back as zeros.

    Example: auber export runs/mrpc --to onnx
    """
    import torch

    from auber.export import hub

    if push is not None:
        if to != "hub":
            raise ConfigError(f"--push goes with --to hub, found --to {to}")
        hub.check_name(push)
    options.require_model(run)
    if threads:
        torch.set_num_threads(threads)
    with screen.listening(quiet=quiet) as progress:
        exported = export_model(run, to, out=out, progress=progress)
        pair = None
        if exported.graph is not None and not no_latency and exported.source.encoder.removed:
            from auber.export.speed.exported import time_exported
            from auber.training.timing import Limits

            pair = time_exported(exported, limits=Limits(), progress=progress)
        pushed = None if push is None else hub.push(exported, push)
    if json:
        screen.print_json({**_to_json(exported, pair), "pushed": pushed})
    else:
        _print(exported, pair)
        if pushed is not None:
            print(f"pushed: {pushed}")


def _to_json(exported: Exported, pair: Pair | None) -> dict[str, Any]:
    from dataclasses import asdict

    from auber.export.base import ALLOWED_DIFFERENCE

    encoder = exported.source.encoder
    return {
        "to": exported.to,
        "out": str(exported.place),
        "files": exported.files,
        "heads": {
            "removed": encoder.removed.num_removed,
            "total": encoder.num_layers * encoder.num_heads,
        },
        "check": {
            "rows": exported.checked_rows,
            "largest_difference": exported.largest_difference,
            "allowed": ALLOWED_DIFFERENCE,
        },
        "latency": None if pair is None else asdict(pair),
    }


def _print(exported: Exported, pair: Pair | None) -> None:
    from auber.export.base import ALLOWED_DIFFERENCE

    size = sum(exported.files.values()) / 1e6
    print(f"{exported.to}: {exported.place} ({', '.join(exported.files)}; {size:.1f} MB)")
    print(
        f"checked on {exported.checked_rows} random rows: largest logit difference {exported.largest_difference:.2g} "
        f"(at most {ALLOWED_DIFFERENCE:g} is allowed)"
    )
    if pair is not None:
        print(
            f"latency in onnxruntime, one row of {pair.length} tokens: {pair.pruned.milliseconds:.3g} ms, "
            f"{pair.unpruned.milliseconds:.3g} ms with the removed heads put back as zeros (the unpruned weights are not at hand)"
        )
        print(f"{pair.verdict}, {pair.rounds} rounds")
    elif exported.graph is not None and not exported.source.encoder.removed:
        print("no head is removed, so there is nothing to compare its latency with")
