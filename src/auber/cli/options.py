"""Options that several commands share, in groups that are sections of `--help`."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from auber.config import PRESETS, PROTOCOLS, Config, make_config, parse_assignment, settings
from auber.data import TASKS
from auber.data.task_types import TASK_TYPES
from auber.errors import CheckpointError, ConfigError, TaskError
from auber.run.trackers import TRACKERS, check_trackers

if TYPE_CHECKING:
    from auber.data.task import TaskData
    from auber.data.texts import Texts
    from auber.system.progress import Progress

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


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a dataclass by the options that are its fields.

    The docstring of the class is the heading of these options in `--help`.
    """
    groups, parameters = {}, []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group, members = parameter.annotation, [parameter]
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = group
            members = [
                member.replace(annotation=_under(group.__doc__, member.annotation))
                for member in inspect.signature(group, eval_str=True).parameters.values()
            ]
        parameters += [member.replace(kind=inspect.Parameter.KEYWORD_ONLY) for member in members]

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        command(**values)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _under(heading: str, annotation: Any) -> Any:
    """Return the annotation of an option for `--help`: under a heading, unless it has its own."""
    kind, option = get_args(annotation)
    option = copy.copy(option)
    option.rich_help_panel = option.rich_help_panel or heading.rstrip(".")
    return Annotated[kind, option]


class Command(TyperCommand):
    """A command that shows groups of options under their headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options into the help text."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            is_argument = option.param_type_name == "argument"
            heading = getattr(option, "rich_help_panel", None)
            record = option.get_help_record(ctx)
            if record is not None:
                heading = heading or ("Arguments" if is_argument else _OTHERS)
                sections.setdefault(heading, []).append(record)
        for heading, records in sorted(sections.items(), key=lambda each: each[0] == _OTHERS):
            with formatter.section(heading):
                formatter.write_dl(records)


_OTHERS = "Options"  # the heading of those that come last
_LABELLED = {name: each for name, each in TASK_TYPES.items() if each.label}


def _by_type(attribute: str) -> str:
    """Return the defaults of an option that depends on the task type."""
    values = {name: getattr(each, attribute) for name, each in _LABELLED.items()}
    words = [
        f"{value if isinstance(value, str) else ','.join(value)} ({name})"
        for name, value in values.items()
    ]
    return f"[default: {', '.join(words)}]"


Data = Annotated[
    Path | None, typer.Option(help="Read the task from this GLUE folder, not from the hub.")
]
Text = Annotated[
    str | None,
    typer.Option(help=f"The text column, or two separated by a comma. {_by_type('text')}"),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the stopped run in --out.", rich_help_panel=_OTHERS),
]
AllowUpgrade = Annotated[
    bool,
    typer.Option(
        "--allow-upgrade",
        help="Also continue runs that other versions of auber, torch or transformers began; "
        "numbers may differ.",
        rich_help_panel=_OTHERS,
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        help="Also log to tensorboard, mlflow, wandb, ...; may be repeated. Files go to RUN/track.",
        autocompletion=complete(dict.fromkeys(TRACKERS, "")),
        rich_help_panel=_OTHERS,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress on stderr.")]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Model and result."""

    model: Annotated[str, typer.Option(help="A model folder, a hub name or a finished run.")]
    out: Annotated[Path, typer.Option(help="The folder of the run: model, result and records.")]
    resume: Resume = False
    allow_upgrade: AllowUpgrade = False
    track: Track = None

    def check(self) -> None:
        """Raise an error if the model or a tracker does not exist."""
        require_model(self.model)
        check_trackers(self.track or ())

    def arguments(self, progress: Progress) -> dict[str, Any]:
        """Return what the options mean for `api.prune` and `api.finetune`."""
        return {
            "model": self.model,
            "out": self.out,
            "resume": "upgrade" if self.resume and self.allow_upgrade else self.resume,
            "progress": [progress, *check_trackers(self.track or ())],
        }


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Your data: your own rows or a known task."""

    train: Annotated[
        Path | None,
        typer.Option(
            help="Your own training rows: csv, tsv, json, jsonl, parquet, conll (tokens) or SQuAD "
            "json (spans)."
        ),
    ] = None
    dev: Annotated[
        Path | None,
        typer.Option(help="Your own rows to evaluate on. [default: a fifth of --train, set aside]"),
    ] = None
    text: Text = None
    label: Annotated[str | None, typer.Option(help=f"The label column. {_by_type('label')}")] = None
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="The classes or tags, in the order of the model's outputs. [default: those in "
            "--train, sorted]",
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"The task type. {'; '.join(f'{n}: {each.doc}' for n, each in _LABELLED.items())}"
            ". [default: that of --metric, else sequence]",
            autocompletion=complete({name: each.doc for name, each in _LABELLED.items()}),
        ),
    ] = None
    metric: Annotated[
        str | None,
        typer.Option(
            help="The metric; 'auber list metrics' shows them. pearson, spearman and r_squared "
            f"make it a regression. {_by_type('metric')}"
        ),
    ] = None
    name: Annotated[
        str | None, typer.Option(help="The name of your rows in reports. [default: own]")
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            help="A known task; 'auber list tasks' shows them.",
            autocompletion=complete({name: task.doc for name, task in TASKS.items()}),
        ),
    ] = None
    data: Data = None

    def load(self, seed: int, progress: Progress) -> TaskData:
        """Return the rows; report if dev rows are set aside from those of --train."""
        from auber.data import load_task
        from auber.data.user_rows import OWN, make_task, split_names

        if self.task is not None:
            if self.train or self.dev:
                raise TaskError(
                    "--task and --train/--dev exclude each other; name a known task or give your "
                    "own rows"
                )
            for option in ("name", "kind", "text", "label", "labels", "metric"):
                if getattr(self, option):
                    raise TaskError(
                        f"--{option} goes with your own rows; task '{self.task}' has its own"
                    )
            return load_task(self.task, data=self.data, seed=seed)
        self.refuse_data()
        if self.train is None:
            raise TaskError(
                "--dev goes with --train, found --dev alone; add --train FILE"
                if self.dev
                else "rows are needed, found none; give your own with --train FILE --text COLUMN "
                "--label COLUMN, or name a task with --task"
            )
        rows = make_task(
            self.train,
            self.dev,
            kind=self.kind,
            text=split_names(self.text),
            label=self.label,
            labels=split_names(self.labels),
            metric=self.metric,
            name=OWN if self.name is None else self.name,
        )
        if self.dev is None:
            progress.say(
                f"{len(rows.dev)} of the {len(rows.train) + len(rows.dev)} rows of {self.train} "
                "are set aside to evaluate on (dev), the same for every seed; give others with "
                "--dev"
            )
        return rows

    def refuse_data(self) -> None:
        """Raise `TaskError` if a GLUE folder is given for the user's own rows."""
        if self.data is not None:
            raise TaskError(
                "--data goes with --task; your own rows are the files of --train and --dev"
            )


