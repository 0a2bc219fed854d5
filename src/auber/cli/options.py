"""Options that several commands share, and what they stand for: settings, rows, a model, a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.config import PRESETS, PROTOCOLS, Config, make_config, parse_assignment, settings
from auber.data import TASKS
from auber.data.task_types import TASK_TYPES
from auber.errors import CheckpointError, ConfigError, TaskError
from auber.run.trackers import TRACKERS

if TYPE_CHECKING:
    from auber.data.task import TaskData

Completions = list[tuple[str, str]]  # values and their help


def complete(choices: Mapping[str, str]) -> Callable[[str], Completions]:
    """Return a function that completes a value, for `typer.Option(autocompletion=...)`."""

    def offer(incomplete: str) -> Completions:
        return [(name, doc) for name, doc in choices.items() if name.startswith(incomplete)]

    return offer


def complete_assignment(incomplete: str) -> Completions:
    """Complete the key of --set, or the value of a setting that has a choice."""
    key, equals, _ = incomplete.partition("=")
    if not equals:
        return complete({f"{info.key}=": info.doc for info in settings()})(incomplete)
    choices = [
        choice
        for info in settings()
        if info.key == key
        for choice in info.choices or (("true", "false") if info.kind is bool else ())
    ]
    return complete({f"{key}={choice}": "" for choice in choices})(incomplete)


def _defaults(values: Iterable[str]) -> str:
    return f"[default: {'; '.join(values)}]"


Model = Annotated[
    str, typer.Option("--model", help="A model folder, a hub name or a finished run.")
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="A known task ('auber list tasks' shows them).",
        autocompletion=complete({name: task.doc for name, task in TASKS.items()}),
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Read the task from this GLUE folder, not from the hub."),
]
Train = Annotated[
    Path | None,
    typer.Option(
        "--train",
        help="Your own training rows: csv, tsv, json, jsonl, parquet, conll (tokens) or SQuAD "
        "json (spans).",
    ),
]
Dev = Annotated[
    Path | None,
    typer.Option(
        "--dev", help="Your own rows to evaluate on. [default: a fifth of --train, set aside]"
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="The name of your own rows in reports, to distinguish several data sets. [default: "
        "own]",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="The task type of your own rows. "
        + "; ".join(f"{name}: {each.doc}" for name, each in TASK_TYPES.items())
        + ". [default: that of --metric, else sequence]",
        autocompletion=complete({name: each.doc for name, each in TASK_TYPES.items()}),
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        help="The text column, or two separated by a comma. "
        + _defaults(",".join(each.text) for each in TASK_TYPES.values()),
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        help="The label column. " + _defaults(each.label for each in TASK_TYPES.values()),
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="NAME,NAME,...",
        help="The names of the classes or tags, in the order of a trained model. [default: those "
        "in --train, sorted]",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="How your own rows are scored ('auber list metrics' shows them); pearson, spearman "
        "and r_squared make it a regression. "
        + _defaults(each.metric for each in TASK_TYPES.values()),
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The run's folder.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the stopped run in --out.")]
AllowUpgrade = Annotated[
    bool,
    typer.Option(
        "--allow-upgrade",
        help="Continue runs of other versions of auber, torch or transformers; numbers may differ.",
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        "--preset",
        help=f"The settings to start from: {', '.join(PRESETS)}.",
        autocompletion=complete({name: preset.doc for name, preset in PRESETS.items()}),
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting ('auber list settings' shows them); may be repeated.",
        autocompletion=complete_assignment,
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Short for --set seed=N.")]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        help="Short for --set protocol=...: the rows that rewards are computed on. seen: rows of "
        "the fine-tuning, as in the paper; heldout: rows left out of it; crossfit: all rows, "
        "each scored by a model that was not trained on it.",
        autocompletion=complete(dict.fromkeys(PROTOCOLS, "")),
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="Also send the numbers to tensorboard, mlflow, wandb, ...; may be repeated. Files "
        "go to RUN/track.",
        autocompletion=complete(dict.fromkeys(TRACKERS, "")),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress on stderr.")]


def build_config(
    preset: str,
    task: str | None,
    file: Path | None,
    assignments: list[str] | None,
    *,
    seed: int | None = None,
    protocol: str | None = None,
    otherwise: Mapping[str, object] | None = None,
) -> Config:
    """Return the settings; `otherwise` replaces values of the preset."""
    short = {"seed": seed, "protocol": protocol}
    given: dict[str, object] = {}
    for assignment in assignments or []:
        key, value = parse_assignment(assignment)
        if short.get(key) is not None:
            raise ConfigError(f"--set {key} and --{key} name the same setting; give it once")
        if key in given:
            raise ConfigError(f"--set {key} is given more than once; give it once")
        given[key] = value
    given |= {key: value for key, value in short.items() if value is not None}
    return make_config(preset, task=task, file=file, settings=given, otherwise=otherwise)


def task_from_options(
    *,
    task: str | None,
    data: Path | None,
    train: Path | None,
    dev: Path | None,
    name: str | None = None,
    kind: str | None,
    text: str | None,
    label: str | None,
    labels: str | Sequence[str] | None,
    metric: str | None,
    seed: int = 0,
) -> TaskData:
    """Return the task that the options name, or the user's own rows."""
    from auber.data import load_task
    from auber.data.user_rows import OWN, make_task, split_names

    if task is not None:
        if train or dev:
            raise TaskError(
                "--task and --train/--dev exclude each other; name a known task or give your own "
                "rows"
            )
        own = {"name": name, "kind": kind, "text": text, "label": label, "labels": labels}
        for option, value in (own | {"metric": metric}).items():
            if value:
                raise TaskError(f"--{option} goes with your own rows; task '{task}' has its own")
        return load_task(task, data=data, seed=seed)
    if train is None and dev is None:
        raise TaskError(
            "name a task with --task, or your own rows with --train FILE --dev FILE --text COLUMN "
            "--label COLUMN"
        )
    refuse_data(data)
    if train is None:
        raise TaskError("--dev goes with --train, found --dev alone; add --train FILE")
    return make_task(
        train,
        dev,
        kind=kind,
        text=split_names(text),
        label=label,
        labels=split_names(labels),
        metric=metric,
        name=OWN if name is None else name,
    )


