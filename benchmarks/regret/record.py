"""Record the score of every mask of some layers, to be replayed by `python -m benchmarks.regret`.

An encoder is fine-tuned on the task, under protocol crossfit once for each fold. In each layer,
every mask of its heads, or of twelve blocks of its neurons, is scored on the layer's reward rows
while all other layers are complete. The file is written after each layer.

Example: python -m benchmarks.regret.record --model DIR --task rte --data GLUE --layers 0,6
             --units neurons --protocol crossfit --out tables.json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from auber import api
from auber.config import Config, make_config, parse_assignment
from auber.data import load_task
from auber.data.encoding import encode_split
from auber.data.splits import Splits, make_splits
from auber.data.task import TaskData
from auber.metrics.task_metrics import smooth_metric
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.models.plan import PruningPlan
from auber.run import provenance
from auber.scoring import CrossFitScorer, MaskScorer
from auber.search.blocks import rank_by_norm
from auber.search.players.exhaustive import all_masks, layer_states
from auber.search.state import NORMS, block_state
from auber.system.records import parse
from auber.training.devices import resolve_hardware
from benchmarks.common import StageLines, command_line, make_parser, run_program
from benchmarks.regret.tables import RunTables, Units, write_tables

_BLOCKS = 12  # of a layer's neurons: as many masks as a layer of twelve heads has


def main(words: Sequence[str] | None = None) -> None:
    """Record the tables and write them into a file."""
    parser = make_parser("regret.record", __doc__)
    add = parser.add_argument
    add("--model", required=True, help="a pretrained encoder's folder or hub name")
    add("--task", required=True, help="a known task")
    add("--data", type=Path, help="a GLUE folder")
    add("--layers", required=True, help="such as 0,2,4")
    add("--units", choices=("heads", "neurons"), default="heads")
    add("--protocol", choices=("seen", "crossfit"), default="seen", help="what scores the rows")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the run")
    add("--out", type=Path, required=True, help="a .json file")
    arguments = parser.parse_args(words)
    task = load_task(arguments.task, data=arguments.data)
    settings = {
        "protocol": arguments.protocol,
        "search.layers": arguments.layers,
        "reward.measure": "metric",
        "first.require_learned": False,
    }
    settings |= dict(parse_assignment(text) for text in arguments.set)
    config = make_config("default", task=task.name, settings=settings)
    record(arguments.model, task, config, arguments.units, arguments.out)


def record(model: str, task: TaskData, config: Config, units: Units, out: Path) -> None:
    """Fine-tune the model, and write the tables of the layers in `search.layers`."""
    hardware = resolve_hardware(config)
    metric = smooth_metric(task.metric) if config.reward.measure == "smooth" else task.metric
    every = range(len(task.train))
    folds: Sequence[Sequence[int]] = _make_splits(task, config, 1).folds or [every]
    models = []
    for fold in folds:
        rows = every if len(folds) == 1 else np.setdiff1d(every, fold).tolist()
        tuned = api.finetune(
            model,
            task=replace(task, train=task.train.select(rows)),
            config=config,
            progress=StageLines(),
        )
        models.append(tuned.model)
        if rate := tuned.result.get("learning_rate"):  # it is chosen once for all folds
            config = config.replace({"first.learning_rate": rate})
    train = encode_split(tuned.tokenizer, task, "train", config.max_length)
    encoder = encoder_of(models[0])
    splits = _make_splits(task, config, encoder.num_layers)
    tables: list[dict[str, Any]] = []
    for layer in config.search.layers_of(encoder.num_layers):
        rewarded = splits.layers[layer].reward
        own = [train.select(np.intersect1d(rewarded, fold).tolist()) for fold in folds]
        scorer = CrossFitScorer([*zip(models, own, strict=True)], layer, metric, hardware)
        print(f"layer {layer}: scoring all masks ...", file=sys.stderr, flush=True)
        tables.append(_score_all(scorer, encoder, units, len(rewarded)))
        facts = {
            "model": Path(model).name,
            "task": task.name,
            "metric": metric,
            "protocol": config.protocol,
            "units": units,
            "seed": config.seed,
            "command": command_line("regret.record"),
            "provenance": provenance.describe(hardware),
            "layers": tables,
        }
        write_tables(out, [parse(RunTables, facts, str(out), "record the layers again")])


def _score_all(scorer: MaskScorer, encoder: Encoder, units: Units, num_rows: int) -> dict[str, Any]:
    """Return the table of the scorer's layer."""
    layer = scorer.layer
    if units == "heads":
        blocks: Sequence[Sequence[int]] = [(head,) for head in scorer.present]
        states = layer_states(encoder, layer, len(blocks))
    else:
        blocks = rank_by_norm(encoder, layer, encoder.present_neurons(layer), _BLOCKS)
        weight = encoder.parts(layer).contract.weight
        states = {"contract": {norm: block_state(weight, blocks, norm).tolist() for norm in NORMS}}
    masks = all_masks(range(len(blocks)))
    scores = scorer.score_many(
        [PruningPlan(**{units: {layer: chain(*(blocks[at] for at in mask))}}) for mask in masks]
    )
    return {
        "layer": layer,
        "heads": list(range(len(blocks))),
        "reward_rows": num_rows,
        "states": states,
        "scores": scores,
    }


def _make_splits(task: TaskData, config: Config, num_layers: int) -> Splits:
    return make_splits(task.train.labels, config, num_layers, not task.has_classes, task.train)


if __name__ == "__main__":
    run_program(main)
