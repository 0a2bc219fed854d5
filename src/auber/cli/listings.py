"""`auber tasks`, `models`, `methods`, `settings`: what can be named."""

from __future__ import annotations

from auber.cli import options, screen
from auber.config import PRESETS, Value, make_config
from auber.config import settings as declared_settings
from auber.kinds import KINDS

_FORMATS = {
    "sequence": "csv, tsv, jsonl or parquet with --text q1[,q2] --label y",
    "tokens": "conll or txt (a word and its tag a line, a blank line between sentences), jsonl or parquet (tokens, tags)",
    "spans": "SQuAD json, jsonl or parquet (question, context, answers)",
}


def tasks(json: options.Json = False) -> None:
    """List the tasks --task takes."""
    from auber.tasks import TASKS

    rows = [[name, TASKS[name].metric, TASKS[name].doc] for name in TASKS]
    _show(["task", "metric", "what it is"], rows, json)
    if not json:
        print("\nYour own rows, with --train FILE --dev FILE and --kind:")
        for kind, formats in _FORMATS.items():
            print(f"  {kind:9} {KINDS[kind].doc}; {formats}")


def models(json: options.Json = False) -> None:
    """List the encoder families that can be pruned."""
    from auber.encoders import FAMILIES

    rows = [[name, ", ".join(family.model_types)] for name, family in FAMILIES.items()]
    _show(["family", "model_type in config.json"], rows, json)


def methods(json: options.Json = False) -> None:
    """List the pruning methods --method takes."""
    from auber.methods import METHODS

    rows = [
        [name, "itself" if method.decides_number else "--heads" if method.removes_heads else "none", method.doc]
        for name, method in METHODS.items()
    ]
    _show(["method", "decides how many", "what it is"], rows, json)


def settings(json: options.Json = False) -> None:
    """List every setting --set and config files take, with its default in each preset."""
    values = {name: make_config(name).flat() for name in PRESETS}
    rows = [
        [info.key, *(plain(values[name][info.key]) for name in PRESETS), info.allowed, info.doc]
        for info in declared_settings()
    ]
    _show(["setting", *PRESETS, "allowed", "meaning"], rows, json)
    if not json:
        print("\nPrecedence, weakest first: defaults, preset, the preset's settings for the task, --config file, --set")


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
