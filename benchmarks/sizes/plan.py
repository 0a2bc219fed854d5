"""The plan of the study: tasks with their recipes, arms with their seeds, and questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from auber.config.values import load_toml
from auber.errors import ConfigError
from auber.system.records import Count, Name, Number, Record, parse
from benchmarks.common import ROOT

PLAN = ROOT / "studies" / "sizes.toml"
CONTROL = "original+tuning"
SMALL = "small"  # the method of the arm that fine-tunes the small model


class Recipe(Record):
    """A first tuning."""

    rate: Number
    epochs: Count


class TaskPlan(Record):
    """The train rows of a task (0: all), and the recipes of both models."""

    rows: Count
    model: Recipe
    small: Recipe


class Arm(Record):
    """What to run with some seeds; `name` is shared by those that make models of one kind."""

    name: Name
    method: Name
    sizes: tuple[Number, ...] = ()
    heads: Count | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    tasks: tuple[Name, ...] = ()  # none: all
    seeds: tuple[Count, ...]

    def is_of(self, task: str, seed: int) -> bool:
        """Return whether a block has this arm."""
        return seed in self.seeds and (not self.tasks or task in self.tasks)


class Int8(Record):
    """The models that are scored as int8 graphs too."""

    arms: tuple[Name, ...]
    seeds: tuple[Count, ...]


class Question(Record):
    """A comparison of an arm with others: one test for each size and other arm."""

    name: Name
    text: Name
    arm: Name
    sizes: tuple[Number, ...] = ()  # none: an arm without sizes
    against: tuple[Name, ...]
    tasks: tuple[Name, ...] = ()
    seeds: tuple[Count, ...]
    margin: Number | None = None  # points that may be lost: a test of non-inferiority
    tested: bool = True  # otherwise an estimate


class Plan(Record):
    """The whole study."""

    model: Name
    small: Name
    int8: Int8
    settings: dict[str, Any]
    tasks: dict[Name, TaskPlan]
    arms: tuple[Arm, ...]
    questions: tuple[Question, ...]

    def arms_of(self, task: str, seed: int) -> list[Arm]:
        """Return the arms of a block in order, or raise `ConfigError`."""
        found = [arm for arm in self.arms if task in self.tasks and arm.is_of(task, seed)]
        if not found:
            seeds = sorted({seed for arm in self.arms for seed in arm.seeds})
            raise ConfigError(
                f"--task {task} --seed {seed}: the plan has no such block; its tasks are "
                f"{', '.join(self.tasks)}, its seeds {', '.join(map(str, seeds))}"
            )
        return found

    def wants_int8(self, arm: str, seed: int) -> bool:
        """Return whether the models of an arm are scored as int8 graphs too."""
        return arm in self.int8.arms and seed in self.int8.seeds

    def is_drawn(self, arm: str) -> bool:
        """Return whether an arm is in the figures: with sizes, the control or the small model."""
        made = [each for each in self.arms if each.name == arm]
        return arm == CONTROL or any(each.sizes or each.method == SMALL for each in made)

    def has_sizes(self, arm: str) -> bool:
        """Return whether the models of an arm have target sizes."""
        return any(each.sizes for each in self.arms if each.name == arm)


def read_plan(path: Path) -> Plan:
    """Return the plan in a file."""
    found = load_toml(path, f"give a plan as {PLAN.name}")
    return parse(Plan, found, str(path), f"write it like {PLAN.name}", error=ConfigError)
