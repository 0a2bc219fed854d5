"""`auber prune`: search for units to remove, remove them, fine-tune, report."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

import typer

from auber.cli import options, screen
from auber.errors import ConfigError
from auber.run.trackers import check_trackers
from auber.search.registry import METHODS, get_method

_Method = Annotated[
    str,
    typer.Option(
        "--method",
        help=f"One of: {', '.join(METHODS)}.",
        autocompletion=options.complete({name: method.doc for name, method in METHODS.items()}),
    ),
]
_Player = Annotated[
    str | None,
    typer.Option(
        "--player",
        metavar="MODULE:NAME",
        help="Your own player, in place of --method: a class or an object with choose_layer.",
    ),
]
_Heads = Annotated[
    int | None,
    typer.Option(
        "--heads",
        help="How many heads to remove: for ranking methods, and for a search under protocol "
        "crossfit.",
    ),
]
_HeadsFrom = Annotated[
    str | None,
    typer.Option(
        "--heads-from",
        metavar="RUN",
        help="Remove as many heads as that run did, with the same fine-tuning.",
    ),
]
_Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="SHARE",
        help="The share of the encoder's multiply-adds that remains, for the methods "
        f"{', '.join(method.name for method in METHODS.values() if method.removes_neurons)}. "
        "Several, such as 0.5,0.25, give a model each. [default: 0.5]",
    ),
]
_Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="POINTS",
        help="Choose the smallest size that loses at most so many points on held-out rows of "
        "--train; of the sizes of --keep, by default from 0.75 to 0.125.",
    ),
]
_Units = Annotated[
    Literal["heads", "neurons", "both"] | None,
    typer.Option("--units", help="What --keep removes. Default: both."),
]
_Even = Annotated[
    bool,
    typer.Option(
        "--even",
        help="Remove neurons only, as many in every layer: the model loads without extra code.",
    ),
]
_Origin = Annotated[
    str | None,
    typer.Option(
        "--origin",
        metavar="MODEL",
        help="The pretrained model that a fine-tuned --model comes from (protocol crossfit); "
        "known if it is a run of 'auber finetune'.",
    ),
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
    method: _Method = "auber",
    player: _Player = None,
    heads: _Heads = None,
    heads_from: _HeadsFrom = None,
    keep: _Keep = None,
    tolerance: _Tolerance = None,
    units: _Units = None,
    even: _Even = False,
    origin: _Origin = None,
    resume: options.Resume = False,
    allow_upgrade: options.AllowUpgrade = False,
    seed: options.Seed = None,
    protocol: options.Protocol = None,
    preset: options.Preset = "default",
    config: options.ConfigFile = None,
    assignments: options.Set = None,
    track: options.Track = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find what a model can do without, remove it, and fine-tune what is left.

    A pretrained model is fine-tuned on the task first; a fine-tuned one is used as it is. The
    pruned model is saved in OUT/model: load it with auber.load("OUT/model"). A run that was stopped
    continues with --resume.

    Example: auber prune --model bert-base-cased --task mrpc --out runs/mrpc

    Your own tagged words: auber prune --model DIR --train a.conll --dev b.conll --kind tokens --out
    runs/ner
    """
    from auber import api
    from auber.run import provenance

    if heads is not None and heads_from is not None:
        raise ConfigError("--heads and --heads-from exclude each other; give one")
    if player is not None and method != "auber":
        raise ConfigError(f"--player takes the place of --method {method}; give one of them")
    if player is not None and ":" not in player:
        raise ConfigError(f"--player must be MODULE:NAME, found '{player}'")
    method = player or method
    has_heads = heads is not None or heads_from is not None
    is_sized = keep is not None or tolerance is not None
    is_sized |= get_method(method).removes_neurons and not has_heads
    if (units is not None or even) and not is_sized:
        option = "--even" if even else "--units"
        raise ConfigError(f"{option} goes with --keep; add it, such as --keep 0.5")
    if even and units not in (None, "neurons"):
        raise ConfigError(f"--even removes neurons only, found --units {units}; leave it out")
    options.require_model(model)
    trackers = check_trackers(track or ())
    settings = options.build_config(preset, task, config, assignments, seed=seed, protocol=protocol)
    size = {"size.units": units, "size.even": even or None, "size.tolerance": tolerance}
    settings = settings.replace({key: value for key, value in size.items() if value is not None})
    with screen.listening(quiet=quiet) as progress:
        rows = options.task_from_options(
            task=task, data=data, train=train, dev=dev, name=name, kind=kind, text=text,
            label=label, labels=labels, metric=metric, seed=settings.seed
        )  # fmt: skip
        for message in options.describe_split(rows, train, dev):
            progress.say(message)
        with provenance.recording(provenance.typed_command()):
            pruned = api.prune(
                model,
                task=rows,
                method=method,
                heads=heads_from if heads is None else heads,
                keep=keep,
                origin=origin,
                config=settings,
                out=out,
                resume="upgrade" if resume and allow_upgrade else resume,
                progress=[progress, *trackers],
            )
    if json:
        screen.print_json(pruned.result)
        return
    for line in screen.describe_result(pruned.result):
        print(line)
    chosen = pruned.result.get("chosen")
    print(f"model: {out / 'model'}" + (f" (that of models/{chosen})" if chosen else ""))
    print(f"next: auber report {shlex.quote(str(out))}")
