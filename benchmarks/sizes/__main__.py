"""What a target size costs: run blocks of `studies/sizes.toml`, merge them, prepare speed.

Run:    PYTHONPATH=src:. python -m benchmarks.sizes run --task rte --seed 0 1 --models WEIGHTS
        --glue GLUE --data DATA --minutes 8 --out rte.json
Merge:  python -m benchmarks.sizes merge rte.json cola.json --out results/studies/sizes.json
Shapes: python -m benchmarks.sizes shapes --task mrpc --seed 0 --models WEIGHTS --out shapes

A block is one task and seed: a fine-tuned model and all arms that the plan has for it. Each arm is
added to --out when it is done, and a call with the same --out skips the arms that are there. With
the same --work it also goes on from the same fine-tuned model; else it fine-tunes again, and if
that gives other weights, it repeats the arms that the others are compared with.

Shapes are the models of a block as folders without weights, which `auber speed` measures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from auber import api
from auber.config import Config, make_config
from auber.data import load_task, make_task
from auber.data.encoding import encode_split
from auber.data.splits import hold_out
from auber.data.task import TaskData
from auber.errors import ConfigError, RunError
from auber.export.measure import count_multiply_adds
from auber.export.source import Source, read_source
from auber.export.speed import USUAL_LENGTH
from auber.metrics.task_metrics import get_metric
from auber.models.plan import PruningPlan
from auber.run import provenance
from auber.search.registry import METHODS
from auber.training.devices import resolve_hardware
from auber.training.evaluation import predict
from benchmarks.common import ROOT, StageLines, command_line, make_parser, run_program
from benchmarks.fidelity.models import can_measure_int8, make_int8
from benchmarks.sizes import peer
from benchmarks.sizes.plan import CONTROL, PLAN, SMALL, Arm, Plan, read_plan
from benchmarks.sizes.record import Model, merge, read_models, write_models

RESULTS = ROOT / "results" / "studies" / "sizes.json"


def main(words: Sequence[str] | None = None) -> None:
    """Run a block, merge files, or write shapes."""
    parser = make_parser("sizes", __doc__)
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser("run", help="one block").add_argument
    _add_block(add, nargs="+")
    add("--glue", type=Path, help="a GLUE folder")
    add("--data", type=Path, help="a folder of TASK-train.csv and TASK-dev.csv")
    add("--plan", type=Path, default=PLAN)
    add("--minutes", type=float, default=float("inf"), help="begin no arm after so many")
    add("--work", type=Path, help="keep the fine-tuned model here, for another call")
    add("--out", type=Path, required=True, help="a .json file that models are added to")
    commands.choices["run"].set_defaults(command=run)
    add = commands.add_parser("merge", help="files of blocks into one").add_argument
    add("files", nargs="+", type=Path)
    add("--out", type=Path, default=RESULTS, help="what it holds already stays")
    commands.choices["merge"].set_defaults(command=merge_files)
    add = commands.add_parser("shapes", help="the models of a block for auber speed").add_argument
    _add_block(add)
    add("--results", type=Path, default=RESULTS)
    add("--plan", type=Path, default=PLAN)
    add("--out", type=Path, required=True, help="a new folder")
    commands.choices["shapes"].set_defaults(command=write_shapes)
    arguments = parser.parse_args(words)
    arguments.command(arguments)


def _add_block(add: Any, **seeds: str) -> None:
    add("--task", required=True)
    add("--seed", type=int, required=True, **seeds)
    add("--models", type=Path, required=True, help="a folder of the pretrained models' folders")


def run(arguments: argparse.Namespace) -> None:
    """Run the arms that the file lacks of a task's blocks, while there is time."""
    plan, end = read_plan(arguments.plan), time.perf_counter() + 60 * arguments.minutes
    for seed in arguments.seed:
        plan.arms_of(arguments.task, seed)
    for seed in arguments.seed:
        if not _run_block(Block(plan, arguments.task, seed, arguments), arguments.work, end):
            print(f"{arguments.minutes:g} minutes are over; run it again for the other arms")
            return
    print(f"{arguments.out}: has all arms of {arguments.task}")


