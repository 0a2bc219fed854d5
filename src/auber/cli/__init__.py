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
    options,
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
    help="Make a fine-tuned encoder smaller and faster: prune attention heads and neurons.",
    epilog="Start with 'auber demo'; it downloads nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in (
    ("demo", demo.command),
    ("prune", prune.command),
    ("finetune", finetune.command),
    ("evaluate", evaluate.command),
    ("export", export.command),
    ("import", imports.command),
    ("speed", speed.command),
    ("study", study.command),
    ("report", report.command),
    ("watch", watch.command),
    ("list", list.command),
    ("doctor", doctor.command),
):
    app.command(name, cls=options.Command)(command)


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
