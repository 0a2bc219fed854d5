"""Whole runs of auber, judged on development rows: a part of train in the place of dev.

An arm is a method with changed settings. All arms of a file start from one fine-tuned model, and
those that prune make one model for each size of --keep, or of their own `size.keep`. Ideas are
compared with the control `original+tuning` or with another arm; `original+tuning,seed=1000` is an
A/A control, whose difference from the control is noise.

Run:     python -m benchmarks.develop --model DIR --task rte --data GLUE --seed 0
         --keep 0.5,0.25 --arms original+tuning fisher fisher,last.epochs=12 --out rte-0.json
Compare: python -m benchmarks.develop --compare rte-0.json rte-1.json mrpc-0.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas

from auber import api
from auber.config import Config, make_config, parse_assignment
from auber.data import load_task
from auber.data.splits import hold_out
from auber.data.task import TaskData
from auber.run import provenance
from auber.search.registry import get_method
from auber.system.files import write_json
from auber.system.records import Count, Name, Number, Record, read
from auber.training.devices import resolve_hardware
from benchmarks.common import command_line, interval, make_parser, run_program, show

CONTROL = "original+tuning"


class ModelRecord(Record):
    """One model of an arm: scores in points, and what remains of the multiply-adds."""

    develop: Number
    train: Number
    loss: Number | None
    remaining: Number


class ArmRecord(Record):
    """The models of an arm by the share to keep (1: unpruned), and the cost of its run."""

    models: dict[str, ModelRecord]
    cost: dict[str, Any]


class Experiment(Record):
    """The arms of one task and seed."""

    command: str
    model: Name
    task: Name
    seed: Count
    rows: dict[str, Count]
    settings: dict[str, Any]
    provenance: dict[str, Any]
    arms: dict[str, ArmRecord]


def main(words: Sequence[str] | None = None) -> None:
    """Run an experiment, or compare some."""
    parser = make_parser("develop", __doc__)
    add = parser.add_argument
    add("--model", help="a pretrained encoder's folder or hub name")
    add("--task", help="a known task")
    add("--data", type=Path, help="a GLUE folder")
    add("--seed", type=int, default=0)
    add("--preset", default="default")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all arms")
    add("--develop", type=float, default=0.25, help="share of train that no model is tuned on")
    add("--keep", default="0.5,0.25,0.125", help="the sizes of pruned models")
    add("--arms", nargs="+", metavar="METHOD[,KEY=VALUE,...]", help="what to run")
    add("--out", type=Path, help="a .json file, written after each arm")
    add("--compare", nargs="+", type=Path, metavar="FILE", help="results to compare instead")
    add("--against", default=CONTROL, metavar="ARM", help="the arm to compare with")
    arguments = parser.parse_args(words)
    if arguments.compare:
        files = [read(Experiment, path, "run it again") for path in arguments.compare]
        title = f"Differences from {arguments.against} in points, with 95 % t intervals"
        show(compare(files, arguments.against), title)
        return
    if not (arguments.model and arguments.task and arguments.arms and arguments.out):
        parser.error("give --model, --task, --arms and --out, or --compare")
    run_experiment(arguments)


def run_experiment(arguments: argparse.Namespace) -> None:
    """Run all arms, and write the result after each."""
    task = cut_development_rows(
        load_task(arguments.task, data=arguments.data), arguments.develop, arguments.seed
    )
    # One thread, so that every machine computes alike.
    settings = {"threads": 1, "seed": arguments.seed}
    settings |= dict(parse_assignment(text) for text in arguments.set)
    otherwise = {"first.require_learned": False}  # its result says so
    config = make_config(arguments.preset, task=task.name, settings=settings, otherwise=otherwise)
    arms: dict[str, ArmRecord] = {}
    with tempfile.TemporaryDirectory(prefix="auber-develop-") as folder:
        start = Path(folder) / "start"
        api.finetune(arguments.model, task=task, config=config, out=start)
        for number, arm in enumerate(arguments.arms):
            out = Path(folder) / str(number)
            arms[arm] = _run_arm(arm, start, task, config, arguments.keep, out)
            experiment = Experiment(
                command=command_line("develop"),
                model=Path(arguments.model).name,
                task=task.name,
                seed=arguments.seed,
                rows={"tuned": len(task.train), "develop": len(task.dev)},
                settings=settings,
                provenance=provenance.describe(resolve_hardware(config)),
                arms=arms,
            )
            write_json(arguments.out, experiment.to_json())
    print(json.dumps({"out": str(arguments.out), "arms": list(arms)}))


def _run_arm(
    arm: str, start: Path, task: TaskData, config: Config, keep: str, out: Path
) -> ArmRecord:
    name, *changes = arm.split(",")
    method, changed = get_method(name), dict(map(parse_assignment, changes))
    size = str(changed.pop("size.keep", keep)) if method.removes_heads else None
    config = config.replace(changed)
    result = api.prune(start, task=task, method=name, keep=size, config=config, out=out).result
    models = {size["name"]: size for size in result.get("sizes", ())}
    models = models or {size or "1": result}
    found = {size: _describe(model) for size, model in models.items()}
    return ArmRecord(models=found, cost=result["cost"])


def cut_development_rows(task: TaskData, share: float, seed: int) -> TaskData:
    """Return the task with a share of its train rows, drawn by class, in the place of dev."""
    labels = task.train.labels if task.has_classes else None
    tuned, held_out = hold_out(range(len(task.train)), labels, share, seed)
    return replace(task, train=task.train.select(tuned), dev=task.train.select(held_out))


def compare(experiments: Sequence[Experiment], against: str = CONTROL) -> pandas.DataFrame:
    """Return the mean difference of each arm and size from another arm, over task and seed.

    A size is compared with the same size of the other arm, or with its unpruned model.
    """
    models = [
        {
            "arm": name,
            "keep": float(size),
            "task": each.task,
            "seed": each.seed,
            "gain": model.develop - control.develop,
            "gap": (model.train - model.develop) - (control.train - control.develop),
        }
        for each in experiments
        if against in each.arms
        for name, arm in each.arms.items()
        if name != against
        for size, model in arm.models.items()
        if (control := each.arms[against].models.get(size, each.arms[against].models.get("1")))
    ]
    rows = []
    grouped = pandas.DataFrame(models).groupby(["arm", "keep"], sort=False) if models else ()
    for (arm, keep), found in grouped:
        # Several runs of one task and seed count once, by their mean.
        pairs = found.groupby(["task", "seed"], sort=False)[["gain", "gap"]].mean()
        by_task = pairs.groupby("task", sort=False)["gain"].mean()
        rows.append(
            {
                "arm": arm,
                "keep": keep,
                "pairs": len(pairs),
                "ahead in": int((pairs["gain"] > 0).sum()),
                "develop": interval(list(pairs["gain"])),
                "train minus develop": interval(list(pairs["gap"])),
                "by task": ", ".join(f"{task} {mean:+.1f}" for task, mean in by_task.items()),
            }
        )
    return pandas.DataFrame(rows)


def _describe(model: dict[str, Any]) -> ModelRecord:
    return ModelRecord(
        develop=100 * model["dev"]["score"],
        train=100 * model["train"]["score"],
        loss=model["dev"]["loss"],
        remaining=model["remaining"]["multiply_adds"],
    )


if __name__ == "__main__":
    run_program(main)