def describe_split(rows: TaskData, train: Path | None, dev: Path | None) -> Iterator[str]:
    """Yield a message if the dev rows were set aside from those of --train."""
    if train is not None and dev is None:
        total = len(rows.train) + len(rows.dev)
        yield (
            f"{len(rows.dev)} of the {total} rows of {train} are set aside to evaluate on (dev), "
            "the same for every seed; give others with --dev"
        )


def refuse_data(data: Path | None) -> None:
    """Raise `TaskError` if a GLUE folder is given beside the user's own rows."""
    if data is not None:
        raise TaskError("--data goes with --task; your own rows are the files of --train and --dev")


def require_model(place: str | Path, *, on_disk: bool = False) -> None:
    """Raise `CheckpointError` for a folder that is neither a model nor a run, before rows are read.

    A name that is not a folder may be a hub name, unless `on_disk`.
    """
    from auber.run.files import is_run

    folder = Path(place)
    needed = f"{folder}: must be a finished run or a model folder, found"
    if on_disk and not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise CheckpointError(f"{needed} {found}; correct the path")
    if not folder.is_dir() or is_run(folder) or (folder / "config.json").is_file():
        return
    runs = [str(path) for path in sorted(folder.iterdir()) if is_run(path)]
    advice = "give the folder a model was saved in"
    if runs:
        more = ", ..." if len(runs) > 4 else ""
        advice = f"name one of the runs in it: {', '.join(runs[:4])}{more}"
    raise CheckpointError(f"{needed} no run.json and no config.json; {advice}")


def make_room(out: Path) -> None:
    """Create the folder of a result file; raise `ConfigError` if it could not be written."""
    place = Path(os.path.realpath(out))  # the target of a symbolic link is written
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{out}: its folder cannot be made ({error.strerror}); choose another --out"
        ) from error
    if place.exists() and not place.is_file() and not place.is_dir():
        raise ConfigError(
            f"{out}: must be a file or a name for a new one, found a device or a pipe; choose "
            "another --out"
        )
    if place.is_dir() or not os.access(place.parent, os.W_OK):
        raise ConfigError(
            f"{out}: must be a file in a folder that can be written to; choose another --out"
        )
