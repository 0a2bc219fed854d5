"""Whole runs of the package judged on development rows: a part of train in the place of dev, which no run sees.

An idea is tried as a setting or a method beside what it changes: this program with it and without, over several tasks and seeds. The first
method says how many heads go, by its search or by --heads; those after it remove as many from the same start and get the same tunings.

python -m experiments.develop --model mpnet-base --task rte --data GLUE --seed 2 --set layer.learning_rate=1e-5 --out rte-2.json
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from auber import api, provenance
from auber.config import make_config
from auber.devices import resolve_hardware
from auber.methods import get_method
from auber.rates.tunings import hold_out
from auber.tasks import load_task
from auber.tasks.base import TaskData
from experiments.command import write
from experiments.summary import CONTROL


def developing(task: TaskData, share: float, seed: int) -> TaskData:
    """The task with that share of its train rows, by class and seed, in the place of its dev rows."""
    tuned, held_out = hold_out(task, share, seed)
    return replace(task, train=task.train.select(tuned), dev=task.train.select(held_out))


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="a pretrained encoder's folder")
    options.add_argument("--task", required=True)
    options.add_argument("--data", type=Path, help="a GLUE folder")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--preset", default="default")
    options.add_argument("--develop", type=float, default=0.25, help="share of train that no model is tuned on")
    options.add_argument(
        "--methods", default=f"auber,voita,{CONTROL}", help="in this order; the others follow the first"
    )
    options.add_argument("--heads", type=int, help="how many heads the first removes")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all runs")
    options.add_argument("--out", type=Path, required=True, help="a .json file")
    arguments = options.parse_args()
    task = developing(load_task(arguments.task, data=arguments.data), arguments.develop, arguments.seed)
    changed = dict(item.split("=", 1) for item in arguments.set)
    config = make_config(arguments.preset, task=task.name, settings={"threads": 1, "seed": arguments.seed, **changed})
    content: dict[str, Any] = {
        "format": 1,
        "kind": "experiment-develop",
        "command": f"python -m experiments.develop {_said(arguments)}",
        "model": Path(arguments.model).name,
        "task": task.name,
        "metric": task.metric,
        "seed": arguments.seed,
        "changed": {"preset": arguments.preset, **changed},
        "rows": {"tuned": len(task.train), "develop": len(task.dev)},
        "provenance": provenance.describe(resolve_hardware(config)),
        "runs": {},
    }
    with tempfile.TemporaryDirectory(prefix="auber-develop-") as folder:
        start, leader = Path(folder) / "start", None
        api.finetune(arguments.model, task=task, config=config, out=start)
        for name in arguments.methods.split(","):
            method, out = get_method(name), Path(folder) / name
            heads = arguments.heads if leader is None and method.removes_heads else None
            result = api.prune(
                start, task=task, method=name, heads=heads, heads_from=leader, config=config, out=out
            ).result
            if leader is None and method.removes_heads:
                leader = out
            content["runs"][name] = {
                "develop": 100 * result["dev"]["score"],
                "train": 100 * result["train"]["score"],
                "loss": result["dev"]["loss"],
                "num_removed": result["heads"]["removed"],
                "removed": result["plan"],
                "cost": result["cost"],
            }
            write(arguments.out, content)


def _said(arguments: argparse.Namespace) -> str:
    """The command line without paths."""
    words = [
        f"--model {Path(arguments.model).name} --task {arguments.task} --data GLUE --seed {arguments.seed}",
        f"--preset {arguments.preset} --develop {arguments.develop:g} --methods {arguments.methods}",
    ]
    words += [] if arguments.heads is None else [f"--heads {arguments.heads}"]
    return " ".join([*words, *(f"--set {item}" for item in arguments.set)])


if __name__ == "__main__":
    main()
