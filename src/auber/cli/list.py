"""`auber list`: the names that options accept. It loads neither torch nor the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from auber.cli import options, screen
from auber.config import PRESETS, Value, make_config, settings
from auber.data import TASKS
from auber.data.task_types import TASK_TYPES
from auber.errors import ConfigError, unknown_name
from auber.search.methods import Method
from auber.search.registry import METHODS

Rows = list[list[str]]

_FORMATS = {
    "sequence": "csv, tsv, json, jsonl or parquet with --text q1[,q2] --label y",
    "tokens": "conll or txt (a word and its tag per line, a blank line between sentences), jsonl "
    "or parquet (tokens, tags)",
    "spans": "SQuAD json, jsonl or parquet (question, context, answers)",
}
# The registries of these two import torch; a test compares them.
_MODEL_TYPES = {
    "bert": "bert",
    "deberta-v2": "deberta-v2",
    "distilbert": "distilbert",
    "electra": "electra",
    "modernbert": "modernbert",
    "mpnet": "mpnet",
    "roberta": "camembert, roberta, xlm-roberta",
}
_METRICS = {
    "accuracy": ("sequence", "share of rows whose class is predicted"),
    "f1": ("sequence", "F1 of the second of two classes; with more classes, their mean F1"),
    "matthews": ("sequence", "Matthews correlation; R_K with more than two classes"),
    "explained": ("sequence", "share of the labels' entropy that the logits explain (McFadden's "
    "R2)"),
    "pearson": ("sequence", "Pearson correlation of predictions and targets"),
    "r_squared": ("sequence", "share of the targets' variance that the predictions explain"),
    "spearman": ("sequence", "Pearson correlation of the ranks"),
    "token_accuracy": ("tokens", "share of words whose tag is predicted"),
    "entity_f1": ("tokens", "F1 of whole entities (first word, last word and type) over IOB2 tags"),
    "tag_explained": ("tokens", "share of the tags' entropy that the logits explain"),
    "span_exact": ("spans", "share of rows whose best span is a correct answer"),
    "span_f1": ("spans", "mean token F1 of the best span and the answer"),
    "cosine": ("embeddings", "mean cosine of a text's vector and the unpruned model's"),
    "pair_spearman": ("embeddings", "rank correlation of the similarities of near texts, in this "
    "and in the unpruned model"),
}  # fmt: skip


def _size_from(method: Method) -> str:
    if method.removes_neurons:
        return "--keep or --heads"
    return "search" if method.decides_number else "--heads" if method.removes_heads else "-"


def _list_settings() -> Rows:
    values = {name: make_config(name).flat() for name in PRESETS}
    return [
        [
            info.key,
            *(format_value(values[name][info.key]) for name in PRESETS),
            info.allowed,
            info.doc,
        ]
        for info in settings()
    ]


# What each list holds, its columns and its rows.
LISTS: dict[str, tuple[str, list[str], Callable[[], Rows]]] = {
    "tasks": (
        "tasks of --task",
        ["task", "metric", "description"],
        lambda: [[name, task.metric, task.doc] for name, task in TASKS.items()],
    ),
    "models": (
        "encoder families that can be pruned",
        ["family", "model_type in config.json"],
        lambda: [[*row] for row in _MODEL_TYPES.items()],
    ),
    "methods": (
        "pruning methods of --method",
        ["method", "size from", "description"],
        lambda: [[name, _size_from(method), method.doc] for name, method in METHODS.items()],
    ),
    "metrics": (
        "metrics of --metric",
        ["metric", "task type", "description"],
        lambda: [[name, kind, doc] for name, (kind, doc) in _METRICS.items()],
    ),
    "settings": (
        "settings of --set and config files, with their values by preset",
        ["setting", *PRESETS, "allowed", "meaning"],
        _list_settings,
    ),
}


def command(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="LIST",
            help=f"One of: {', '.join(LISTS)}.",
            autocompletion=options.complete({name: each[0] for name, each in LISTS.items()}),
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """List tasks, models, methods, metrics or settings.

    Example: auber list methods
    """
    if what is None:
        columns, rows = ["auber list", ""], [[name, each[0]] for name, each in LISTS.items()]
    elif what in LISTS:
        _, columns, list_rows = LISTS[what]
        rows = list_rows()
    else:
        raise ConfigError(unknown_name("list", what, LISTS))
    if json:
        screen.print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif what == "settings":
        _print_settings(columns, rows)
    else:
        screen.print_table(columns, rows)
        if what == "tasks":
            print("\nYour own rows, with --train FILE --dev FILE and --kind:")
            for kind, formats in _FORMATS.items():
                text = f"{TASK_TYPES[kind].doc}; {formats}"
                print(screen.wrap(text, first=f"  {kind:9} ", later=" " * 12))


def _print_settings(columns: list[str], rows: list[list[str]]) -> None:
    """Print the values of each setting on a line and its meaning below: six columns do not fit."""
    values = [row[:-2] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*values, strict=True)]
    for row, cells in zip((columns, *rows), values, strict=True):
        padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        print("  ".join(padded).rstrip())
        allowed, meaning = row[-2:]
        print(screen.wrap(f"{meaning} [{allowed}]", first="    ", later="    "))
    print()
    for name, preset in PRESETS.items():
        heading = f"--preset {name} (by default method {preset.method})"
        print(screen.wrap(f"{heading}: {preset.doc}", later="    "))
        for protocol, changes in preset.per_protocol.items():
            text = f"only under protocol {protocol}: {', '.join(changes)}"
            print(screen.wrap(text, first="    ", later="    "))
    precedence = (
        "Precedence, weakest first: defaults, preset, the preset's settings for the task and for "
        "the protocol, --config file, --set"
    )
    print(screen.wrap(precedence))


def format_value(value: Value) -> str:
    """Return a value as it is typed on the command line."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else str(value).lower()
