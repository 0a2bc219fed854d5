"""The command line: one file per command.

Heavy imports are inside the commands, so `--help` is instant. An error of the user, or of the disk,
is one line on stderr and exit code 2. Any other exception is a bug and shows its traceback.

Ctrl-C and SIGTERM raise an exception in the main thread, so files are closed and locks released.
The exit code is 128 plus the number of the signal, as in a shell; a line says how to continue.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

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
    study,
    watch,
)
from auber.errors import AuberError, ConfigError
from auber.system.distributed import is_main_process, launch_words
from auber.system.files import is_refusal

_WITH_RESUME = ("demo", "finetune", "prune")  # continue with --resume; a study without
_UsageError: Any = typer.BadParameter.__base__  # typer may bring its own copy of click


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised like Ctrl-C."""


class Commands(TyperGroup):
    """The commands of the program, each of which can be stopped."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help text, by goal."""
        for goal, names in _GOALS.items():
            with formatter.section(goal):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(80)) for name in names]
                )

    def invoke(self, ctx: Any) -> Any:  # the class of the context depends on the version of typer
        """Run a command; if it is stopped, print how to continue."""
        can_handle = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, _terminate) if can_handle else None
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print(f"auber: {describe_stop(ctx.invoked_subcommand, sys.argv[1:])}", file=sys.stderr)
            number = signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
            raise typer.Exit(128 + number) from None
        except _UsageError as error:
            place = " ".join(filter(None, ("auber", ctx.invoked_subcommand)))
            # pydantic, through which typer checks values, puts the kind of error first
            message = error.format_message().rstrip(".").replace("Value error, ", "", 1)
            see = " See" if message.endswith("?") else "; see"
            raise ConfigError(f"{message}{see} '{place} --help'") from None
        finally:
            if can_handle:
                signal.signal(signal.SIGTERM, before)


def describe_stop(command: str | None, words: Sequence[str]) -> str:
    """Return the message for a stopped command; `words` is its command line."""
    has_folder = any(word == "--out" or word.startswith("--out=") for word in words)
    if command not in (*_WITH_RESUME, "study") or not has_folder:
        return "stopped"
    if command in _WITH_RESUME and "--resume" not in words:
        words = [*words, "--resume"]
    return f"stopped; continue with: {shlex.join([*launch_words(), 'auber', *words])}"


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


app = typer.Typer(
    cls=Commands,
    name="auber",
    help="Make a fine-tuned encoder smaller and faster: prune attention heads and neurons.",
    epilog="Start with 'auber demo', which downloads nothing. Options: 'auber COMMAND --help'.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_GOALS: dict[str, dict[str, Callable[..., None]]] = {
    "Begin": {"demo": demo.command, "doctor": doctor.command, "list": list.command},
    "Make a model smaller": {"prune": prune.command, "finetune": finetune.command},
    "Measure it": {"evaluate": evaluate.command, "speed": speed.command},
    "Use it elsewhere": {"export": export.command, "import": imports.command},
    "Follow, report and compare": {
        "watch": watch.command,
        "report": report.command,
        "study": study.command,
    },
}
for goal, commands in _GOALS.items():
    for name, command in commands.items():
        app.command(name, cls=options.Command, rich_help_panel=goal)(command)


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
