"""Replay searches on recorded scores: how far below a layer's best mask they are after 50 to 300
rewards.

Agents, surrogate search and evolution play once per seed, greedy search once, and random search is
computed exactly; no model, no rows and no GPU are needed. Regrets are in points (100 times the
metric), of the best mask seen after that many different rewards. The result also has those of each
layer, of an agent's final roll-out and of the plan of the search.

Record:  python -m benchmarks.regret.record --model DIR --task rte --layers 0,6 --out tables.json
Example: python -m benchmarks.regret results/regret/tables.json --seeds 2
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from auber.config import parse_assignment
from auber.report.figures import write_figure
from benchmarks.common import StageLines, command_line, make_parser, run_program, show
from benchmarks.regret.result import PLAYERS, draw_regret, measure_regret, summarise
from benchmarks.regret.tables import read_tables, write_compact, write_tables


def main(words: Sequence[str] | None = None) -> None:
    """Replay, print a summary, and store the result and its figure."""
    parser = make_parser("regret", __doc__)
    add = parser.add_argument
    add("sources", nargs="+", type=Path, metavar="FILE", help="exhaustive runs, or tables of them")
    add(
        "--players",
        default="surrogate,evolution,greedy,random,best-agent,default,paper",
        help=f"of {', '.join(PLAYERS)}",
    )
    add("--seeds", type=int, default=10, help="plays of each player on each layer")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all players")
    add("--out", type=Path, help="a .json file for the result; the figure goes beside it as .svg")
    add("--tables", type=Path, help="replay nothing: write the scores of the runs into this file")
    add("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args(words)
    if arguments.seeds < 1:
        parser.error(f"--seeds must be at least 1, found {arguments.seeds}")
    runs = read_tables(arguments.sources)
    if arguments.tables:
        write_tables(arguments.tables, runs)
        return
    players = [name.strip() for name in arguments.players.split(",")]
    settings = dict(parse_assignment(text) for text in arguments.set)
    seeds, command = arguments.seeds, command_line("regret")
    result = measure_regret(runs, players, seeds, StageLines(), settings, command)
    if arguments.out:
        write_compact(arguments.out, result.to_json(drop_none=True))
        write_figure(draw_regret(result), arguments.out.with_suffix(".svg"))
    if arguments.json:
        print(json.dumps(result.to_json(drop_none=True), indent=1))
    else:
        show(summarise(result), "Mean regret in points ± half of its 95 % interval over seeds")


if __name__ == "__main__":
    run_program(main)
