"""Results of other commands in a report: `auber speed`, and replays of searches (regret)."""

from __future__ import annotations

from dataclasses import replace
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

    @property
    def after(self) -> dict[int, _Mean]:
        """The regret after a number of rewards."""
        return {50: self.after_50, 100: self.after_100, 200: self.after_200, 300: self.after_300}


class Panel(_Measurement):
    """The replays on the layers of one model, task and protocol."""

    model: Name
    task: Name
    metric: Name
    protocol: Name
    layers: Annotated[tuple[dict[Name, Any], ...], Field(min_length=1)]
    mean: dict[Name, _Search]


class Regret(_Measurement):
    """How far searches stay below the best mask of a layer, in points."""

    format: Literal[1]
    seeds: Count
    rewards: tuple[Count, ...]
    panels: Annotated[tuple[Panel, ...], Field(min_length=1)]


def read_speed(file: ResultsFile) -> Speed:
    """Return a measurement of speed."""
    return parse(Speed, dict(file.content), file.name, _REMEDY)


def read_regret(file: ResultsFile) -> Regret:
    """Return a replay of searches."""
    return parse(Regret, dict(file.content), file.name, _REMEDY)


def speed_tables(speed: Speed) -> tuple[Table, Table]:
    """Return sizes and ratios of each run, and the times of every pair."""
    sizes, times = (
        Table(name, table.title, tuple(table.columns), tuple(map(tuple, table.rows)))
        for name, table in zip(("speed1", "speed2"), make_tables(speed), strict=True)
    )
    return replace(sizes, notes=tuple(describe(speed).splitlines())), times


def regret_table(regret: Regret) -> Table:
    """Return the mean regret of each search on each task."""
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            *(panel.model, panel.protocol, panel.task, len(panel.layers), _label(name)),
            *map(str, search.after.values()),
            *(str(found or "") for found in (search.rollout, search.choice)),
        )
        for panel in regret.panels
        for name, search in panel.mean.items()
    )
    return Table(
        "regret",
        f"Regret in points, {regret.seeds} plays of each agent on each layer",
        (
            *("model", "protocol", "task", "layers", "search"),
            *(f"after {budget} rewards" for budget in (50, 100, 200, 300)),
            *("roll-out", "plan"),
        ),
        rows,
        notes=(
            "Points (100 times the metric) by which the best mask found after a number of rewards "
            "is below the best mask of the layer, mean over the layers, with its 95 % t interval "
            "over layers like these. Roll-out: the agent's greedy play at the end. Plan: the "
            "result.",
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
                means = [found.mean for found in search.after.values()]
                axes.plot([*search.after], means, "o", color=colour, markersize=3)
        for axes in every[len(regret.panels) :]:
            axes.set_visible(False)
        add_legend(figure, every[0])
    return figure


def _label(search: str) -> str:
    return _OTHERS.get(search, f"agent, preset {search}")
