"""The demonstration: fine-tune, prune and compare a small model, without a download.

A small new BERT is fine-tuned on the generated agreement task, pruned by AUBER, and compared with
the same model unpruned and with random pruning of as many heads, both tuned alike. It takes a few
minutes on two CPU cores. One seed shows how the parts fit; it proves nothing about the method.
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

# A small untrained network needs larger rates and more epochs than a pretrained encoder.
SETTINGS: dict[str, Value] = {
    "threads": 1,  # at this size a second thread slows it down
    "first.epochs": EPOCHS,
    "first.learning_rate": LEARNING_RATE,
    "first.batch_size": BATCH_SIZE,
    "layer.learning_rate": LEARNING_RATE / 10,
    "last.learning_rate": LEARNING_RATE / 10,
    "agent.episodes": 80,  # games of 8 heads are short, and learning starts at the 128th move
    "reward.folds": 3,  # fold models take most of the time
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
) -> DemoResults:
    """Fine-tune, prune and compare; each run has its own folder below `out`."""
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
    )
    results: dict[str, dict[str, Any]] = {}
    for number, method in enumerate(METHODS, 2):
        progress.say(f"{number} of 4: {method}")
        pruned = api.prune(
            out / "start",
            task=task,
            method=method,
            heads=out / "auber" if method != "auber" else None,
            origin=model if method == "auber" else None,
            config=config,
            out=out / method,
            resume=resume,
            progress=progress,
        )
        results[method] = pruned.result
    return DemoResults(start.result, results)
