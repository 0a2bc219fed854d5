"""The main job end to end on the embedded default: nothing to download, a few minutes on two CPU cores.

A small BERT made on the spot is fine-tuned on the generated agreement task, pruned by AUBER, and compared with the same
model unpruned and with random pruning of as many heads, both given the same tuning. One seed shows how the parts fit; it
proves nothing about the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auber import api
from auber.config import Config, Value, make_config
from auber.data.generated import (
    BATCH_SIZE,
    EPOCHS,
    LEARNING_RATE,
    build_model,
    build_tokenizer,
    make_agreement,
)
from auber.system.progress import Progress

# A network this small, made from nothing, wants larger rates and more passes than a pretrained encoder.
SETTINGS: dict[str, Value] = {
    "threads": 1,  # a second thread only gets in the way at this size
    "first.epochs": EPOCHS,
    "first.learning_rate": LEARNING_RATE,
    "first.batch_size": BATCH_SIZE,
    "layer.learning_rate": LEARNING_RATE / 10,
    "last.learning_rate": LEARNING_RATE / 10,
    "agent.episodes": 80,  # games of eight heads are short, and the agent learns from its 128th move on
    "reward.folds": 3,  # for the time it takes: most of it is the scouts'
}

METHODS = ("auber", "original+tuning", "random")


@dataclass(frozen=True)
class DemoResults:
    """The results of the four runs, in the order of the table."""

    start: dict[str, Any]
    methods: dict[str, dict[str, Any]]


def demo_config(seed: int = 0) -> Config:
    """The settings of the demonstration."""
    return make_config("default", task="agreement", settings={**SETTINGS, "seed": seed})


def run_demo(
    out: Path,
    *,
    seed: int = 0,
    resume: bool = False,
    progress: Progress,
    command: str | None = None,
) -> DemoResults:
    """Fine-tune, prune and compare; each run has its own folder below `out`. `command`: the command line that asks for it."""
    config = demo_config(seed)
    task = make_agreement(seed)
    model = build_model(task.num_labels, seed)
    progress.say(f"1 of 4: fine-tuning a small BERT on {len(task.train)} sentences")
    start = api.finetune(
        model,
        build_tokenizer(),
        task=task,
        config=config,
        out=out / "start",
        resume=resume,
        progress=progress,
        command=command,
    )
    results: dict[str, dict[str, Any]] = {}
    for number, method in enumerate(METHODS, 2):
        progress.say(f"{number} of 4: {method}")
        pruned = api.prune(
            out / "start",
            task=task,
            method=method,
            heads_from=out / "auber" if method != "auber" else None,
            origin=model
            if method == "auber"
            else None,  # its scouts are made of what the start was
            config=config,
            out=out / method,
            resume=resume,
            progress=progress,
            command=command,
        )
        results[method] = pruned.result
    return DemoResults(start.result, results)
