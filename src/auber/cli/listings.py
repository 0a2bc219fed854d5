"""`auber tasks`, `models`, `methods`, `metrics`, `settings`: what can be named."""

from __future__ import annotations

from auber.cli import options, screen
from auber.config import PRESETS, Value, make_config
from auber.config import settings as declared_settings
from auber.data.task_types import TASK_TYPES

_FORMATS = {
    "sequence": "csv, tsv, json, jsonl or parquet with --text q1[,q2] --label y",
    "tokens": "conll or txt (a word and its tag a line, a blank line between sentences), jsonl or parquet (tokens, tags)",
    "spans": "SQuAD json, jsonl or parquet (question, context, answers)",
}


def tasks(json: options.Json = False) -> None:
    """List the tasks --task takes.

    Example: auber prune --model bert-base-cased --task mrpc --out runs/mrpc
    """
    from auber.data import TASKS

    rows = [[name, TASKS[name].metric, TASKS[name].doc] for name in TASKS]
    _show(["task", "metric", "what it is"], rows, json)
    if not json:
        print("\nYour own rows, with --train FILE --dev FILE and --kind:")
        for kind, formats in _FORMATS.items():
            print(
                screen.wrap(
                    f"{TASK_TYPES[kind].doc}; {formats}", first=f"  {kind:9} ", later=" " * 12
                )
            )


def models(json: options.Json = False) -> None:
    """List the encoder families that can be pruned.

    What counts is the model_type in the config.json of a model. Example: auber prune --model roberta-base --task rte --out runs/rte
    """
    from auber.models.encoders import FAMILIES

    rows = [[name, ", ".join(family.model_types)] for name, family in FAMILIES.items()]
    _show(["family", "model_type in config.json"], rows, json)


def methods(json: options.Json = False) -> None:
    """List the pruning methods --method takes.

    Example: auber prune --model DIR --task rte --method random --heads 20 --out runs/random
    """
    from auber.search.registry import METHODS

    rows = [
        [
            name,
            "itself" if method.decides_number else "--heads" if method.removes_heads else "none",
            method.doc,
        ]
        for name, method in METHODS.items()
    ]
    _show(["method", "decides how many", "what it is"], rows, json)


def metrics(json: options.Json = False) -> None:
    """List the metrics --metric takes, each with the kind of rows it scores.

    Example: auber prune --model DIR --train a.csv --dev b.csv --text q --label y --metric f1 --out runs/own
    """
    from auber.metrics.task_metrics import METRICS

    rows = [[name, metric.kind, metric.doc] for name, metric in METRICS.items()]
    _show(["metric", "kind of rows", "what it is"], rows, json)


def settings(json: options.Json = False) -> None:
    """List every setting --set and config files take, with its default in each preset.

    Example: auber prune --model DIR --task rte --out runs/rte --set agent.episodes=60 --set seed=1
    """
    values = {name: make_config(name).flat() for name in PRESETS}
    rows = [
        [info.key, *(plain(values[name][info.key]) for name in PRESETS), info.allowed, info.doc]
        for info in declared_settings()
    ]
    columns = ["setting", *PRESETS, "allowed", "meaning"]
    if json:
        _show(columns, rows, as_json=True)
    else:
        _print_settings(columns, rows)


def _print_settings(columns: list[str], rows: list[list[str]]) -> None:
    """A line of values for each setting, and below it what it means and may be: six columns are too many for a terminal."""
    shown = [[*row[:-2]] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row, values in zip((columns, *rows), shown, strict=True):
        print(
            "  ".join(
                f"{value:<{width}}" for value, width in zip(values, widths, strict=True)
            ).rstrip()
        )
        *_, allowed, meaning = row
        print(screen.wrap(f"{meaning} [{allowed}]", first="    ", later="    "))
    print()
    for name, preset in PRESETS.items():
        print(screen.wrap(f"--preset {name}: {preset.doc}", later="    "))
        for protocol, changes in preset.per_protocol.items():
            print(
                screen.wrap(
                    f"only under protocol {protocol}: {', '.join(changes)}",
                    first="    ",
                    later="    ",
                )
            )
    print(
        screen.wrap(
            "Precedence, weakest first: defaults, preset, the preset's settings for the task and for the protocol, --config file, --set"
        )
    )


def plain(value: Value) -> str:
    """A setting's value as it is typed."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str) else str(value).lower()


def _show(columns: list[str], rows: list[list[str]], as_json: bool) -> None:
    if as_json:
        screen.print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        screen.print_table(columns, rows)
