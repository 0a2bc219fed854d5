"""What a whole search of one preset takes beside another's: runs from the pretrained encoder, one after the other on one machine.

Before the first that counts a short one is made, so that none of them pays for what a process does once. Nothing is said of scores.

python -m experiments.cost --model mpnet-base --task rte --data GLUE --out results/experiments/cost-rte.json
"""

from __future__ import annotations

import time

from auber import api
from auber.config import make_config
from auber.data import load_task
from experiments.command import describe, parser, settings_of_all, write

# Rewards of one game, which teaches nobody, and no tuning but a first one.
SHORT = {
    "protocol": "seen",
    "agent.episodes": 1,
    "agent.choose": "best",
    "first.epochs": 1,
    "layer.epochs": 0,
    "last.epochs": 0,
}


def main() -> None:
    """The command line."""
    options = parser(__doc__)
    options.add_argument(
        "--presets", default="paper,default", help="the first is what the others are compared with"
    )
    arguments = options.parse_args()
    names, task = arguments.presets.split(","), load_task(arguments.task, data=arguments.data)
    settings = settings_of_all(arguments)
    configs = {name: make_config(name, task=task.name, settings=settings) for name in names}
    api.prune(
        arguments.model,
        task=task,
        config=make_config(names[0], task=task.name, settings={**settings, **SHORT}),
    )
    content = describe("cost", f"--presets {arguments.presets}", arguments, task, configs[names[0]])
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
