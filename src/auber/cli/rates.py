"""`auber rates`: a learning rate for the first tuning, found on held-out rows of train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen
from auber.config import parse_assignment
from auber.run.rates.grid import HELD_OUT, Grid, parse_rates, parse_seeds

if TYPE_CHECKING:
    from auber.run.rates.choice import Choice, TaskScores
    from auber.run.rates.record import Record

_Model = Annotated[
    str,
    typer.Option(
        "--model", help="A pretrained encoder: a model folder or a hub name.", show_default=False
    ),
]
_Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="A known task ('auber list tasks' shows them); may be repeated.",
        show_default=False,
    ),
]
_Rates = Annotated[str, typer.Option("--rates", help="The rates to try.")]
_Seeds = Annotated[str, typer.Option("--seeds", help="The seeds to try each rate with.")]
_HeldOut = Annotated[
    float, typer.Option("--held-out", help="Share of train to score on, drawn by class.")
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="A JSON file for the result; what it holds is not done again.",
        show_default=False,
    ),
]


def command(
    model: _Model,
    tasks: _Tasks = None,
    data: options.Data = None,
    train: options.Train = None,
    dev: options.Dev = None,
    name: options.Name = None,
    text: options.Text = None,
    label: options.Label = None,
    labels: options.Labels = None,
    metric: options.Metric = None,
    rates: _Rates = "1e-5,2e-5,5e-5,1e-4",
    seeds: _Seeds = "0,1,2",
    held_out: _HeldOut = HELD_OUT,
    preset: options.Preset = "default",
    assignments: options.Set = None,
    out: _Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find a learning rate for the first tuning, on held-out rows of train; dev is never looked at.

    For each task, seed and rate the encoder is fine-tuned on most of train, with the task's own epochs and batch size, and
    scored on the rest. The best rate has the highest mean over the tasks; of equal ones it is the smallest.

    Your own rows, texts with a label, are a task too, alone or beside others: --train FILE --dev FILE, as 'auber prune' reads them.

    Example: auber rates --model bert-base-cased --task rte --task mrpc --rates 1e-5,2e-5,5e-5 --out rates.json
    """
    grid = Grid(parse_rates(rates), parse_seeds(seeds), held_out)
    settings = dict(map(parse_assignment, assignments or []))
    if out is not None:
        options.make_room(out)

    from auber.data import load_task
    from auber.run.provenance import command_line
    from auber.run.rates.choice import choose_rate, to_json
    from auber.run.rates.tunings import try_rates

    with screen.listening(quiet=quiet) as progress:
        if tasks and not (train or dev):
            own_options = {"text": text, "label": label, "metric": metric}
            options.refuse_own(tasks[0], {**own_options, "labels": labels, "name": name})
        # A generated task is that of seed 0: seeds added later then meet the same rows.
        rows = [load_task(task, data=data) for task in tasks or ()]
        if train or dev or not tasks:
            unread = None if tasks else data  # a folder that no task is read from
            own = options.task_from_options(
                task=None, data=unread, train=train, dev=dev, name=name, kind=None, text=text, label=label,
                labels=labels, metric=metric,
            )  # fmt: skip
            rows.append(own)
        record = try_rates(
            model,
            rows,
            grid,
            preset=preset,
            settings=settings,
            out=out,
            progress=progress,
            command=command_line(),
        )
    if json:
        screen.print_json(to_json(record))
    else:
        show(record, choose_rate(record), out)


def show(record: Record, choice: Choice, out: Path | None) -> None:
    """Print the scores of a record by task and rate, and the choice."""
    columns = ["task", "metric", "held out", "majority", *(f"{rate:g}" for rate in choice.rates)]
    counts = {task.name: task.rows_held_out for task in record.tasks}
    rows = [
        [
            scores.task,
            scores.metric,
            str(counts[scores.task]),
            f"{100 * scores.majority:.2f}",
            *_cells(scores, choice),
        ]
        for scores in choice.tasks
    ]
    if len(rows) > 1:
        cells = [
            _mark(f"{100 * mean:.2f}", rate == choice.best)
            for rate, mean in zip(choice.rates, choice.means, strict=True)
        ]
        rows.append(["mean", "", "", "", *cells])
    seeds = len(record.asked_seeds)
    spread = (
        f"mean and standard deviation over {seeds} seeds"
        if seeds > 1
        else f"seed {record.asked_seeds[0]}"
    )
    print(f"{record.conditions.model}: points on the held-out rows, {spread}")
    screen.print_table(columns, rows)
    print(
        f"* best of its row; majority: always the most frequent answer\nbest rate: {choice.best:g} ({choice.rule})"
    )
    for note in choice.notes:
        print(f"careful: {note}")
    print(f"use it: --set first.learning_rate={choice.best:g}")
    if out is not None:
        print(f"result: {out}")


def _cells(scores: TaskScores, choice: Choice) -> list[str]:
    """A task's scores by rate."""
    deviations = scores.deviations or (None,) * len(scores.means)
    return [
        _mark(
            f"{100 * mean:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}"),
            rate == scores.best,
        )
        for rate, mean, spread in zip(choice.rates, scores.means, deviations, strict=True)
    ]


def _mark(cell: str, is_best: bool) -> str:
    return f"{cell} {'*' if is_best else ' '}"
