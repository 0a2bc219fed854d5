"""`auber finetune`: the first fine-tuning alone."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from auber.cli import options, screen
from auber.errors import ConfigError
from auber.run.trackers import check_trackers

_Tune = Annotated[
    bool,
    typer.Option(
        "--tune", help="Choose learning rate and epochs first, on held-out rows of train."
    ),
]
_Rates = Annotated[
    str | None,
    typer.Option("--rates", help="Learning rates for --tune. [default: 1e-5,2e-5,5e-5,1e-4,2e-4]"),
]
_Epochs = Annotated[
    str | None, typer.Option("--epochs", help="Epochs for --tune. [default: 3,6,10]")
]


def command(
    model: options.Model,
    out: options.Out,
    task: options.Task = None,
    data: options.Data = None,
    train: options.Train = None,
    dev: options.Dev = None,
    name: options.Name = None,
    kind: options.Kind = None,
    text: options.Text = None,
    label: options.Label = None,
    labels: options.Labels = None,
    metric: options.Metric = None,
    resume: options.Resume = False,
    allow_upgrade: options.AllowUpgrade = False,
    seed: options.Seed = None,
    protocol: options.Protocol = None,
    preset: options.Preset = "default",
    config: options.ConfigFile = None,
    assignments: options.Set = None,
    tune: _Tune = False,
    rates: _Rates = None,
    epochs: _Epochs = None,
    track: options.Track = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fine-tune a pretrained encoder on a task, so that several prunings can share it.

    Give the run to 'auber prune --model RUN'. Under protocol heldout the reward rows are left out
    of the fine-tuning.

    Example: auber finetune --model bert-base-cased --task rte --out runs/rte-start
    """
    from auber import api
    from auber.run import provenance

    options.require_model(model)
    for option, given in (("--rates", rates), ("--epochs", epochs)):
        if given is not None and not tune:
            raise ConfigError(f"{option} goes with --tune, found {given}; add --tune")
    trackers = check_trackers(track or ())
    settings = options.build_config(preset, task, config, assignments, seed=seed, protocol=protocol)
    with screen.listening(quiet=quiet) as progress:
        rows = options.task_from_options(
            task=task, data=data, train=train, dev=dev, name=name, kind=kind, text=text,
            label=label, labels=labels, metric=metric, seed=settings.seed
        )  # fmt: skip
        for message in options.describe_split(rows, train, dev):
            progress.say(message)
        if tune:
            from auber.run.recipe import EPOCHS, RATES, choose_recipe, parse_list

            recipe = choose_recipe(
                model,
                rows,
                settings,
                out,
                rates=parse_list(rates, "--rates", float) if rates else RATES,
                epochs=parse_list(epochs, "--epochs", int) if epochs else EPOCHS,
                resume=resume,
                progress=progress,
            )
            settings = recipe.apply(settings)
            progress.say(recipe.describe())
        with provenance.recording(provenance.typed_command()):
            tuned = api.finetune(
                model,
                task=rows,
                config=settings,
                out=out,
                resume="upgrade" if resume and allow_upgrade else resume,
                progress=[progress, *trackers],
            )
    if json:
        screen.print_json(tuned.result)
        return
    print(screen.describe_result(tuned.result)[0])
    follow_up = f"auber prune --model {shlex.quote(str(out))} ... --out RUN"
    print(f"model: {out / 'model'}")
    print(f"next: {follow_up}")
