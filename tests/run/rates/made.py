"""What the tests of rates share: a small grid, made-up tasks and records, and a listener that can stop the work."""

from __future__ import annotations

from auber.data.task import Rows, TaskData
from auber.run.rates.grid import Grid
from auber.run.rates.record import Conditions, Record, TaskRecord, Trial
from auber.system.progress import Progress

QUICK = {"threads": 1, "device": "cpu", "max_length": 24, "first.epochs": 1}
GRID = Grid((1e-4, 1e-3), (0, 1))


def scores_of(record):
    return {
        trial.key: (trial.score, trial.loss, trial.majority, trial.steps) for trial in record.trials
    }


def task_of(labels, label_names=("no", "yes", "maybe"), metric="accuracy"):
    rows = Rows(tuple(f"the key is red {row}" for row in range(len(labels))), None, tuple(labels))
    return TaskData("own", rows, rows.select([0]), label_names, metric)


def record_of(scores, *, majority=0.5, one_class=()):
    """A record of made-up scores, by task and rate a list over the seeds."""
    trials = [
        Trial(task, seed, rate, score, 0.7, (task, seed, rate) in one_class, majority, 10, 1.0)
        for task, rates in scores.items()
        for rate, column in rates.items()
        for seed, score in enumerate(column)
    ]
    first = next(iter(scores.values()))
    return Record(
        command=None,
        conditions=Conditions("tiny", "0", 0.2, "cpu", "float32", 1),
        asked_tasks=tuple(scores),
        asked_rates=tuple(first),
        asked_seeds=tuple(range(len(next(iter(first.values()))))),
        tasks=tuple(TaskRecord(name, "accuracy", "0", 80, 20, 3, 32, 128) for name in scores),
        trials=tuple(trials),
        provenance={},
    )


class Follower(Progress):
    """Takes down the stages, and stops the work when so many have ended."""

    planned = None

    def __init__(self, stop_after=None):
        super().__init__()
        self.stages, self.notes, self.said = [], [], []
        self._stop_after, self._note = stop_after, ""

    def plan(self, stages):
        self.planned = stages

    def begin(self, stage, total):
        if len(self.stages) == self._stop_after:
            raise KeyboardInterrupt
        self.stages.append(stage)

    def step(self, done, note=""):
        self._note = note

    def end(self):
        self.notes.append(self._note)

    def say(self, text):
        self.said.append(text)
