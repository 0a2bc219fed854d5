"""Whole runs of the package judged on development rows: a part of train in the place of dev, which no run sees.

An idea is tried as a setting or a method beside what it changes: this program with it and without, over several tasks and seeds. The first
method says how many heads go, by its search or by --heads; those after it remove as many from the same start and get the same tunings,
but for searches, which decide for themselves.

python -m experiments.develop --model mpnet-base --task rte --data GLUE --seed 2 --set layer.learning_rate=2e-5 --out rte-2.json
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from auber import api
from auber.config import Config, make_config
from auber.data import load_task
from auber.data.task import TaskData
from auber.data.splits import hold_out
from auber.search.registry import get_method
from experiments.command import changes, describe, parser, settings_of_all, write
from experiments.summary import CONTROL


def developing(task: TaskData, share: float, seed: int) -> TaskData:
    """The task with that share of its train rows, by class and seed, in the place of its dev rows."""
    labels = task.train.labels if task.has_classes else None
    tuned, held_out = hold_out(range(len(task.train)), labels, share, seed)
    return replace(task, train=task.train.select(tuned), dev=task.train.select(held_out))


def developing_parser(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a program that judges on development rows."""
    options = parser(doc)
    options.add_argument("--preset", default="default")
    options.add_argument(
        "--develop", type=float, default=0.25, help="share of train that no model is tuned on"
    )
    return options


def describe_developing(
    kind: str, own: str, arguments: argparse.Namespace, task: TaskData, config: Config
) -> dict[str, Any]:
    """What its file says first; `own` are the words of the command line that no other such program has."""
    words = f"--preset {arguments.preset} --develop {arguments.develop:g} {own}"
    return {
        **describe(kind, words.rstrip(), arguments, task, config),
        "metric": task.metric,
        "rows": {"tuned": len(task.train), "develop": len(task.dev)},
        "changed": {"preset": arguments.preset, **changes(arguments)},
    }


def main() -> None:
    """The command line."""
    options = developing_parser(__doc__)
    options.add_argument(
        "--methods",
        default=f"auber,voita,{CONTROL}",
        help="in this order; the others follow the first",
    )
    options.add_argument("--heads", type=int, help="how many heads the first removes")
    arguments = options.parse_args()
    task = developing(
        load_task(arguments.task, data=arguments.data), arguments.develop, arguments.seed
    )
    config = make_config(arguments.preset, task=task.name, settings=settings_of_all(arguments))
    own = f"--methods {arguments.methods}" + (
        "" if arguments.heads is None else f" --heads {arguments.heads}"
    )
    content = describe_developing("develop", own, arguments, task, config)
    with tempfile.TemporaryDirectory(prefix="auber-develop-") as folder:
        start, leader = Path(folder) / "start", None
        api.finetune(arguments.model, task=task, config=config, out=start)
        for name in arguments.methods.split(","):
            method, out = get_method(name), Path(folder) / name
            heads = arguments.heads if method.removes_heads and leader is None else None
            followed = None if method.decides_number else leader
            found = api.prune(
                start,
                task=task,
                method=name,
                heads=heads,
                heads_from=followed,
                config=config,
                out=out,
            )
            leader = leader or (out if method.removes_heads else None)
            content["runs"][name] = numbers(found.result)
            write(arguments.out, content)


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a run's result. Scores are in points and in lists, as in the files of experiments that had several measures."""
    return {
        "develop": [100 * result["dev"]["score"]],
        "train": [100 * result["train"]["score"]],
        "loss": result["dev"]["loss"],
        "num_removed": result["heads"]["removed"],
        "removed": result["plan"],
        "cost": result["cost"],
    }


if __name__ == "__main__":
    main()
