"""`python -m tests.soak --out results/soak.json`: all drills at full length, half an hour of two cores."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # Ray's workers import the stand-ins

import torch
import transformers

from tests.soak import damage, disks, kills, load
from tests.soak.figures import Figure, write_figures
from tests.soak.ground import made_ground
from tests.soak.limits import CSV, LEDGER


def drills() -> Iterator[Figure]:
    """Every drill at its full length."""
    with tempfile.TemporaryDirectory(prefix="auber-soak-") as place:
        with made_ground(_new(place, "ground"), is_quick=False) as ground:
            yield kills.kill_runs(ground, 50)
            yield kills.stop_runs(ground, 10)
            yield disks.fill_disks(ground, 5)
            yield disks.close_disks(ground, 3)
            on_ground: tuple[Callable[..., Figure], ...] = (
                damage.start_twice,
                damage.tear_lines,
                damage.flip_bits,
                damage.foist_scores,
                damage.change_versions,
            )
            for drill in on_ground:
                yield drill(ground, 3)
        yield load.open_ledger(_new(place, "ledger"), 100_000, LEDGER)
        yield load.read_rows(_new(place, "csv"), 1_000_000, CSV)
        yield load.study_here(_new(place, "local"), 1_000)
        yield load.study_on_ray(_new(place, "ray"), 200, kill_every=3.0)


def main() -> None:
    """Do the drills; the figures are written whenever one is through."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="The JSON file the figures go to.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("ray").setLevel(logging.ERROR)
    figures = []
    for figure in drills():
        figures.append(figure)
        write_figures(arguments.out, figures)
        print(f"{figure.name}: {figure.count} in {figure.seconds} s, {figure.details}", file=sys.stderr, flush=True)


def _new(place: str, name: str) -> Path:
    folder = Path(place) / name
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
