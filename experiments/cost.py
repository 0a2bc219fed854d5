"""What a whole search of one preset takes beside another's: runs from the pretrained encoder, one after the other on one machine.

Before the first that counts a short one is made, so that none of them pays for what a process does once. Nothing is said of scores.

python -m experiments.cost --model mpnet-base --task rte --data GLUE --out results/experiments/cost-rte.json
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from auber import api, provenance
from auber.config import make_config
from auber.devices import resolve_hardware
from auber.tasks import load_task
from experiments.command import write

# Rewards of one game and no tuning but a first one.
SHORT = {"protocol": "seen", "agent.episodes": 1, "first.epochs": 1, "layer.epochs": 0, "last.epochs": 0}


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="a pretrained encoder's folder")
    options.add_argument("--task", required=True)
    options.add_argument("--data", type=Path, help="a GLUE folder")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--presets", default="paper,default", help="the first is what the others are compared with")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all runs")
    options.add_argument("--out", type=Path, required=True, help="a .json file")
    arguments = options.parse_args()
    names, task = arguments.presets.split(","), load_task(arguments.task, data=arguments.data)
    changed = {"threads": 1, "seed": arguments.seed, **dict(item.split("=", 1) for item in arguments.set)}
    configs = {name: make_config(name, task=task.name, settings=changed) for name in names}
    api.prune(arguments.model, task=task, config=make_config(names[0], task=task.name, settings={**changed, **SHORT}))
    words = [f"--model {Path(arguments.model).name} --task {task.name} --data GLUE --seed {arguments.seed}"]
    words += [f"--presets {arguments.presets}", *(f"--set {item}" for item in arguments.set)]
    content: dict[str, Any] = {
        "format": 1,
        "kind": "experiment-cost",
        "command": f"python -m experiments.cost {' '.join(words)}",
        "model": Path(arguments.model).name,
        "task": task.name,
        "seed": arguments.seed,
        "provenance": provenance.describe(resolve_hardware(configs[names[0]])),
        "runs": {},
    }
    for name, config in configs.items():
        started = time.perf_counter()
        found = api.prune(arguments.model, task=task, config=config)
        seconds = time.perf_counter() - started
        content["runs"][name] = {
            "seconds": round(seconds, 1),
            "cost": found.result["cost"],
            "protocol": config.protocol,
            "num_removed": found.plan.num_removed,
        }
        write(arguments.out, content)


if __name__ == "__main__":
    main()
