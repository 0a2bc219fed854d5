"""`auber import`: convert a folder that transformers 4 pruned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from auber.cli import options, screen


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A model folder of transformers 4 with pruned_heads in config.json."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The new model folder.")],
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert a model that transformers 4 pruned.

    transformers 5 cannot load such a folder. The new one has the same weights and loads anywhere;
    the old one is not changed. The weights must be safetensors: a pickle (pytorch_model.bin) can
    run code and is never read.

    Example: auber import old-model --out new-model
    """
    from auber.models.legacy import import_model

    with screen.listening(quiet=quiet):
        imported = import_model(folder, out)
    removed, total = imported.plan.num_heads, imported.num_heads
    if json:
        screen.print_json(
            {
                "out": str(imported.place),
                "architecture": imported.architecture,
                "heads": {"removed": removed, "total": total},
                "plan": imported.plan.to_json(),
                "tokenizer": imported.has_tokenizer,
            }
        )
        return
    print(f"{imported.place}: {imported.architecture}, {removed} of {total} heads removed")
    if not imported.has_tokenizer:
        print("the folder has no tokenizer; save the one the model was trained with into it")
