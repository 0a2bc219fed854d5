"""List what a user can name: commands and their options, settings, presets, public names, formats.

`python -m tests.golden.inventory` prints it; `inventory.json` was recorded at commit 4f10306.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "inventory.json"


def commands() -> list[str]:
    """Return `command --option` for every option and argument of the command line."""
    import typer

    from auber.cli import app

    return sorted(_walk(typer.main.get_command(app), ""))


def _walk(command: Any, prefix: str) -> list[str]:
    if hasattr(command, "commands"):
        found = []
        for name, child in command.commands.items():
            found += [f"{prefix}{name}", *_walk(child, f"{prefix}{name} ")]
        return found
    return [
        f"{prefix}{option}"
        for each in command.params
        for option in (each.opts if each.param_type_name == "option" else [each.name.upper()])
        if option.startswith("--") or each.param_type_name != "option"
    ]


def public_names() -> list[str]:
    """Return every public name, and the parameters of those that are functions."""
    import auber

    found = []
    for name in auber.__all__:
        found.append(f"auber.{name}")
        value = getattr(auber, name)
        if inspect.isfunction(value):
            found += [f"auber.{name}({each})" for each in inspect.signature(value).parameters]
    return found


def settings() -> list[str]:
    """Return every setting's key."""
    from auber.config import settings as declared

    return sorted(info.key for info in declared())


FORMATS = [
    "run folder: run.json",
    "run folder: config.toml",
    "run folder: splits.json",
    "run folder: plan.json",
    "run folder: scores.jsonl",
    "run folder: events.jsonl",
    "run folder: stages/",
    "run folder: result.json",
    "run folder: model/",
    "rows: csv",
    "rows: tsv",
    "rows: json",
    "rows: jsonl",
    "rows: parquet",
    "rows: conll",
    "rows: txt",
    "rows: SQuAD json",
    "rows: GLUE folder",
    "settings: toml",
    "study: toml",
    "study: results file",
    "report: html",
    "report: markdown",
    "report: csv",
    "report: latex",
    "report: svg",
    "report: pdf",
    "model: pruned checkpoint",
    "model: transformers 4 checkpoint with pruned_heads",
    "export: onnx",
    "export: dense",
    "export: hub",
    "json: speed",
    "json: bench",
    "json: regret",
    "json: regret tables",
]


def collect() -> dict[str, list[str]]:
    """Return the whole inventory."""
    return {
        "commands": commands(),
        "public names": public_names(),
        "settings": settings(),
        "formats": FORMATS,
    }


if __name__ == "__main__":
    print(json.dumps(collect(), indent=1))
