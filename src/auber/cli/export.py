"""`auber export`: a pruned model for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import options, screen
from auber.errors import ConfigError
from auber.export import TARGETS, export_model

if TYPE_CHECKING:
    from auber.export.speed import Pair
    from auber.export.verification import Exported

_To = Annotated[
    str,
    typer.Option(
        "--to",
        help="; ".join(f"{name}: {doc}" for name, doc in TARGETS.items()),
        autocompletion=options.complete(TARGETS),
    ),
]
_Threads = Annotated[
    int, typer.Option("--threads", help="CPU threads while timing; 0: torch's default.", min=0)
]
_Push = Annotated[
    str | None,
    typer.Option(
        "--push",
        metavar="NAME",
        help="With --to hub: upload it under this name; a new model is private. Log in first "
        "with 'hf auth login'.",
    ),
]


def command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|DIR", help="A finished run or a model folder.")
    ],
    to: _To,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder. [default: RUN-TO]")
    ] = None,
    threads: _Threads = 0,
    no_latency: Annotated[
        bool, typer.Option("--no-latency", help="Do not time the ONNX graph.")
    ] = False,
    push: _Push = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Export a pruned model: an ONNX graph, full size for transformers, or a folder to share.

    The export is run on random rows of several lengths and batch sizes and kept only if its logits
    equal the model's. An ONNX graph is also timed at batch size 1, beside the same model with zeros
    in place of its removed heads.

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
            from auber.export.measure import time_exported
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
    from auber.export.verification import ALLOWED_DIFFERENCE

    removed, total = exported.source.heads
    return {
        "to": exported.to,
        "out": str(exported.place),
        "files": exported.files,
        "heads": {"removed": removed, "total": total},
        "check": {
            "rows": exported.checked_rows,
            "largest_difference": exported.largest_difference,
            "allowed": ALLOWED_DIFFERENCE,
        },
        "latency": None if pair is None else pair.to_json(),
    }


def _print(exported: Exported, pair: Pair | None) -> None:
    from auber.export.verification import ALLOWED_DIFFERENCE

    size = sum(exported.files.values()) / 1e6
    print(f"{exported.to}: {exported.place} ({', '.join(exported.files)}; {size:.1f} MB)")
    print(
        f"checked on {exported.checked_rows} random rows: largest logit difference "
        f"{exported.largest_difference:.2g} (allowed: {ALLOWED_DIFFERENCE:g})"
    )
    if pair is not None:
        print(
            f"latency in onnxruntime, one row of {pair.length} tokens: "
            f"{pair.pruned.milliseconds:.3g} ms; {pair.unpruned.milliseconds:.3g} ms with zeros in "
            "place of the removed heads (the unpruned weights are not stored)"
        )
        print(f"{pair.verdict}, {pair.rounds} rounds")
    elif exported.graph is not None and not exported.source.encoder.removed:
        print("no head is removed, so there is no latency to compare")
