"""`auber evaluate`: the score of a saved model."""

from __future__ import annotations

from typing import Annotated

import typer

from auber.cli import options, screen
from auber.errors import TaskError

_ROWS = "--task TASK, or --train FILE --dev FILE --text COLUMN --label COLUMN"


def command(
    folder: Annotated[
        str, typer.Argument(metavar="RUN|DIR", help="A finished run or a model folder.", show_default=False)
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

    Your own rows: auber evaluate runs/own --train a.csv --dev test.csv --text q1,q2 --label y   (--train names the classes)
    """
    from auber import api
    from auber.runs import read_row_settings

    options.require_model(folder)
    settings = options.build_config(preset, task, config, assignments, seed=seed, otherwise=read_row_settings(folder))
    if task is None and train is None and dev is None:
        raise TaskError(f"{folder}: which rows to score it on must be named{_tuned_on(folder)}; add {_ROWS}")
    with screen.listening(quiet=quiet):
        rows = options.read_task(task, data, train, dev, text, label, metric, settings.seed, kind=kind, labels=labels)
        scores = api.evaluate(folder, task=rows, split=split, config=settings)
    if json:
        screen.print_json({"task": rows.name, "split": split, "metric": rows.metric, **scores.to_json()})
    else:
        print(f"{split} {rows.metric} {100 * scores.score:.2f}, loss {scores.loss:.4f}, {scores.rows} rows")


def _tuned_on(folder: str) -> str:
    """What a finished run was tuned on, as far as that is known."""
    from auber.runs import is_run, read_result

    return f" (the run is of task '{read_result(folder)['task']}')" if is_run(folder) else ""
