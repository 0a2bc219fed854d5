"""Measure rewards, tuning and a whole run against plain transformers, side by side in one process.

Rewards: transformers in float32 padded to 128 tokens, the same in the scorer's precision with rows
sorted by length, and the scorers: for heads and for neurons of every layer, with the share of the
arithmetic floor, and for plans of the whole model. Tuning: against the Trainer with its defaults. A
whole run: seconds of rewards, agent, tuning and the rest.

Example: python -m benchmarks.scorer --size small --rows cola --parts rewards --out
results/bench/cpu.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from auber.config import Config, make_config, parse_assignment
from auber.run import provenance
from auber.system.files import write_json
from auber.system.progress import Progress
from auber.training.devices import resolve_hardware
from benchmarks.common import StageLines, command_line, make_parser, run_program, show
from benchmarks.scorer.floor import measure_matrix_rate
from benchmarks.scorer.record import Bench, DeviceRecord, SubjectRecord
from benchmarks.scorer.rewards import Limits, compare_rewards, measure_growth
from benchmarks.scorer.subjects import (
    LEAST_ROWS,
    ROWS,
    SIZES,
    Subject,
    load_subject,
    make_subject,
)
from benchmarks.scorer.tables import describe, make_tables, name_of
from benchmarks.scorer.training import compare_tunings, measure_run

PARTS = ("rewards", "tuning", "run", "growth")


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and store the result."""
    parser = make_parser("scorer", __doc__)
    add, limits = parser.add_argument, Limits()
    add("--size", choices=SIZES, default="base", help="a BERT with random weights")
    add("--model", help="a model's folder or hub name instead")
    add("--rows", choices=ROWS, default="rte", help="the task whose lengths the rows have")
    add("--count", type=_whole(LEAST_ROWS), help="reward rows instead of the task's number")
    add("--layers", type=lambda text: [int(each) for each in text.split(",")], help="such as 0,5")
    add("--repeats", type=_whole(1), default=limits.repeats, help="timed rewards for each layer")
    add("--seconds", type=float, default=limits.seconds, help="no further repeat after this")
    add("--steps", type=_whole(1), default=100, help="approximate number of tuning steps")
    add("--parts", nargs="+", choices=PARTS, default=PARTS[:3], help="what to measure")
    add("--preset", default="paper")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    add("--out", type=Path, help="a .json file for the result")
    add("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args(words)
    if arguments.model and "growth" in arguments.parts:
        parser.error("growth makes models of several sizes; give --size instead of --model")
    settings = dict(parse_assignment(text) for text in arguments.set)
    config = make_config(arguments.preset, task=arguments.rows, settings=settings)
    bench = run_benchmark(arguments, config, StageLines())
    if arguments.out:
        write_json(arguments.out, bench.to_json(), follow=True)
    if arguments.json:
        print(json.dumps(bench.to_json(), indent=2))
        return
    print(f"{name_of(bench)}\n{describe(bench)}")
    for title, table in make_tables([bench]):
        show(table, title)


def _whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, found {value}")
        return value

    return number


def run_benchmark(arguments: argparse.Namespace, config: Config, progress: Progress) -> Bench:
    """Measure the parts one after the other on the same subject."""
    started = time.perf_counter()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    hardware = resolve_hardware(config)
    shape, count = ROWS[arguments.rows], arguments.count
    limits, parts = Limits(arguments.repeats, arguments.seconds), arguments.parts
    if arguments.model:
        subject = load_subject(arguments.model, shape, count, config, hardware)
    else:
        subject = make_subject(SIZES[arguments.size], shape, count, config, hardware)
    layers = _check_layers(arguments.layers, subject.encoder.num_layers)
    matrix_size, flops = measure_matrix_rate(hardware)
    measure: dict[str, Callable[[], Any]] = {
        "rewards": lambda: compare_rewards(subject, layers, flops, limits, progress),
        "tuning": lambda: compare_tunings(subject, arguments.steps, progress),
        "run": lambda: measure_run(subject, arguments.preset, progress),
        "growth": lambda: measure_growth(
            SIZES[arguments.size], shape, count, config, hardware, flops, limits, progress
        ),
    }
    measured = {part: measure[part]() for part in parts}
    return Bench(
        command=command_line("scorer"),
        subject=_describe_subject(subject),
        device=DeviceRecord(
            name=hardware.name,
            precision=hardware.precision,
            threads=hardware.threads,
            matrix_size=matrix_size,
            teraflops=flops / 1e12,
            load=load,
        ),
        rewards=measured.get("rewards"),
        tuning=measured.get("tuning"),
        search=measured.get("run"),
        growth=measured.get("growth"),
        seconds=time.perf_counter() - started,
        provenance=provenance.describe(hardware),
    )


def _check_layers(layers: Collection[int] | None, num_layers: int) -> list[int]:
    found = sorted(set(range(num_layers) if layers is None else layers))
    if not set(found) <= set(range(num_layers)):
        raise SystemExit(f"--layers must be from 0 to {num_layers - 1}, found {found}")
    return found


def _describe_subject(subject: Subject) -> SubjectRecord:
    encoder = subject.encoder
    return SubjectRecord(
        model=subject.name,
        attention=str(subject.model.config._attn_implementation),
        layers=encoder.num_layers,
        heads=encoder.num_heads,
        hidden_size=encoder.hidden_size,
        parameters=subject.model.num_parameters(),
        task=subject.task.name,
        rows=len(subject.rows),
        tokens=sum(subject.rows.lengths),
        longest=max(subject.rows.lengths),
    )


if __name__ == "__main__":
    run_program(main)
