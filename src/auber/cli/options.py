"""The options several commands share, declared once, and what they come to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import completion
from auber.config import PRESETS, Config, make_config, parse_assignment
from auber.errors import CheckpointError, ConfigError, TaskError

if TYPE_CHECKING:
    from auber.data.task import TaskData

_PRESETS = ", ".join(PRESETS)

Model = Annotated[
    str,
    typer.Option(
        "--model", help="A model folder, a hub name, or a finished run.", show_default=False
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="A known task ('auber tasks' lists them).",
        show_default=False,
        autocompletion=completion.tasks,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="A GLUE folder to read the task from instead of the hub."),
]
Train = Annotated[
    Path | None,
    typer.Option(
        "--train",
        help="Your own training rows: csv, tsv, json, jsonl, parquet, conll (tokens) or SQuAD json (spans).",
    ),
]
Dev = Annotated[Path | None, typer.Option("--dev", help="Your own rows to report on.")]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="What reports call your own rows, so that they are not taken for others of yours: 'own' unless given.",
        show_default=False,
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="What your own rows are: sequence (texts with a label), tokens (words with a tag each) or spans (questions "
        "answered by a piece of a context). Without it, what --metric scores, else sequence.",
        show_default=False,
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        help="Their text column, or two with a comma between: 'text', for tokens 'tokens', for spans 'question,context' "
        "unless given.",
        show_default=False,
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        help="Their label column: 'label', for tokens 'tags', for spans 'answers' unless given.",
        show_default=False,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="NAME,NAME,...",
        help="The names of the classes or tags, in the order of a trained model; without it those of --train, sorted.",
        show_default=False,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="accuracy, f1, matthews, explained; pearson, spearman or r_squared make it a regression; entity_f1, token_accuracy or "
        "tag_explained for tokens; span_f1 or span_exact for spans.",
        show_default=False,
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The run's folder.", show_default=False)]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in --out where it was cut.")
]
AllowUpgrade = Annotated[
    bool,
    typer.Option(
        "--allow-upgrade",
        help="Go on with runs that were begun with other versions of auber, torch or transformers; numbers may then differ.",
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        "--preset",
        help=f"Where the settings start from: {_PRESETS}.",
        autocompletion=completion.presets,
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting; may be repeated ('auber settings' lists them).",
        autocompletion=completion.assignments,
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Short for --set seed=N.", show_default=False)
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        help="Short for --set protocol=...: seen (the paper's: rewards on rows the model was tuned on), heldout, or crossfit "
        "(each row scored by a scout that never saw it; the preset default's).",
        show_default=False,
        autocompletion=completion.protocols,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="Send the run's numbers to tensorboard, mlflow, wandb, ... too; may be repeated. Files go into RUN/track.",
        show_default=False,
        autocompletion=completion.trackers,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]


def build_config(
    preset: str,
    task: str | None,
    file: Path | None,
    assignments: list[str] | None,
    *,
    otherwise: Mapping[str, object] | None = None,
    **short: int | str | None,
) -> Config:
    """The configuration the options describe; `otherwise` holds where they say nothing."""
    settings: dict[str, object] = {key: value for key, value in short.items() if value is not None}
    assigned: dict[str, object] = {}
    for assignment in assignments or []:
        key, value = parse_assignment(assignment)
        if key in settings:
            raise ConfigError(f"--set {key} and --{key} name the same setting; give it once")
        if key in assigned:
            raise ConfigError(f"--set {key} is there more than once; give it once")
        assigned[key] = value
    settings |= assigned
    return make_config(preset, task=task, file=file, settings=settings, otherwise=otherwise)


def read_task(
    task: str | None,
    data: Path | None,
    train: Path | None,
    dev: Path | None,
    text: str | None,
    label: str | None,
    metric: str | None,
    seed: int = 0,
    *,
    kind: str | None = None,
    labels: str | Sequence[str] | None = None,
    name: str | None = None,
) -> TaskData:
    """The task the options describe."""
    from auber.data import load_task
    from auber.data.user_rows import OWN, UserFiles

    if task is not None:
        if train or dev:
            raise TaskError(
                "--task and --train/--dev exclude each other; name a known task or give your own rows"
            )
        refuse_own(task, text, label, metric, kind=kind, labels=labels, name=name)
        return load_task(task, data=data, seed=seed)
    if train is None and dev is None:
        raise TaskError(
            "name a task with --task, or your own rows with --train FILE --dev FILE --text COLUMN --label COLUMN"
        )
    _refuse_data(data)
    files = UserFiles.named(
        train=train, dev=dev, kind=kind, text=text, label=label, labels=labels, metric=metric
    )
    return files.read(OWN if name is None else name)


def refuse_own(
    task: str,
    text: str | None,
    label: str | None,
    metric: str | None,
    *,
    kind: str | None = None,
    labels: str | Sequence[str] | None = None,
    name: str | None = None,
) -> None:
    """Raise `TaskError` where something is said of your own rows and a known task is named instead."""
    own = (
        ("--text", text),
        ("--label", label),
        ("--metric", metric),
        ("--kind", kind),
        ("--labels", labels),
        ("--name", name),
    )
    for option, value in own:
        if value:
            raise TaskError(f"{option} goes with your own rows; task '{task}' has its own")


def read_scored_rows(
    data: Path | None,
    rows: Path,
    text: str | None,
    label: str | None,
    metric: str | None,
    *,
    kind: str | None,
    labels: str | Sequence[str] | None,
) -> TaskData:
    """Your own rows of one file, which a model is to be scored on."""
    from auber.data import make_scored_rows
    from auber.data.user_rows import split_names

    _refuse_data(data)
    return make_scored_rows(
        rows,
        kind=kind,
        text=split_names(text),
        label=label,
        labels=split_names(labels),
        metric=metric,
    )


def _refuse_data(data: Path | None) -> None:
    if data is not None:
        raise TaskError("--data goes with --task; your own rows are the files of --train and --dev")


def require_model(place: str | Path, *, on_disk: bool = False) -> None:
    """Tell a folder that is neither a model nor a run, and the runs in it, before the rows are read; hub names pass unless `on_disk`."""
    from auber.run.files import is_run

    folder = Path(place)
    if on_disk and not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise CheckpointError(
            f"{folder}: must be a finished run or a model folder, found {found}; correct the path"
        )
    if not folder.is_dir() or is_run(folder) or (folder / "config.json").is_file():
        return
    below = [str(path) for path in sorted(folder.iterdir()) if is_run(path)]
    advice = (
        f"name one of the runs in it: {', '.join(below[:4])}"
        if below
        else "give the folder a model was saved in"
    )
    more = ", ..." if len(below) > 4 else ""
    raise CheckpointError(
        f"{folder}: must be a finished run or a model folder, found no run.json and no config.json; {advice}{more}"
    )


def make_room(out: Path, option: str = "--out") -> None:
    """Find out before anything is computed whether its result can be kept."""
    place = Path(os.path.realpath(out))  # of a link, what it leads to is written
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{out}: its folder cannot be made ({error.strerror}); choose another {option}"
        ) from error
    if place.exists() and not place.is_file() and not place.is_dir():
        raise ConfigError(
            f"{out}: must be a file or a name for a new one, found a device or a pipe; choose another {option}"
        )
    if place.is_dir() or not os.access(place.parent, os.W_OK):
        raise ConfigError(
            f"{out}: must be a file in a folder that can be written to; choose another {option}"
        )
