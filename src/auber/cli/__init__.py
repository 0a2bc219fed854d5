"""The command line: one file per command.

Heavy imports are inside the commands, so `--help` is instant. An error of the user, or of the disk,
is one line on stderr and exit code 2. Any other exception is a bug and shows its traceback.
"""

from __future__ import annotations

import io
import os
import sys

import typer

from auber.cli import (
    demo,
    doctor,
    evaluate,
    export,
    finetune,
    imports,
    list,  # noqa: A004
    prune,
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
    epilog="Start with 'auber demo'; it downloads nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The first sentence of a docstring may be cut in a terminal of 80 columns; these fit.
for name, command, summary in (
    ("demo", demo.command, "Fine-tune, prune and compare on a small generated task."),
    ("prune", prune.command, "Remove the heads that a model can do without."),
    ("finetune", finetune.command, "Fine-tune an encoder, so that several prunings can share it."),
    ("evaluate", evaluate.command, "Score a fine-tuned model, pruned or not, on a task's rows."),
    ("export", export.command, "Export a pruned model: ONNX, plain transformers or the hub."),
    ("import", imports.command, "Convert a model that transformers 4 pruned."),
    ("speed", speed.command, "Measure what pruning saves: size, latency and throughput."),
    ("study", study.command, "Run tasks x methods x seeds; continue where it stopped."),
    ("report", report.command, "Write an HTML page and tables of finished runs."),
    ("watch", watch.command, "Follow a run or a study from another terminal."),
    ("list", list.command, "List tasks, models, methods, metrics or settings."),
    ("doctor", doctor.command, "Check the installation and print how to fix it."),
):
    app.command(name, short_help=summary)(command)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"auber {installed('auber')}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    # Threads of the tokenizers would warn about every fork and are no faster at these sizes.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that spin while they wait are several times slower if another process needs a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Replace characters that the encoding lacks, such as that of a pipe on Windows.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if not is_main_process():  # the main process prints the same
        sys.stdout = io.StringIO()
    try:
        app()
    except AuberError as error:
        print(f"auber: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if not is_refusal(error):
            raise
        place = error.filename or "a file"
        print(f"auber: {place}: cannot be written or read ({error.strerror})", file=sys.stderr)
        sys.exit(2)
