"""Whole runs of auber, judged on development rows: a part of train in the place of dev.

An idea is tried as a setting or a method beside what it changes, over several tasks and seeds. The
first method decides how many heads go, by its search or by --heads; those after it remove as many
from the same fine-tuned model and get the same tuning, except searches, which decide for
themselves. `--variant` runs the first method again with settings changed.

Run:     python -m benchmarks.develop --model DIR --task rte --data GLUE --seed 0 --out rte-0.json
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
from auber.config import make_config, parse_assignment
from auber.data import load_task
from auber.data.splits import hold_out
from auber.data.task import TaskData
from auber.run import provenance
from auber.run.records import Plan
from auber.search.registry import get_method
from auber.system.files import write_json
from auber.system.records import Count, Name, Number, Record, read
from auber.training.devices import resolve_hardware
from benchmarks.common import command_line, interval, run_program, show

CONTROL = "original+tuning"


class RunRecord(Record):
    """One run: scores in points, the loss on the development rows, the plan and the cost."""

    develop: Number
    train: Number
    loss: Number | None
    num_removed: Count
    removed: Plan
    cost: dict[str, Any]


class Experiment(Record):
    """The runs of one task and seed."""

    command: str
    model: Name
    task: Name
    seed: Count
    rows: dict[str, Count]
    settings: dict[str, Any]
    provenance: dict[str, Any]
    runs: dict[str, RunRecord]


def main(words: Sequence[str] | None = None) -> None:
    """Run an experiment, or compare some."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.develop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", help="a pretrained encoder's folder or hub name")
    add("--task", help="a known task")
    add("--data", type=Path, help="a GLUE folder")
    add("--seed", type=int, default=0)
    add("--preset", default="default")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all runs")
    add("--develop", type=float, default=0.25, help="share of train that no model is tuned on")
    add("--methods", default=f"auber,voita,{CONTROL}", help="in this order")
    add("--heads", type=int, help="how many heads the first method removes")
    add("--variant", action="append", default=[], metavar="KEY=VALUE,...", help="may be repeated")
    add("--out", type=Path, help="a .json file, written after each run")
    add("--compare", nargs="+", type=Path, metavar="FILE", help="results to compare instead")
    arguments = parser.parse_args(words)
    if arguments.compare:
        files = [read(Experiment, path, "run it again") for path in arguments.compare]
        show(compare(files), f"Differences from {CONTROL} in points, with 95 % t intervals")
        return
    if not (arguments.model and arguments.task and arguments.out):
        parser.error("give --model, --task and --out, or --compare")
    run_experiment(arguments)


def run_experiment(arguments: argparse.Namespace) -> None:
    """Make all runs, and write the result after each."""
    task = cut_development_rows(
        load_task(arguments.task, data=arguments.data), arguments.develop, arguments.seed
    )
    # One thread, so that every machine computes alike.
    settings = {"threads": 1, "seed": arguments.seed}
    settings |= dict(parse_assignment(text) for text in arguments.set)
    otherwise = {"first.require_learned": False}  # its result says so
    config = make_config(arguments.preset, task=task.name, settings=settings, otherwise=otherwise)
    methods = arguments.methods.split(",")
    changes: dict[str, dict[str, Any]] = {name: {} for name in methods}
    changes |= {
        text: dict(parse_assignment(each) for each in text.split(",")) for text in arguments.variant
    }
    runs: dict[str, RunRecord] = {}
    with tempfile.TemporaryDirectory(prefix="auber-develop-") as folder:
        start, leader = Path(folder) / "start", None
        api.finetune(arguments.model, task=task, config=config, out=start)
        for number, (name, changed) in enumerate(changes.items()):
            method = get_method(name if name in methods else methods[0])
            out = Path(folder) / str(number)
            if changed or (method.removes_heads and leader is None):
                heads = arguments.heads
            else:
                heads = None if method.decides_number else leader
            found = api.prune(
                start,
                task=task,
                method=method.name,
                heads=heads,
                config=config.replace(changed),
                out=out,
            )
            leader = leader or (out if method.removes_heads else None)
            runs[name] = _describe(found.result)
            experiment = Experiment(
                command=command_line("develop"),
                model=Path(arguments.model).name,
                task=task.name,
                seed=arguments.seed,
                rows={"tuned": len(task.train), "develop": len(task.dev)},
                settings=settings,
                provenance=provenance.describe(resolve_hardware(config)),
                runs=runs,
            )
            write_json(arguments.out, experiment.to_json())
    print(json.dumps({"out": str(arguments.out), "runs": list(runs)}))


def cut_development_rows(task: TaskData, share: float, seed: int) -> TaskData:
    """Return the task with a share of its train rows, drawn by class, in the place of dev."""
    labels = task.train.labels if task.has_classes else None
    tuned, held_out = hold_out(range(len(task.train)), labels, share, seed)
    return replace(task, train=task.train.select(tuned), dev=task.train.select(held_out))


def compare(experiments: Sequence[Experiment]) -> pandas.DataFrame:
    """Return the mean difference of each run from the control, over pairs of task and seed."""
    runs = [
        {
            "run": name,
            "task": each.task,
            "seed": each.seed,
            "gain": run.develop - control.develop,
            "gap": (run.train - run.develop) - (control.train - control.develop),
            "removed": run.num_removed,
        }
        for each in experiments
        if (control := each.runs.get(CONTROL)) is not None
        for name, run in each.runs.items()
        if name != CONTROL
    ]
    rows = []
    for name, found in pandas.DataFrame(runs).groupby("run", sort=False) if runs else ():
        # Several runs of one task and seed count once, by their mean.
        pairs = found.groupby(["task", "seed"], sort=False)[["gain", "gap"]].mean()
        rows.append(
            {
                "run": name,
                "pairs": len(pairs),
                "ahead in": int((pairs["gain"] > 0).sum()),
                "develop": interval(list(pairs["gain"])),
                "train minus develop": interval(list(pairs["gap"])),
                "heads removed": f"{found['removed'].mean():.0f}",
            }
        )
    return pandas.DataFrame(rows)


def _describe(result: dict[str, Any]) -> RunRecord:
    return RunRecord(
        develop=100 * result["dev"]["score"],
        train=100 * result["train"]["score"],
        loss=result["dev"]["loss"],
        num_removed=result["heads"]["removed"],
        removed=result["plan"],
        cost=result["cost"],
    )


if __name__ == "__main__":
    run_program(main)
