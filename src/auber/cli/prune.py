"""`auber prune`: search for units to remove, remove them, fine-tune, report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from auber.cli import options, screen
from auber.config import PRESETS, Config
from auber.errors import ConfigError
from auber.search.registry import METHODS, default_method, get_method

# How the default preset teaches small models.
_TEACHING = {
    key: value for key, value in PRESETS["default"].settings.items() if key.startswith("teacher.")
}
_CHOICE = "How to choose what goes"  # the heading of some options
_SIZED = ", ".join(method.name for method in METHODS.values() if method.removes_neurons)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """How small the model becomes."""

    keep: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help=f"The share of the encoder's multiply-adds to keep (methods {_SIZED}). Several, "
            "such as 0.5,0.25, give a model each. [default: 0.5]",
        ),
    ] = None
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="Choose the smallest size that loses at most this many points on held-out rows "
            "of --train. Sizes: those of --keep, by default from 0.75 to 0.125.",
        ),
    ] = None
    units: Annotated[
        Literal["heads", "neurons", "both"] | None,
        typer.Option(help="What --keep and --tolerance remove. [default: both]"),
    ] = None
    even: Annotated[
        bool,
        typer.Option(
            "--even",
            help="Remove neurons only, the same number in every layer: the model loads without "
            "extra code.",
        ),
    ] = False
    teacher: Annotated[
        bool,
        typer.Option(
            "--teacher",
            help="Learn from the unpruned model at every size; by default only sizes below "
            f"{_TEACHING['teacher.below']} do.",
        ),
    ] = False
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of: {', '.join(METHODS)}. 'auber list methods' describes them. [default: "
            f"{PRESETS['default'].method}, or that of --preset]",
            autocompletion=options.complete({name: each.doc for name, each in METHODS.items()}),
            rich_help_panel=_CHOICE,
        ),
    ] = None
    player: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Your own player in place of --method: a class or an object with choose_layer.",
            rich_help_panel=_CHOICE,
        ),
    ] = None
    heads: Annotated[
        int | None,
        typer.Option(
            help="The number of heads to remove: for ranking methods, and for a search under "
            "protocol crossfit.",
            rich_help_panel=_CHOICE,
        ),
    ] = None
    heads_from: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Remove as many heads as this run did, with the same fine-tuning.",
            rich_help_panel=_CHOICE,
        ),
    ] = None
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The pretrained model that a fine-tuned --model comes from (protocol crossfit); "
            "not needed for a run of 'auber finetune'.",
            rich_help_panel=_CHOICE,
        ),
    ] = None

    def choose_method(self, config: Config) -> str | None:
        """Return the method or player; raise `ConfigError` for options that exclude each other."""
        if self.heads is not None and self.heads_from is not None:
            raise ConfigError("--heads and --heads-from exclude each other; give one")
        if self.player is not None and self.method is not None:
            raise ConfigError(f"--player takes the place of --method {self.method}; give one")
        if self.player is not None and ":" not in self.player:
            raise ConfigError(f"--player must be MODULE:NAME, found '{self.player}'")
        method = self.player or self.method
        has_heads = self.heads is not None or self.heads_from is not None
        given = "--heads" if has_heads else None
        chosen = get_method(method) if method else default_method(config, given)[0]
        is_sized = bool(self.keep or config.size.keep or config.size.tolerance)
        is_sized |= chosen.removes_neurons and not has_heads
        if (self.units is not None or self.even) and not is_sized:
            option = "--even" if self.even else "--units"
            raise ConfigError(f"{option} goes with --keep; add it, such as --keep 0.5")
        if self.even and self.units not in (None, "neurons"):
            raise ConfigError(
                f"--even removes neurons only, found --units {self.units}; leave it out"
            )
        return method

    def apply(self, config: Config) -> Config:
        """Return the settings with those that the options name."""
        size = {"units": self.units, "even": self.even or None, "tolerance": self.tolerance}
        config = config.replace({f"size.{key}": v for key, v in size.items() if v is not None})
        if not self.teacher:
            return config
        has_weights = config.teacher.outputs or config.teacher.hidden
        weights = {} if has_weights else _TEACHING
        return config.replace({**weights, "teacher.below": 1.0})


@options.grouped
def command(
    run: options.Run,
    rows: options.RowsOrTexts,
    removal: Removal,
    settings: options.RunSettings,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove what a model can do without, and fine-tune what is left.

    Half of the encoder's work remains, or the share of --keep. A pretrained model is fine-tuned on
    the task first; a fine-tuned one is used as it is. The pruned model is saved in OUT/model: load
    it with auber.load("OUT/model"). A run that was stopped continues with --resume. Examples:

    \b
    auber prune --model bert-base-cased --task mrpc --out runs/mrpc
    auber prune --model DIR --train a.csv --dev b.csv --keep 0.5 --out runs/mine
    auber prune --model DIR --train a.conll --kind tokens --out runs/ner
    auber prune --model DIR --texts pairs.csv --text query,passage --out runs/fast
    """  # noqa: D301
    from auber import api
    from auber.run import provenance

    if removal.teacher and rows.texts is not None:
        raise ConfigError(
            "--teacher goes with labels, and with --texts the unpruned model is the only teacher; "
            "leave it out"
        )
    run.check()
    config = removal.apply(settings.build(rows.task, without_labels=rows.texts is not None))
    method = removal.choose_method(config)
    with screen.listening(quiet=quiet) as progress:
        task = rows.load_any(config.seed, progress)
        with provenance.recording(provenance.typed_command()):
            pruned = api.prune(
                task=task,
                method=method,
                heads=removal.heads_from if removal.heads is None else removal.heads,
                keep=removal.keep,
                origin=removal.origin,
                config=config,
                **run.arguments(progress),
            )
    if json:
        screen.print_json(pruned.result)
        return
    for line in screen.describe_result(pruned.result):
        print(line)
    chosen = pruned.result.get("chosen")
    print(f"model: {run.out / 'model'}" + (f" (that of models/{chosen})" if chosen else ""))
    print(f"next: auber report {shlex.quote(str(run.out))}")
