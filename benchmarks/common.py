"""What the programs share: tables, progress lines and the command that a result records."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from auber.errors import AuberError
from auber.metrics.statistics import summary
from auber.run import provenance
from auber.system.progress import Progress

if TYPE_CHECKING:
    import pandas

ROOT = Path(__file__).parents[1]


def make_parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a program's options."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def command_line(program: str) -> str:
    """Return the command that is running, without the folders of this machine."""
    words = ["python", "-m", f"benchmarks.{program}", *sys.argv[1:]]
    return provenance.without_folders(shlex.join(words))


def describe_origin(found: dict[str, object]) -> str:
    """Format the commit and the versions of a result's provenance."""
    commit, versions = found.get("commit"), found.get("versions")
    words = []
    if isinstance(commit, dict):
        words.append(f"commit `{commit['id'][:12]}`" + " with changes" * commit["dirty"])
    if isinstance(versions, dict):
        names = ("python", "torch", "transformers")
        words.append(", ".join(f"{name} {versions[name]}" for name in names if name in versions))
    return "; ".join(words) or "origin not recorded"


def markdown(table: pandas.DataFrame) -> str:
    """Return a table in Markdown; columns of numbers are aligned to the right."""
    from auber.report.tables import markdown_lines

    return "\n".join(markdown_lines(table.astype(str))) + "\n"


def show(table: pandas.DataFrame, title: str = "") -> None:
    """Print a table to the terminal."""
    print(f"\n{title}" if title else "")
    print(table.to_string(index=False))


def interval(values: Sequence[float]) -> str:
    """Format the mean of values with its 95 % t interval."""
    found = summary(values)
    if found.low is None or found.high is None:
        return f"{found.mean:+.2f}"
    return f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


class StageLines(Progress):
    """Print each stage to stderr as it begins."""

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage."""
        super().begin(stage, total)
        print(f"{stage} ...", file=sys.stderr, flush=True)


def run_program(main: Callable[[], None]) -> None:
    """Run a program; an error of the user is one line on stderr and exit code 2."""
    try:
        main()
    except AuberError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
