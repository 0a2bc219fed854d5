"""Prune models without labels, and measure how faithful they are to the unpruned ones.

Texts:   python -m benchmarks.fidelity prepare --glue DIR --data DIR --encoder DIR
         --out texts.json.gz
Tagger:  python -m benchmarks.fidelity tag --texts texts.json.gz --model DIR --out TAGGER
Measure: python -m benchmarks.fidelity run --texts texts.json.gz --model DIR --kind reranker
         --counts 1000,5000,20000 --keep 0.5,0.25 --out results/fidelity/reranker.json

Speed is measured by `auber speed` on the runs that `run --runs FOLDER` keeps.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from auber import api
from auber.config import Config, make_config, parse_assignment
from auber.data import make_task
from auber.export.source import read_source
from auber.run import provenance
from auber.training.devices import resolve_hardware
from benchmarks.common import StageLines, command_line, make_parser, run_program
from benchmarks.fidelity.models import KINDS, Judge, can_measure_int8
from benchmarks.fidelity.record import Entry, add_entry, read_entries
from benchmarks.fidelity.texts import (
    TAGS,
    Embed,
    Material,
    divide,
    make_side,
    read_material,
    read_rows,
    tagged_rows,
    write_material,
)


def main(words: Sequence[str] | None = None) -> None:
    """Prepare texts, or measure."""
    parser = make_parser("fidelity", __doc__)
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser("prepare", help="queries, passages and sentences").add_argument
    add("--glue", type=Path, required=True, help="a GLUE folder")
    add("--data", type=Path, required=True, help="a folder of trec, sst2 and subj csv files")
    add("--encoder", required=True, help="a bge model, to find the nearest passages with")
    add("--queries", type=int, nargs=2, default=(2000, 400), help="to tune and to measure on")
    add("--sentences", type=int, nargs=2, default=(20000, 6000), help="the same for texts")
    add("--seed", type=int, default=0)
    add("--out", type=Path, required=True, help="a .json.gz file")
    commands.choices["prepare"].set_defaults(command=prepare)
    add = commands.add_parser("tag", help="fine-tune a tagger for run").add_argument
    add("--texts", type=Path, required=True, help="what prepare wrote")
    add("--model", required=True, help="a pretrained encoder")
    add("--rows", type=int, default=5000, help="to fine-tune on, and a fifth more to score")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    add("--out", type=Path, required=True, help="the folder of the run")
    commands.choices["tag"].set_defaults(command=tag)
    add = commands.add_parser("run", help="prune and measure").add_argument
    add("--texts", type=Path, required=True, help="what prepare wrote")
    add("--model", required=True, help="the unpruned model")
    add("--kind", choices=KINDS, required=True)
    add("--counts", default="1000,5000,20000", help="numbers of texts to prune with; 0: none")
    add("--keep", default="0.5,0.25", help="sizes")
    add("--held-out", type=int, help="queries or texts to measure on, instead of all")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    add("--no-int8", action="store_true", help="measure float32 alone")
    add("--runs", type=Path, help="keep the runs here, and continue those that are there")
    add("--out", type=Path, required=True, help="a .json file that results are added to")
    commands.choices["run"].set_defaults(command=run)
    arguments = parser.parse_args(words)
    arguments.command(arguments)


def prepare(arguments: argparse.Namespace) -> None:
    """Write the texts of both sides."""
    from transformers import AutoModel, AutoTokenizer

    hardware = resolve_hardware(_config([]))
    embed = Embed(
        AutoModel.from_pretrained(arguments.encoder).to(hardware.device),
        AutoTokenizer.from_pretrained(arguments.encoder),
    )
    sides = [
        make_side(roles, embed, queries=queries, texts=texts, seed=arguments.seed)
        for roles, queries, texts in zip(
            divide(read_rows(arguments.glue, arguments.data)),
            arguments.queries,
            arguments.sentences,
            strict=True,
        )
    ]
    material = Material(command=command_line("fidelity"), tune=sides[0], held_out=sides[1])
    write_material(arguments.out, material)
    for name, side in (("tune", material.tune), ("measure", material.held_out)):
        print(f"{name}: {len(side.queries)} queries, {len(side.texts)} texts")


def tag(arguments: argparse.Namespace) -> None:
    """Fine-tune a tagger that restores capitals and punctuation."""
    texts = read_material(arguments.texts).tune.texts
    task = make_task(
        tagged_rows(texts, arguments.rows),
        kind="tokens",
        metric="token_accuracy",
        labels=TAGS,
        name="restore",
    )
    api.finetune(
        arguments.model,
        task=task,
        config=_config(arguments.set),
        out=arguments.out,
        progress=StageLines(),
    )


def run(arguments: argparse.Namespace) -> None:
    """Prune with each number of texts, and add each model's fidelity to the file."""
    material = read_material(arguments.texts)
    config = _config(arguments.set)
    unpruned = read_source(arguments.model)
    device = resolve_hardware(config).device
    unpruned.model.to(device)
    int8 = not arguments.no_int8 and can_measure_int8()
    judge = Judge(arguments.kind, unpruned, material, arguments.held_out, int8=int8)

    def add(keep: float, count: int, forms: dict[str, dict[str, float]], seconds: float) -> None:
        entry = Entry(
            command=command_line("fidelity"),
            model=Path(arguments.model).name,
            kind=arguments.kind,
            keep=keep,
            texts=count,
            seed=config.seed,
            settings=dict(parse_assignment(text) for text in arguments.set),
            forms=forms,
            held_out=judge.rows,
            seconds=seconds,
            provenance=provenance.describe(resolve_hardware(config)),
        )
        add_entry(arguments.out, entry)
        print(f"keep {keep:g}, {count} texts: {forms}", flush=True)

    if int8 and not any(each.keep == 1 for each in read_entries(arguments.out)):
        forms = judge.measure(unpruned)
        add(1, 0, {"int8": forms["int8"]}, 0)
        unpruned.model.to(device)
    for count in filter(None, map(int, arguments.counts.split(","))):
        with tempfile.TemporaryDirectory(prefix="auber-fidelity-") as scratch:
            folder = (arguments.runs or Path(scratch)) / f"{arguments.kind}-{count}"
            pruned = api.prune(
                arguments.model,
                task=KINDS[arguments.kind].texts(material.tune, count),
                keep=arguments.keep,
                config=config,
                out=folder,
                resume=folder.exists(),
                progress=StageLines(),
            )
            seconds = pruned.result["cost"]["seconds"]["total"]
            sizes = arguments.keep.split(",")
            for size in sizes:
                place = folder / "models" / size if len(sizes) > 1 else folder / "model"
                made = read_source(place)
                made.model.to(device)
                add(float(size), count, judge.measure(made), seconds)


def _config(assignments: Sequence[str]) -> Config:
    return make_config(settings=dict(map(parse_assignment, assignments)))


if __name__ == "__main__":
    run_program(main)
