"""`auber evaluate`: the score of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen
from auber.errors import TaskError

if TYPE_CHECKING:
    from auber.data import TaskData


def command(
    folder: Annotated[
        str, typer.Argument(metavar="RUN|DIR", help="A finished run or a model folder.")
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
    """Score a fine-tuned model, pruned or not, on a task's rows, truncated as in its run.

    Example: auber evaluate runs/mrpc --task mrpc --json

    Your own rows: auber evaluate runs/own --dev test.csv --text q1,q2 --label y   (classes are
    those of the model or of --train; metric and kind are those of the run)
    """
    from auber import api
    from auber.run.files import read_row_settings

    options.require_model(folder, on_disk=True)
    settings = options.build_config(
        preset, task, config, assignments, seed=seed, otherwise=read_row_settings(folder)
    )
    if task is None and train is None and dev is None:
        raise TaskError(f"{folder}: which rows to score it on must be named{_advise_rows(folder)}")
    with screen.listening(quiet=quiet):
        if task is None and metric is None:
            kind, metric = _kind_and_metric(folder, kind)
        if dev is not None and train is None and task is None:
            if split == "train":
                raise TaskError(
                    "--split train: the training rows are needed, found --dev alone; add --train "
                    "FILE, or leave --split out"
                )
            options.refuse_data(data)
            rows = _read_one_file(folder, dev, kind, text, label, labels, metric)
        else:
            rows = options.task_from_options(
                task=task, data=data, train=train, dev=dev, kind=kind, text=text, label=label,
                labels=labels, metric=metric, seed=settings.seed
            )  # fmt: skip
        scores = api.evaluate(folder, task=rows, split=split, config=settings).to_json()
    if json:
        screen.print_json({"task": rows.name, "split": split, "metric": rows.metric, **scores})
        return
    score = f"{100 * scores['score']:.2f}, loss {scores['loss']:.4f}, {scores['rows']} rows"
    print(f"{split} {rows.metric} {score}")
    majority = rows.majority_share if split == "dev" else None
    for line in screen.describe_warnings({**scores, "majority": majority}, rows.metric, split):
        print(line)


def _advise_rows(folder: str) -> str:
    """Return the advice on which rows to name, with the task of the run if it is known."""
    from auber.data import TASKS
    from auber.run.files import find_run, read_result_record

    options_of_rows = "--task TASK, or --dev FILE --text COLUMN --label COLUMN"
    run = find_run(folder)
    if run is None:
        return f"; add {options_of_rows}"
    task = read_result_record(run).task
    if task in TASKS:
        options_of_rows = f"--task {task}"
    return f" (the run is of task '{task}'); add {options_of_rows}"


def _kind_and_metric(folder: str, kind: str | None) -> tuple[str | None, str | None]:
    """Return the kind of the user's rows, by default that of the model, and the run's metric."""
    from auber.metrics.task_metrics import get_metric
    from auber.run.files import find_run, read_result_record

    run = find_run(folder)
    if run is not None:
        metric = read_result_record(run).metric
        return kind, metric if kind in (None, get_metric(metric).kind) else None
    return kind or _model_kind_and_classes(folder)[0], None


def _read_one_file(
    folder: str,
    rows: Path,
    kind: str | None,
    text: str | None,
    label: str | None,
    labels: str | None,
    metric: str | None,
) -> TaskData:
    """Read the rows of --dev alone; the classes are those of the model."""
    from auber.data import make_scored_rows
    from auber.data.user_rows import split_names
    from auber.metrics.task_metrics import get_metric

    names = split_names(labels)
    if names is None and not (metric is not None and get_metric(metric).is_regression):
        names = _classes(folder)
    return make_scored_rows(
        rows, kind=kind, text=split_names(text), label=label, labels=names, metric=metric
    )


def _classes(folder: str) -> tuple[str, ...] | None:
    """Return the classes or tags of a model in its order; None if it answers with spans."""
    kind, num_labels, names = _model_kind_and_classes(folder)
    if kind == "spans":
        return None
    if num_labels == 1:
        raise TaskError(
            f"{folder}: the model predicts a number; add --metric pearson, spearman or r_squared"
        )
    if names is None:
        raise TaskError(
            f"{folder}: the model has no names for its classes; add --train FILE, which has them, "
            "or --labels"
        )
    return names


def _model_kind_and_classes(folder: str) -> tuple[str | None, int, tuple[str, ...] | None]:
    """Return kind, number of labels and names of the classes, from the model's config."""
    from auber.data.task_types import task_type_of_class
    from auber.models.checkpoint import classes_of, model_folder
    from auber.models.source import read_config

    config, _ = read_config(str(model_folder(Path(folder))))
    kind = task_type_of_class((config.architectures or [""])[0])
    return kind.name if kind else None, config.num_labels, classes_of(config)
