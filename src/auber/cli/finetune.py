"""`auber finetune`: the first fine-tuning alone."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

from auber.cli import options, screen
from auber.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Choice of learning rate and epochs."""

    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="Try several learning rates and epochs on held-out training rows first, and use "
            "the best.",
        ),
    ] = False
    rates: Annotated[
        str | None,
        typer.Option(help="Learning rates for --tune. [default: 1e-5,2e-5,5e-5,1e-4,2e-4]"),
    ] = None
    epochs: Annotated[
        str | None, typer.Option(help="Numbers of epochs for --tune. [default: 3,6,10]")
    ] = None


@options.grouped
def command(
    run: options.Run,
    rows: options.Rows,
    recipe: Recipe,
    settings: options.RunSettings,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fine-tune an encoder once, for several prunings.

    Give the run to 'auber prune --model RUN'. Under protocol heldout the reward rows are left out
    of the fine-tuning.

    Example: auber finetune --model bert-base-cased --task rte --out runs/start
    """
    from auber import api
    from auber.run import provenance

    for option, given in (("--rates", recipe.rates), ("--epochs", recipe.epochs)):
        if given is not None and not recipe.tune:
            raise ConfigError(f"{option} goes with --tune, found {given}; add --tune")
    run.check()
    config = settings.build(rows.task)
    with screen.listening(quiet=quiet) as progress:
        task = rows.load(config.seed, progress)
        if recipe.tune:
            from auber.run.recipe import EPOCHS, RATES, choose_recipe, parse_list

            chosen = choose_recipe(
                run.model,
                task,
                config,
                run.out,
                rates=parse_list(recipe.rates, "--rates", float) if recipe.rates else RATES,
                epochs=parse_list(recipe.epochs, "--epochs", int) if recipe.epochs else EPOCHS,
                resume=run.resume,
                progress=progress,
            )
            config = chosen.apply(config)
            progress.say(chosen.describe())
        with provenance.recording(provenance.typed_command()):
            tuned = api.finetune(task=task, config=config, **run.arguments(progress))
    if json:
        screen.print_json(tuned.result)
        return
    print(screen.describe_result(tuned.result)[0])
    print(f"model: {run.out / 'model'}")
    print(f"next: auber prune --model {shlex.quote(str(run.out))} ... --out RUN")
