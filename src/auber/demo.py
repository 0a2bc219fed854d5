"""The demonstration: does it matter which units go? Prune a small model, without a download.

A new BERT is fine-tuned from scratch on the generated agreement task. The default method and random
choice prune it to the same sizes, and the same tuning follows. Then the models' speed is measured.
It takes about a minute on two CPU cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
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
    "last.learning_rate": LEARNING_RATE / 10,
}
SIZES = (0.5, 0.25)  # shares of the multiply-adds; the default also tunes the unpruned model, 1
RUNS = {"default": None, "random": "random"}  # folder and method
PARTS = (0.0, 0.32, 0.69, 0.96, 1.0)  # of the work: fine-tuning, the runs, measuring the speed
ROWS = 64  # per batch, when the speed is measured: with fewer, a model this small waits for Python


@dataclass(frozen=True)
class Line:
    """One line of the demo's table: a model, its score and its speed."""

    name: str  # of its run
    keep: float
    score: float  # accuracy on dev
    multiply_adds: float  # share of the unpruned model's
    rows_per_second: float
    times_as_fast: float  # as the unpruned model


def demo_config(seed: int = 0) -> Config:
    """Return the settings of the demonstration."""
    return make_config("default", task="agreement", settings={**SETTINGS, "seed": seed})


def run_demo(
    out: Path, *, seed: int = 0, resume: bool = False, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Fine-tune once and prune twice; return the results of the runs, which are folders of `out`.

    The first is `start`, the others are `RUNS`.
    """
    config = demo_config(seed)
    task = make_agreement(seed)
    progress.part(*PARTS[:2])
    progress.say(f"1 of 3: fine-tuning a small BERT on {len(task.train)} sentences")
    start = api.finetune(
        build_model(task.num_labels, seed),
        build_tokenizer(),
        task=task,
        config=config,
        out=out / "start",
        resume=resume,
        progress=progress,
    )
    results = {"start": start.result}
    for number, (name, method) in enumerate(RUNS.items(), 2):
        progress.part(*PARTS[number - 1 : number + 1])
        progress.say(f"{number} of 3: pruning {'at random' if method else 'by the default method'}")
        results[name] = api.prune(
            out / "start",
            task=task,
            method=method,
            keep=SIZES if method else (1.0, *SIZES),
            config=config,
            out=out / name,
            resume=resume,
            progress=progress,
        ).result
    return results


def compare(out: Path, results: dict[str, dict[str, Any]], progress: Progress) -> list[Line]:
    """Return the models of a finished demo, the largest first, timed side by side."""
    from auber.models.checkpoint import load
    from auber.training.devices import resolve_hardware
    from auber.training.latency import torch_calls
    from auber.training.timing import Limits, make_timer, ratio_of, side_by_side

    made = [(name, size) for name in RUNS for size in results[name]["sizes"]]
    made.sort(key=lambda each: -each[1]["keep"])
    hardware = resolve_hardware(demo_config())
    models = [load(out / name / "models" / size["name"]).eval() for name, size in made]
    limits = Limits(repeats=30, seconds=5.0)
    progress.part(*PARTS[-2:])
    progress.plan([1.0])
    progress.begin("measuring speed", limits.repeats)
    calls = torch_calls(models, hardware)(ROWS, made[0][1]["after"]["tokens"])
    seconds = side_by_side(calls, make_timer(hardware.device), limits, progress.step)
    progress.end()
    return [
        Line(
            name,
            size["keep"],
            size["dev"]["score"],
            size["remaining"]["multiply_adds"],
            ROWS / median(times),
            ratio_of(seconds[0], times).median,
        )
        for (name, size), times in zip(made, seconds, strict=True)
    ]
