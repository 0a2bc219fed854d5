"""`auber import`: convert a pruned folder of transformers 4."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from auber.cli import options, screen


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A folder of transformers 4 whose config.json has pruned_heads.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The new model folder.", show_default=False)],
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert a model that transformers 4 has pruned into a folder that loads today.

    transformers 5 can no longer load such a folder. The new one holds the same weights and loads
    anywhere; the old one does not change. Weights must be safetensors: a pickle (pytorch_model.bin)
    can run code and is never read.

    Example: auber import old-model --out new-model
    """
    from auber.models.legacy import import_model

    with screen.listening(quiet=quiet):
        imported = import_model(folder, out)
    plan = imported.plan
    if json:
        screen.print_json(
            {
                "out": str(imported.place),
                "architecture": imported.architecture,
                "heads": {"removed": plan.num_removed, "total": imported.num_heads},
                "plan": plan.to_json(),
                "tokenizer": imported.has_tokenizer,
            }
        )
        return
    print(
        f"{imported.place}: {imported.architecture}, {plan.num_removed} of {imported.num_heads} "
        "heads removed"
    )
    if not imported.has_tokenizer:
        print(
            "the folder has no tokenizer; save the one the model was trained with into the new one"
        )
