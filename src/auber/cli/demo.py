"""`auber demo`: fine-tune, prune and compare on a small generated task."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from auber.cli import options, screen
from auber.errors import ConfigError


def command(
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write the runs to. [default: a new one in runs/]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of every random draw.")] = 0,
    resume: options.Resume = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fine-tune, prune and compare on a small generated task.

    It takes under two minutes and downloads nothing. The task: does the verb agree with its
    subject, whatever nouns stand between? The model: a small BERT, trained from scratch. The
    default method and random choice prune it to a half and a quarter of its multiply-adds.

    Example: auber demo --out runs/demo
    """
    from dataclasses import asdict

    from auber import demo
    from auber.report.page import make_page, write_page
    from auber.report.tables import FOLDER
    from auber.run import provenance

    typed = provenance.typed_command()
    if resume and out is None:
        raise ConfigError("--resume continues the demo in a folder, found no --out; add it")
    if out is None:  # the command that resumes it has to name its folder
        out = Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
        typed = f"{typed} --out {shlex.quote(str(out))}"
    folder = shlex.quote(str(out))
    with screen.listening(quiet=quiet) as progress:
        progress.say(f"runs go to {out}; follow them in another terminal: auber watch {folder}")
        with provenance.recording(typed):
            results = demo.run_demo(out, seed=seed, resume=resume, progress=progress)
        lines = demo.compare(out, results, progress)
    page, *_ = write_page(make_page([out / name for name in demo.RUNS]), out / FOLDER)
    if json:
        screen.print_json({**results, "table": [asdict(line) for line in lines]})
        return
    names = {name: name for name in demo.RUNS} | {
        "default": f"default ({results['default']['method']})"
    }
    unpruned, *_, default, random = lines
    screen.print_table(
        ["size", "units chosen by", "dev accuracy", "multiply-adds", "rows/s", "times as fast"],
        [
            [
                "unpruned" if line is unpruned else f"{line.keep:g}",
                "" if line is unpruned else names[line.name],
                f"{100 * line.score:.1f} %",
                f"{100 * line.multiply_adds:.0f} %",
                f"{line.rows_per_second:,.0f}",
                f"{line.times_as_fast:.2f}",
            ]
            for line in lines
        ],
        title=f"Does the verb agree with its subject? {results['default']['rows']['dev']} dev rows",
    )
    print(
        f"\nAt a quarter of the multiply-adds, the default scores {100 * default.score:.1f} % and "
        f"random choice {100 * random.score:.1f} %; unpruned, {100 * unpruned.score:.1f} %.\n"
        "Models of one size were tuned alike. One seed is an example; --seed 1 shows another.\n"
        f"\nFigure of score against size: {page}"
        f"\nThe pruned model: {out / 'default' / 'model'}   (load it with auber.load)"
        "\nNext, your own model and rows:"
        "\n  auber prune --model DIR --train rows.csv --text text --label label --keep 0.5,0.25"
        " --out runs/mine"
    )
