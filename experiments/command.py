"""What the experiments' command lines have in common."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from auber.files import write_json


class _Options(argparse.ArgumentParser):
    """Adds to what is parsed: `settings` of a run, and what was `said`, without paths, for the record."""

    def parse_args(self, *words: Any, **more: Any) -> Any:
        arguments = super().parse_args(*words, **more)
        changed = dict(item.split("=", 1) for item in arguments.set)
        arguments.settings = {"seed": arguments.seed, **changed}
        name = Path(arguments.model).name
        arguments.said = " ".join(
            [
                f"--model {name} --task {arguments.task} --data GLUE --seed {arguments.seed} --folds {arguments.folds}",
                f"--develop {arguments.develop:g}",
                *(f"--set {item}" for item in arguments.set),
            ]
        )
        return arguments


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A command line that explains the experiment, with the options all of them take."""
    options = _Options(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="a pretrained encoder's folder")
    options.add_argument("--task", required=True)
    options.add_argument("--data", type=Path, help="a GLUE folder")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--folds", type=int, default=3, help="scouts, each tuned on all rows but its fold")
    options.add_argument("--develop", type=float, default=0.25, help="share of train that no model is tuned on")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the run")
    options.add_argument("--out", type=Path, required=True, help="a .json file")
    return options


def write(out: Path, result: dict[str, Any]) -> None:
    """Write the result and say where it is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, result)
    print(json.dumps({"out": str(out), "seconds": result.get("seconds")}))
