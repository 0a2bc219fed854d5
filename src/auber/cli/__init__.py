"""The command line: one file a command, heavy imports inside the command, so that `--help` is instant.

A user's mistake, or a disk that takes nothing more, is one line on stderr and exit code 2; a stop is one line and the
signal's code (`stops`); anything else is a bug and shows its traceback.
"""

from __future__ import annotations

import io
import os
import sys

import typer

from auber.cli import (
    bench,
    demo,
    doctor,
    evaluate,
    export,
    finetune,
    imports,
    listings,
    prune,
    regret,
    report,
    speed,
    stops,
    study,
    watch,
)
from auber.errors import AuberError
from auber.system.distributed import is_main_process
from auber.system.files import is_refusal

app = typer.Typer(
    cls=stops.Commands,
    name="auber",
    help="Learn which attention heads a fine-tuned encoder can do without, and remove them.",
    epilog="Start with 'auber demo': the whole job on a small generated task, in under three minutes, nothing to download.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The first sentences of their docstrings are cut in a terminal of 80 columns; these fit.
app.command("demo", short_help="The whole job on a small generated task, in three minutes.")(
    demo.command
)
app.command("prune", short_help="Find heads a model can do without, and remove them.")(
    prune.command
)
app.command("finetune", short_help="Fine-tune an encoder: a start that several prunings share.")(
    finetune.command
)
app.command("evaluate", short_help="Score a fine-tuned model, pruned or not, on a task's rows.")(
    evaluate.command
)
app.command("export", short_help="Write a pruned model for ONNX, plain transformers or the hub.")(
    export.command
)
app.command("import", short_help="Turn a model that transformers 4 pruned into one that loads.")(
    imports.command
)
app.command("speed", short_help="Measure what pruning buys: size, latency and throughput.")(
    speed.command
)
app.command("watch", short_help="Follow a run or a study from another terminal.")(watch.command)
app.command("report", short_help="Write an HTML page and tables of finished runs.")(report.command)
app.command("study", short_help="Run tasks x methods x seeds, and go on where it was cut.")(
    study.command
)
app.command("regret", short_help="Measure how far a search ends from a layer's best mask.")(
    regret.command
)
app.command("bench", short_help="Measure what a search costs on this machine.")(bench.command)
app.command("doctor", short_help="Check what this installation can do, and say what to mend.")(
    doctor.command
)
app.command("tasks")(listings.tasks)
app.command("models")(listings.models)
app.command("methods")(listings.methods)
app.command("metrics", short_help="List the metrics --metric takes.")(listings.metrics)
app.command("settings", short_help="List the settings of --set and config files, by preset.")(
    listings.settings
)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"auber {installed('auber')}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    # The tokenizers' own threads would warn about every fork and gain nothing at these sizes.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that spin while they wait are several times slower as soon as another process wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # An encoding that lacks a sign, such as that of a pipe on Windows, costs the sign alone.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if not is_main_process():  # what it has to print, the first of the group prints too
        sys.stdout = io.StringIO()
    try:
        app()
    except AuberError as error:
        print(f"auber: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if not is_refusal(error):
            raise
        print(
            f"auber: {error.filename or 'a file'}: cannot be written or read ({error.strerror})",
            file=sys.stderr,
        )
        sys.exit(2)