@dataclass(frozen=True, kw_only=True)
class RowsOrTexts(Rows):
    """Your data: your own rows, texts without labels, or a known task."""

    texts: Annotated[
        Path | None,
        typer.Option(
            help="Texts without labels, which the unpruned model answers: a file like --train. "
            "Name its columns with --text. [default: text]"
        ),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column of --texts that names what rows belong to, such as their query.",
        ),
    ] = None

    def load_any(self, seed: int, progress: Progress) -> TaskData | Texts:
        """Return the rows or texts."""
        from auber.data.texts import make_texts
        from auber.data.user_rows import OWN, split_names

        if self.texts is None:
            if self.group is not None:
                raise TaskError("--group goes with --texts; add --texts FILE, or leave it out")
            return self.load(seed, progress)
        for option in ("task", "data", "train", "dev", "kind", "label", "labels", "metric"):
            if getattr(self, option) is not None:
                raise TaskError(
                    f"--texts and --{option} exclude each other: the unpruned model's answers are "
                    "the labels; leave one out"
                )
        return make_texts(
            self.texts,
            text=split_names(self.text),
            group=self.group,
            name=OWN if self.name is None else self.name,
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings."""

    preset: Annotated[
        str,
        typer.Option(
            help=f"The settings to start from: {', '.join(PRESETS)}.",
            autocompletion=complete({name: preset.doc for name, preset in PRESETS.items()}),
        ),
    ] = "default"
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="One setting; 'auber list settings' shows them. May be repeated.",
            autocompletion=complete_assignment,
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="The seed of every random draw. [default: 0]")
    ] = None

    def build(
        self,
        task: str | None,
        otherwise: Mapping[str, object] | None = None,
        *,
        without_labels: bool = False,
    ) -> Config:
        """Return the settings; `otherwise` replaces values of the preset."""
        short = {key: getattr(self, key, None) for key in ("seed", "protocol")}
        short = {key: value for key, value in short.items() if value is not None}
        given: dict[str, object] = {}
        for key, value in map(parse_assignment, self.assignments or ()):
            if key in short:
                raise ConfigError(f"--set {key} and --{key} name the same setting; give it once")
            if key in given:
                raise ConfigError(f"--set {key} is given more than once; give it once")
            given[key] = value
        return make_config(
            self.preset,
            task=task,
            file=self.config,
            settings=given | short,
            otherwise=otherwise,
            without_labels=without_labels,
        )


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """Settings."""

    protocol: Annotated[
        str | None,
        typer.Option(
            help="The rows that rewards are computed on. seen: rows of the fine-tuning, as in the "
            "paper; heldout: rows left out of it; crossfit: all rows, each scored by a model that "
            "was not trained on it. [default: that of the preset]",
            autocompletion=complete(dict.fromkeys(PROTOCOLS, "")),
        ),
    ] = None


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
            f"{out}: its folder cannot be made ({error.strerror}); choose another file for --out"
        ) from error
    if (place.exists() and not place.is_file()) or not os.access(place.parent, os.W_OK):
        raise ConfigError(
            f"{out}: must be a file in a folder that can be written to; choose another file "
            "for --out"
        )
