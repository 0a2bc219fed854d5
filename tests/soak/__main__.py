"""`python -m tests.soak --out results/soak.json`: all drills at full length, some twenty minutes of two cores."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # Ray's workers import the stand-ins

import torch
import transformers

from tests.soak import damage, disks, kills, load
from tests.soak.figures import Figure, describe_checkout, write_figures
from tests.soak.ground import made_ground
from tests.soak.limits import CSV, LEDGER
from tests.soak.nursery import IMPORTS
from tests.soak.reasons import describe_failure, keep_failure

ON_LOAD: tuple[partial[Figure], ...] = (  # each takes a folder
    partial(load.open_ledger, scores=100_000, seconds=LEDGER),
    partial(load.read_rows, rows=1_000_000, most=CSV),
    partial(load.feed_readers, inputs=102_000),
    partial(load.study_on_ray, runs=200, kill_every=3.0),
    partial(load.study_here, runs=1_000),
)
ON_GROUND: tuple[partial[Figure], ...] = (  # each takes the ground
    partial(kills.kill_runs, kills=50),
    partial(kills.stop_runs, stops=10),
    partial(disks.fill_disks, times=5),
    partial(disks.close_disks, times=3),
    partial(damage.start_twice, times=3),
    partial(damage.tear_lines, times=3),
    partial(damage.flip_bits, times=3),
    partial(damage.foist_scores, times=3),
    partial(damage.change_versions, times=3),
)


def main() -> None:
    """Do the drills; the figures are written whenever one is through, and one that fails does not keep the others.

    Why one failed is printed, and kept in a file beside the figures.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="The JSON file the figures go to.")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="DRILL",
        help="These functions alone; the figures of others in the file stay.",
    )
    arguments = parser.parse_args()
    wanted = [*ON_LOAD, *ON_GROUND]
    unknown = set(arguments.only or ()) - {drill.func.__name__ for drill in wanted}
    if unknown:
        parser.error(f"--only: no drill {', '.join(sorted(unknown))}")
    for name in IMPORTS:  # all of it now: the sources may change while it runs
        importlib.import_module(name)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("ray").setLevel(logging.ERROR)
    figures: list[Figure] = []
    facts = describe_checkout()
    failures = 0

    def attempt(name: str, drill: Callable[[], Figure], folder: Path) -> None:
        nonlocal failures
        try:
            figure = drill()
        except Exception as error:
            failures += 1
            text = describe_failure(name, error, folder)
            print(f"{text}kept in {keep_failure(arguments.out, text)}", file=sys.stderr, flush=True)
            return
        figures.append(figure)
        write_figures(arguments.out, figures, facts, beside=arguments.only is not None)
        print(
            f"{figure.name}: {figure.count} in {figure.seconds} s, {figure.details}",
            file=sys.stderr,
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="auber-soak-") as place:
        for drill in _chosen(ON_LOAD, arguments.only):
            folder = _new(place, drill.func.__name__)
            attempt(drill.func.__name__, partial(drill, folder), folder)
        on_ground = _chosen(ON_GROUND, arguments.only)
        if on_ground:
            with made_ground(_new(place, "ground"), is_quick=False) as ground:
                for drill in on_ground:
                    attempt(drill.func.__name__, partial(drill, ground), ground.folder)
    sys.exit(f"{failures} drills failed" if failures else 0)


def _chosen(drills: tuple[partial[Figure], ...], only: list[str] | None) -> list[partial[Figure]]:
    return [drill for drill in drills if only is None or drill.func.__name__ in only]


def _new(place: str, name: str) -> Path:
    folder = Path(place) / name
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
