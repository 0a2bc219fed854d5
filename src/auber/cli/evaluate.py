"""`auber evaluate`: the score of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import options, screen
from auber.errors import TaskError

if TYPE_CHECKING:
    from auber.data.task_types import TaskType

_ROWS = "--task TASK, or --dev FILE --text COLUMN --label COLUMN"


def command(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="RUN|DIR", help="A finished run or a model folder.", show_default=False
        ),
    ],
    task: options.Task = None,
    data: options.Data = None,
    train: options.Train = None,
    dev: options.Dev = None,
    kind: options.Kind = None,
    text: options.Text = None,
    label: options.Label = None,
    labels: options.Labels = None,
    metric: options.Metric = None,
    split: Annotated[str, typer.Option("--split", help="dev or train.")] = "dev",
    seed: options.Seed = None,
    preset: options.Preset = "default",
    config: options.ConfigFile = None,
    assignments: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score a fine-tuned model, pruned or not, on a task's rows, cut to the length that a run's were.

    Example: auber evaluate runs/mrpc --task mrpc --json

    Your own rows: auber evaluate runs/own --dev test.csv --text q1,q2 --label y   (the classes are the model's, or those of --train;
    the metric and kind are the run's)
    """
    from auber import api
    from auber.metrics.task_metrics import get_metric
    from auber.run.files import read_row_settings

    options.require_model(folder, on_disk=True)
    settings = options.build_config(
        preset, task, config, assignments, seed=seed, otherwise=read_row_settings(folder)
    )
    if task is None and train is None and dev is None:
        raise TaskError(f"{folder}: which rows to score it on must be named{_tuned_on(folder)}")
    with screen.listening(quiet=quiet):
        if task is None and metric is None:
            kind, metric = _asked_of(folder, kind)
        if dev is not None and train is None and task is None:
            if split == "train":
                raise TaskError(
                    f"--split {split}: those rows are needed, found --dev alone; add --train FILE, or leave it out"
                )
            is_regression = metric is not None and get_metric(metric).is_regression
            names = labels or (None if is_regression else _classes_of(folder))
            rows = options.read_scored_rows(data, dev, text, label, metric, kind=kind, labels=names)
        else:
            rows = options.read_task(
                task, data, train, dev, text, label, metric, settings.seed, kind=kind, labels=labels
            )
        scores = api.evaluate(folder, task=rows, split=split, config=settings)
    if json:
        screen.print_json(
            {"task": rows.name, "split": split, "metric": rows.metric, **scores.to_json()}
        )
    else:
        print(
            f"{split} {rows.metric} {100 * scores.score:.2f}, loss {scores.loss:.4f}, {scores.rows} rows"
        )
        majority = rows.majority_share if split == "dev" else None
        for line in screen.warnings_of(
            {**scores.to_json(), "majority": majority}, rows.metric, split
        ):
            print(line)


def _asked_of(folder: str, kind: str | None) -> tuple[str | None, str | None]:
    """The kind that is named, else the model's; and the metric that a run of this kind was made for."""
    from auber.metrics.task_metrics import get_metric
    from auber.run.files import find_run, read_field

    run = find_run(folder)
    if run is not None:
        metric = read_field(run, "metric")
        return kind, metric if kind in (None, get_metric(metric).kind) else None
    _, found = _config_of(folder)
    return kind or (None if found is None else found.name), None


def _config_of(folder: str) -> tuple[Any, TaskType | None]:
    from auber.data.task_types import task_type_of_class
    from auber.models.checkpoint import model_folder
    from auber.models.source import read_config

    config, _ = read_config(str(model_folder(Path(folder))))
    return config, task_type_of_class((config.architectures or [""])[0])


def _classes_of(folder: str) -> tuple[str, ...] | None:
    """The classes or tags of a model in its order; None where it answers by places."""
    from auber.models.checkpoint import classes_of

    config, kind = _config_of(folder)
    if kind is not None and kind.name == "spans":
        return None
    if config.num_labels == 1:
        raise TaskError(
            f"{folder}: the model answers with a number; add --metric pearson, spearman or r_squared to score those"
        )
    names = classes_of(config)
    if names is None:
        raise TaskError(
            f"{folder}: the model has no names for its classes; add --train FILE, which has them, or --labels"
        )
    return names


def _tuned_on(folder: str) -> str:
    """What a finished run was tuned on, as far as that is known, and what names the rows."""
    from auber.data import TASKS
    from auber.run.files import find_run, read_field

    run = find_run(folder)
    if run is None:
        return f"; add {_ROWS}"
    task = read_field(run, "task")
    return f" (the run is of task '{task}'); add {f'--task {task}' if task in TASKS else _ROWS}"
