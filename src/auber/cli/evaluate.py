"""`auber evaluate`: the score of a saved model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen
from auber.errors import TaskError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from auber.data.task import TaskData
    from auber.run.result_record import ResultRecord


@options.grouped
def command(
    folder: Annotated[
        str, typer.Argument(metavar="RUN|DIR", help="A finished run or a model folder.")
    ],
    rows: options.Rows,
    settings: options.Settings,
    split: Annotated[str, typer.Option(help="The rows to score: dev or train.")] = "dev",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score a fine-tuned model, pruned or not, on a task's rows.

    Example: auber evaluate runs/mrpc --task mrpc --json

    Your own rows: auber evaluate runs/own --dev test.csv --text q1,q2 --label y

    Classes are those of the model or of --train; metric, type and maximum length those of the run.
    """
    from auber import api
    from auber.data import TASKS
    from auber.run.files import find_run, read_result_record, read_row_settings

    options.require_model(folder, on_disk=True)
    config = settings.build(rows.task, read_row_settings(folder))
    run = find_run(folder)
    record = None if run is None else read_result_record(run)
    if rows.task is None and rows.train is None and rows.dev is None:
        of_run = f" (the run is of task '{record.task}')" if record else ""
        advice = "--task TASK, or --dev FILE --text COLUMN --label COLUMN"
        if record and record.task in TASKS:
            advice = f"--task {record.task}"
        raise TaskError(f"{folder}: the rows to score must be given{of_run}; add {advice}")
    with screen.listening(quiet=quiet) as progress:
        if rows.task is None:
            rows = _complete_rows(rows, folder, record)
        if rows.task is None and rows.train is None:
            task = _read_dev(rows, folder, split)
        else:
            task = rows.load(config.seed, progress)
        scores = api.evaluate(folder, task=task, split=split, config=config).to_json()
    if json:
        screen.print_json({"task": task.name, "split": split, "metric": task.metric, **scores})
        return
    score = f"{100 * scores['score']:.2f}, loss {scores['loss']:.4f}, {scores['rows']} rows"
    print(f"{split} {task.metric} {score}")
    majority = task.majority_share if split == "dev" else None
    for line in screen.describe_warnings({**scores, "majority": majority}, task.metric, split):
        print(line)


def _complete_rows(rows: options.Rows, folder: str, record: ResultRecord | None) -> options.Rows:
    """Return the options with the metric of the run, or the task type of the model."""
    from auber.metrics.task_metrics import get_metric

    if rows.metric is not None:
        return rows
    if record is None:
        return replace(rows, kind=rows.kind or _model_kind(folder))
    if rows.kind in (None, get_metric(record.metric).kind):
        return replace(rows, metric=record.metric)
    return rows


def _read_dev(rows: options.Rows, folder: str, split: str) -> TaskData:
    """Return the rows of --dev alone, which the model names the classes of."""
    from auber.data.task import check_rows
    from auber.data.user_rows import OWN, read_task, split_names
    from auber.metrics.task_metrics import get_metric

    if split == "train":
        raise TaskError(
            "--split train: the training rows are needed, found --dev alone; add --train FILE, or "
            "leave --split out"
        )
    rows.refuse_data()
    assert rows.dev is not None
    names = split_names(rows.labels)
    if names is None and not (rows.metric and get_metric(rows.metric).is_regression):
        names = _classes(folder)
    text, name = split_names(rows.text), rows.name or OWN
    return check_rows(
        read_task(name, rows.dev, rows.dev, rows.kind, text, rows.label, names, rows.metric)
    )


def _read_config(folder: str) -> PreTrainedConfig:
    from auber.models.checkpoint import model_folder
    from auber.models.source import read_config

    return read_config(str(model_folder(Path(folder))))[0]


def _model_kind(folder: str) -> str | None:
    from auber.data.task_types import task_type_of_config

    kind = task_type_of_config(_read_config(folder))
    return kind.name if kind else None


def _classes(folder: str) -> tuple[str, ...] | None:
    """Return the classes or tags of a model in its order; None if it answers with spans."""
    from auber.models.checkpoint import classes_of

    config = _read_config(folder)
    if _model_kind(folder) == "spans":
        return None
    if config.num_labels == 1:
        raise TaskError(
            f"{folder}: the model predicts a number; add --metric pearson, spearman or r_squared"
        )
    names = classes_of(config)
    if names is None:
        raise TaskError(
            f"{folder}: the model has no names for its classes; add --train FILE, which has them, "
            "or --labels"
        )
    return names
