"""What the experiments' command lines have in common: their options, and what every file says first."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from auber.config import Config
from auber.data.task import TaskData
from auber.run import provenance
from auber.system.files import write_json
from auber.training.devices import resolve_hardware


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A command line that explains the experiment, with the options all of them take."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", required=True, help="a pretrained encoder's folder")
    options.add_argument("--task", required=True)
    options.add_argument("--data", type=Path, help="a GLUE folder")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all runs"
    )
    options.add_argument("--out", type=Path, required=True, help="a .json file")
    return options


def changes(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings that were given."""
    return dict(item.split("=", 1) for item in arguments.set)


def settings_of_all(arguments: argparse.Namespace) -> dict[str, Any]:
    """What all runs have beside their preset; one thread, so that every machine computes alike."""
    return {"threads": 1, "seed": arguments.seed, **changes(arguments)}


def describe(
    kind: str, own: str, arguments: argparse.Namespace, task: TaskData, config: Config
) -> dict[str, Any]:
    """What a file of this kind says first; `own` are the words of the command line that are the program's own. No paths."""
    words = [
        f"--model {Path(arguments.model).name} --task {task.name} --data GLUE --seed {arguments.seed}",
        own,
    ]
    return {
        "format": 1,
        "kind": f"experiment-{kind}",
        "command": " ".join(
            [f"python -m experiments.{kind}", *words, *(f"--set {item}" for item in arguments.set)]
        ),
        "model": Path(arguments.model).name,
        "task": task.name,
        "seed": arguments.seed,
        "provenance": provenance.describe(resolve_hardware(config)),
        "runs": {},
    }


def write(out: Path, result: dict[str, Any]) -> None:
    """Write the result and say where it is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, result)
    print(json.dumps({"out": str(out), "runs": list(result["runs"])}))
