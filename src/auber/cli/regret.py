"""`auber regret`: what searches miss of a layer's best mask, replayed on recorded scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from auber.cli import options, screen
from auber.config import PRESETS, parse_assignment
from auber.errors import ConfigError

# What is shown of a search, by its name in the result and its column's title.
_QUANTITIES = {
    "50": "50",
    "100": "100",
    "200": "200",
    "300": "300",
    "rollout": "roll-out",
    "choice": "plan",
}

_Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN|FILE...",
        help="Finished runs of method exhaustive, or files of their scores made with --tables.",
        show_default=False,
    ),
]
_Presets = Annotated[
    str,
    typer.Option(
        "--presets", help=f"Whose agents play, with commas between: {', '.join(PRESETS)}."
    ),
]
_Seeds = Annotated[int, typer.Option("--seeds", help="Plays of each agent on each layer.")]
_Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting changed for every agent; may be repeated."
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="A .json file for the result; its figure goes beside it as .svg.",
        show_default=False,
    ),
]
_Tables = Annotated[
    Path | None,
    typer.Option(
        "--tables",
        help="Replay nothing: write the scores of these runs into this one .json file.",
        show_default=False,
    ),
]


def command(
    sources: _Sources,
    presets: _Presets = "paper,default",
    seeds: _Seeds = 10,
    assignments: _Assignments = None,
    out: _Out = None,
    tables: _Tables = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Replay searches on recorded scores: how far below a layer's best mask they are after 50 to 300 rewards.

    A run of method exhaustive keeps the score of every mask. On these the agent of each preset plays once a seed, greedy
    search once, and random search is worked out exactly; no model, no rows and no GPU are needed. Regrets are in points
    (100 times the metric): of the best mask seen after so many different rewards, of the agent's final roll-out, and of the
    plan the search ends with.

    Record:  auber prune --model DIR --task rte --preset paper --method exhaustive --set search.layers=2,6,10 --out runs/all-rte

    Example: auber regret runs/all-rte --out results/regret/regret.json
    """
    if tables is not None and (json or out is not None):
        raise ConfigError(
            f"--tables replays nothing, so {'--json' if json else '--out'} has nothing to show; give one"
        )
    for option, path in (("--out", out), ("--tables", tables)):
        if path is not None:
            if path.suffix != ".json":
                raise ConfigError(f"{option} must be a file that ends in .json, found {path}")
            options.make_room(path, option)

    from auber.regret.tables import read_tables, write_tables

    found = read_tables(sources)
    if tables is not None:
        write_tables(tables, found)
        print(
            f"tables: {tables} (layers: {sum(len(run.layers) for run in found)}, runs: {len(found)})"
        )
        return

    from auber.regret.figure import draw_regret
    from auber.regret.files import compact_json, write_kept
    from auber.regret.result import measure_regret
    from auber.run.provenance import command_line

    settings = dict(parse_assignment(assignment) for assignment in assignments or [])
    names = [name.strip() for name in presets.split(",")]
    with screen.listening(quiet=quiet) as progress:
        result = measure_regret(found, names, seeds, progress, settings, command_line())
    if out is not None:
        write_kept(out, compact_json(result))
        write_kept(out.with_suffix(".svg"), draw_regret(result))
    if json:
        screen.print_json(result)
    else:
        _print(result)
        if out is not None:
            print(f"result: {out}, figure: {out.with_suffix('.svg')}")


def _print(result: dict[str, Any]) -> None:
    """For each panel the searches on each layer, then their means; narrow enough for 80 columns."""
    for panel in result["panels"]:
        _print_layers(panel)
        title = f"mean over {len(panel['layers'])} layers, with half its 95 % t interval over them"
        rows = [[search, *_cells(found, "over_layers")] for search, found in panel["mean"].items()]
        screen.print_table(["search", *_QUANTITIES.values()], rows, title=title)
        print()
    print(
        "50 to 300: points that the best mask seen after so many different rewards is below the layer's best;\n"
        "roll-out: the agent's greedy play at the end; plan: what the search ends with; rewards: how many it took.\n"
        f"Agents: mean of {result['seeds']} seeds (their spread is in --json); random: the exact expectation.\n"
        "The interval speaks of layers like these, not of other tasks or models."
    )


def _print_layers(panel: dict[str, Any]) -> None:
    several_runs = len(panel["recorded"]) > 1
    rows: list[list[str]] = []
    for layer in panel["layers"]:
        name = f"{layer['layer']} (seed {layer['seed']})" if several_runs else str(layer["layer"])
        for search, found in layer["searches"].items():
            rewards = f"{found['rewards']['mean']:.0f}" if "rewards" in found else "-"
            rows.append([name, search, *_cells(found), rewards])
    title = f"{panel['task']}, {panel['model']}, protocol {panel['protocol']}: regret in points of {panel['metric']}"
    screen.print_table(["layer", "search", *_QUANTITIES.values(), "rewards"], rows, title=title)


def _cells(found: dict[str, Any], interval: str | None = None) -> list[str]:
    """The quantities of a search, a dash for those it does not have."""
    cells = []
    for quantity in _QUANTITIES:
        cell = "-"
        if quantity in found:
            cell = f"{found[quantity]['mean']:.2f}"
            ends = found[quantity][interval]["interval"] if interval else None
            cell += f"±{(ends[1] - ends[0]) / 2:.2f}" if ends else ""
        cells.append(cell)
    return cells