def _run_block(block: Block, work: Path | None, end: float) -> bool:
    """Run the missing arms of a block; return whether it is complete."""
    plan, arms = block.plan, block.plan.arms_of(block.name, block.seed)
    missing = [arm for arm in arms if arm.name not in block.held()]
    if not missing:
        return True
    _check_packages(plan, block.seed, missing)
    with tempfile.TemporaryDirectory(prefix="auber-sizes-") as scratch:
        if time.perf_counter() >= end:
            return False
        block.fine_tune((work or Path(scratch)) / f"{block.name}-{block.seed}")
        # Each fine-tuned model needs its own of what others are compared with.
        again = {CONTROL, *(question.arm for question in plan.questions)} - block.held(block.start)
        for arm in arms:
            if arm in missing or arm.name in again:
                if time.perf_counter() >= end:
                    return False
                block.run_arm(arm, Path(scratch) / "arm")
    return True


def _check_packages(plan: Plan, seed: int, arms: Sequence[Arm]) -> None:
    if any(arm.method == peer.NAME for arm in arms) and not peer.is_installed():
        raise ConfigError(
            f"the arm {peer.NAME} needs the package {peer.NAME} {peer.VERSION}, found none; "
            "install it, or put its wheel on PYTHONPATH"
        )
    if any(plan.wants_int8(arm.name, seed) for arm in arms) and not can_measure_int8():
        print("int8 is left empty: onnx, onnxruntime or onnxscript is missing", file=sys.stderr)


class Block:
    """A task and seed with one fine-tuned model; its file gets the models of each arm."""

    def __init__(self, plan: Plan, task: str, seed: int, arguments: argparse.Namespace) -> None:
        self.plan, self.name, self.seed, self.out = plan, task, seed, arguments.out
        self.weights: Path = arguments.models
        rows = plan.tasks[task].rows
        self.task = cut_rows(read_task(task, arguments.glue, arguments.data), rows)
        METHODS.setdefault(peer.NAME, peer.METHOD)

    def held(self, start: str | None = None) -> set[str]:
        """Return the arms that the file has for this block, for a fine-tuned model or any."""
        return {
            model.arm
            for model in read_models(self.out)
            if (model.task, model.seed) == (self.name, self.seed) and start in (None, model.start)
        }

    def config(self, *, small: bool = False, **settings: Any) -> Config:
        """Return the settings of an arm."""
        recipes = self.plan.tasks[self.name]
        recipe = recipes.small if small else recipes.model
        changes = {
            "seed": self.seed,
            "first.learning_rate": recipe.rate,
            "first.epochs": recipe.epochs,
            **self.plan.settings,
            **settings,
        }
        otherwise = {"first.require_learned": False}  # a model that learned nothing is a result
        return make_config("default", task=self.name, settings=changes, otherwise=otherwise)

    def fine_tune(self, folder: Path) -> None:
        """Make the model that all arms start from, unless it is there."""
        self.folder = folder
        tuned = api.finetune(
            self.weights / self.plan.model,
            task=self.task,
            config=self.config(),
            out=folder,
            resume=folder.exists(),
            progress=StageLines(),
        )
        self.start = tuned.result["start"]

    def run_arm(self, arm: Arm, out: Path) -> None:
        """Run an arm, and add its models to the file."""
        config, begun = self.config(small=arm.method == SMALL, **arm.settings), time.perf_counter()
        if arm.method == SMALL:
            origin = self.weights / self.plan.small
            result = api.finetune(origin, task=self.task, config=config, out=out).result
        else:
            result = api.prune(
                self.folder,
                task=self.task,
                method=arm.method,
                keep=arm.sizes or None,
                heads=arm.heads,
                config=config,
                out=out,
                progress=StageLines(),
            ).result
        seconds = round(time.perf_counter() - begun, 1)
        found = [
            self._describe(arm, keep, described, read_source(place), config, seconds)
            for keep, described, place in _models_of(arm, result, out)
        ]
        write_models(self.out, (*read_models(self.out), *found))
        shutil.rmtree(out)
        scores = ", ".join(f"{model.dev:.2f}" for model in found)
        print(f"{self.name} seed {self.seed}, {arm.name}: {scores} in {seconds:.0f} s", flush=True)

    def _describe(
        self,
        arm: Arm,
        keep: float | None,
        result: dict[str, Any],
        source: Source,
        config: Config,
        seconds: float,
    ) -> Model:
        encoder = source.encoder
        layers = range(encoder.num_layers)
        length = min(USUAL_LENGTH, encoder.num_positions)
        wants_int8 = self.plan.wants_int8(arm.name, self.seed) and can_measure_int8()
        return Model(
            task=self.name,
            seed=self.seed,
            start=self.start,
            arm=arm.name,
            keep=keep,
            dev=100 * result["dev"]["score"],
            train=100 * result["train"]["score"],
            loss=result["dev"]["loss"],
            int8=self._score_int8(source, config) if wants_int8 else None,
            heads=tuple(len(encoder.present(layer)) for layer in layers),
            neurons=tuple(len(encoder.present_neurons(layer)) for layer in layers),
            multiply_adds=count_multiply_adds(source.model, length),
            parameters=source.model.num_parameters(),
            seconds=seconds,
            command=command_line("sizes"),
            provenance=provenance.describe(resolve_hardware(config)),
        )

    def _score_int8(self, source: Source, config: Config) -> float:
        """Return the dev score of the int8 graph in points."""
        rows = encode_split(source.tokenizer, self.task, "dev", config.max_length)
        graph: Any = make_int8(source, os.cpu_count())
        found = get_metric(self.task.metric).compute(predict(graph, rows), rows.truth(graph.device))
        return 100 * float(found)


