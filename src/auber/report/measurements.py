"""Results of other commands in a report: `auber speed`, and replays of searches (regret)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from auber.export.speed import Speed, describe, make_tables
from auber.report.figures import COLOURS, add_legend, make_figure, style
from auber.report.results_file import ResultsFile
from auber.report.tables import Table, Value
from auber.system.records import Count, Name, Number, Record, parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEED, REGRET = "speed", "auber regret"  # kinds of results
_REMEDY = "measure it again"
_BUDGETS = ("50", "100", "200", "300")  # rewards
_OTHERS = {"greedy": "greedy", "random": "random masks, in expectation"}


class _Measurement(Record):
    model_config = ConfigDict(extra="ignore")  # a report shows less than a measurement keeps


class _Interval(_Measurement):
    interval: tuple[Number, Number] | None


class _Mean(_Measurement):
    mean: Number
    over_layers: _Interval | None = None

    def __str__(self) -> str:
        ends = self.over_layers and self.over_layers.interval
        return f"{self.mean:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else "")


class _Search(_Measurement):
    regret: tuple[Number, ...]
    after_50: _Mean = Field(validation_alias="50")
    after_100: _Mean = Field(validation_alias="100")
    after_200: _Mean = Field(validation_alias="200")
    after_300: _Mean = Field(validation_alias="300")
    rollout: _Mean | None = None
    choice: _Mean | None = None


class _Recorded(_Measurement):
    command: Name | None = None


class Panel(_Measurement):
    """The replays on the layers of one model, task and protocol."""

    model: Name
    task: Name
    metric: Name
    protocol: Name
    recorded: tuple[_Recorded, ...]
    layers: Annotated[tuple[dict[Name, Any], ...], Field(min_length=1)]
    mean: dict[Name, _Search]


class Regret(_Measurement):
    """How far searches stay below the best mask of a layer, in points."""

    format: Literal[1]
    command: Name | None = None
    seeds: Count
    rewards: tuple[Count, ...]
    panels: Annotated[tuple[Panel, ...], Field(min_length=1)]

    @property
    def commands(self) -> list[str]:
        """The commands that recorded the scores, and the one that replayed them."""
        found = [run.command for panel in self.panels for run in panel.recorded]
        return list(dict.fromkeys(each for each in (*found, self.command) if each))


def read_speed(file: ResultsFile) -> Speed:
    """Return a measurement of speed."""
    return parse(Speed, dict(file.content), file.name, _REMEDY)


def read_regret(file: ResultsFile) -> Regret:
    """Return a replay of searches."""
    return parse(Regret, dict(file.content), file.name, _REMEDY)


def speed_tables(speed: Speed) -> tuple[Table, Table]:
    """Return sizes and ratios of each run, and the times of every pair."""
    sizes, times = (
        Table(
            f"speed{number}",
            table.title,
            tuple(table.columns),
            tuple(map(tuple, table.rows)),
            notes=tuple(describe(speed).splitlines()) if number == 1 else (),
        )
        for number, table in enumerate(make_tables(speed), 1)
    )
    return sizes, times


def regret_table(regret: Regret) -> Table:
    """Return the mean regret of each search on each task."""
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            *(panel.model, panel.protocol, panel.task, len(panel.layers), _label(name)),
            *(str(found or "") for found in _quantities(search)),
        )
        for panel in regret.panels
        for name, search in panel.mean.items()
    )
    columns = tuple(f"after {budget} rewards" for budget in _BUDGETS)
    return Table(
        "regret",
        f"Regret in points, {regret.seeds} plays of each agent on each layer",
        ("model", "protocol", "task", "layers", "search", *columns, "roll-out", "plan"),
        rows,
        notes=(
            "Points (100 times the metric) by which the best mask found after a number of "
            "rewards is "
            "below the best mask of the layer, mean over the layers, with its 95 % t interval over "
            "layers like these. Roll-out: the agent's greedy play at the end. Plan: the result.",
            "Regret is about the reward, on rows that the search may use; a lower regret need not "
            "give a better dev score.",
        ),
    )


def draw_regret(regret: Regret) -> Figure:
    """Draw the mean regret of each search over the rewards."""
    columns = min(3, len(regret.panels))
    rows = -(-len(regret.panels) // columns)
    with style():
        figure, every = make_figure(2.6 * columns, 2.2 * rows + 0.6, rows=rows, columns=columns)
        for axes, panel in zip(every, regret.panels, strict=False):
            axes.set_title(f"{panel.task}: {panel.model}, {panel.protocol}")
            axes.set(xlabel="rewards", ylabel=f"regret, points of {panel.metric}")
            for (name, search), colour in zip(panel.mean.items(), COLOURS, strict=False):
                axes.plot(regret.rewards, search.regret, color=colour, label=_label(name))
                means = [found.mean for found in _quantities(search)[:4] if found]
                axes.plot([*map(int, _BUDGETS)], means, "o", color=colour, markersize=3)
        for axes in every[len(regret.panels) :]:
            axes.set_visible(False)
        add_legend(figure, every[0])
    return figure


def _quantities(search: _Search) -> tuple[_Mean | None, ...]:
    budgets = (search.after_50, search.after_100, search.after_200, search.after_300)
    return (*budgets, search.rollout, search.choice)


def _label(search: str) -> str:
    return _OTHERS.get(search, f"agent, preset {search}")
