"""`auber evaluate`: the score of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen
from auber.errors import TaskError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from auber.run.records import ResultRecord


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
    split: Annotated[str, typer.Option("--split", help="The rows to score: dev or train.")] = "dev",
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
    from auber.data.task import check_rows
    from auber.data.user_rows import OWN, read_task, split_names
    from auber.metrics.task_metrics import get_metric
    from auber.run.files import find_run, read_result_record, read_row_settings

    options.require_model(folder, on_disk=True)
    settings = options.build_config(
        preset, task, config, assignments, seed=seed, otherwise=read_row_settings(folder)
    )
    run = find_run(folder)
    record = None if run is None else read_result_record(run)
    if task is None and train is None and dev is None:
        raise TaskError(f"{folder}: which rows to score it on must be named{_advise_rows(record)}")
    with screen.listening(quiet=quiet):
        if task is None and metric is None:
            if record is None:
                kind = kind or _model_kind(folder)
            elif kind in (None, get_metric(record.metric).kind):
                metric = record.metric
        if dev is not None and train is None and task is None:
            if split == "train":
                raise TaskError(
                    "--split train: the training rows are needed, found --dev alone; add --train "
                    "FILE, or leave --split out"
                )
            options.refuse_data(data)
            names = split_names(labels)
            if names is None and not (metric is not None and get_metric(metric).is_regression):
                names = _classes(folder)
            rows = check_rows(
                read_task(OWN, dev, dev, kind, split_names(text), label, names, metric)
            )
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


def _advise_rows(record: ResultRecord | None) -> str:
    """Return the advice on which rows to name, with the task of the run if it is known."""
    from auber.data import TASKS

    own = "--task TASK, or --dev FILE --text COLUMN --label COLUMN"
    if record is None:
        return f"; add {own}"
    advice = f"--task {record.task}" if record.task in TASKS else own
    return f" (the run is of task '{record.task}'); add {advice}"


def _read_config(folder: str) -> PreTrainedConfig:
    from auber.models.checkpoint import model_folder
    from auber.models.source import read_config

    return read_config(str(model_folder(Path(folder))))[0]


def _model_kind(folder: str) -> str | None:
    from auber.data.task_types import task_type_of_class

    kind = task_type_of_class((_read_config(folder).architectures or [""])[0])
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