def read_task(name: str, glue: Path | None, data: Path | None) -> TaskData:
    """Return a task: of the csv files if there are any, else the known one."""
    files = [data / f"{name}-{split}.csv" for split in ("train", "dev")] if data else []
    if files and files[0].exists():
        return make_task(*files, name=name)
    return load_task(name, data=glue)


def cut_rows(task: TaskData, rows: int) -> TaskData:
    """Return the task with at most so many train rows (0: all), drawn by class."""
    if not rows or rows >= len(task.train):
        return task
    _, kept = hold_out(range(len(task.train)), task.train.labels, rows / len(task.train), 0)
    return replace(task, train=task.train.select(kept))


def _models_of(
    arm: Arm, result: dict[str, Any], out: Path
) -> Iterator[tuple[float | None, dict[str, Any], Path]]:
    """Yield size, result and folder of each model of a run."""
    for size in result.get("sizes", ()):
        yield size["keep"], size, out / "models" / size["name"]
    if "sizes" not in result:
        yield arm.sizes[0] if arm.sizes else None, result, out / "model"


def merge_files(arguments: argparse.Namespace) -> None:
    """Add the models of files to another."""
    models = merge([arguments.out, *arguments.files])
    write_models(arguments.out, models)
    print(f"{arguments.out}: {len(models)} models")


def write_shapes(arguments: argparse.Namespace) -> None:
    """Write a folder with a config for each model of a block, named ARM or ARM-SIZE."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from auber.models.surgery import remove

    plan = read_plan(arguments.plan)
    block = (arguments.task, arguments.seed)
    models = [
        model
        for model in read_models(arguments.results)
        if (model.task, model.seed) == block and plan.is_drawn(model.arm)
    ]
    if not models:
        raise RunError(f"{arguments.results}: has no model of {block[0]} seed {block[1]}; run it")
    for model in models:
        is_small = model.arm in {arm.name for arm in plan.arms if arm.method == SMALL}
        config = AutoConfig.from_pretrained(
            arguments.models / (plan.small if is_small else plan.model)
        )
        with torch.device("meta"):
            shape = AutoModelForSequenceClassification.from_config(config)
        remove(shape, _plan_of(model, config.num_attention_heads, config.intermediate_size))
        shape.config.architectures = [type(shape).__name__]
        shape.config.save_pretrained(arguments.out / model.shape)
    print(f"auber speed {arguments.out}/*")


def _plan_of(model: Model, heads: int, neurons: int) -> PruningPlan:
    """Return a plan that leaves a model's widths; which units go does not change its speed."""
    return PruningPlan(
        heads={layer: range(left, heads) for layer, left in enumerate(model.heads)},
        neurons={layer: range(left, neurons) for layer, left in enumerate(model.neurons)},
    )


if __name__ == "__main__":
    run_program(main)
