"""Results of other commands in a report: `auber speed`, and replays of searches (regret)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from auber.report.figures import COLOURS, add_legend, make_figure, style
from auber.report.results_file import ResultsFile
from auber.report.tables import Table, Value
from auber.report.words import count
from auber.system.records import Count, Name, Number, Record, parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEED, REGRET = "speed", "auber regret"  # kinds of results
_REMEDY = "measure it again"
_BUDGETS = ("50", "100", "200", "300")  # rewards
_OTHERS = {"greedy": "greedy", "random": "random masks, in expectation"}
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class _Measurement(Record):
    model_config = ConfigDict(extra="ignore")  # a report shows less than a measurement keeps


class Times(_Measurement):
    """Times of one model on one batch."""

    milliseconds: Number
    low_quartile: Number
    high_quartile: Number
    rows_per_second: Number


class Ratio(_Measurement):
    """A ratio of times with its 95 % interval."""

    median: Number
    low: Number
    high: Number

    def __str__(self) -> str:
        change = "" if self.low > 1 else " slower" if self.high < 1 else " no faster"
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f}){change}"


class Pair(_Measurement):
    """The unpruned and the pruned model on one batch."""

    runtime: Name
    device: Name
    precision: Name
    batch: Count
    length: Count
    rounds: Count
    unpruned: Times
    pruned: Times
    ratio: Ratio

    @property
    def setup(self) -> str:
        """Runtime, device, precision and batch."""
        return f"{self.runtime}, {self.device}, {self.precision}, batch {self.batch}"


class Amount(_Measurement):
    """A count in both models."""

    unpruned: Annotated[int, Field(ge=1)]
    pruned: Count

    def __str__(self) -> str:
        share = 100 * (self.pruned / self.unpruned - 1)
        return f"{_short(self.pruned)} of {_short(self.unpruned)} ({share:+.1f} %)"


class RunSpeed(_Measurement):
    """One run."""

    name: Name
    heads_removed: Count
    heads: Count
    parameters: Amount
    multiply_adds: Amount
    pairs: Annotated[tuple[Pair, ...], Field(min_length=1)]


class _Threads(_Measurement):
    threads: Count


class Speed(_Measurement):
    """The result of `auber speed`."""

    format: Literal[1]
    command: Name
    runs: Annotated[tuple[RunSpeed, ...], Field(min_length=1)]
    left_out: tuple[Name, ...]
    provenance: _Threads


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
    pairs = [(run, pair) for run in speed.runs for pair in run.pairs]
    setups = tuple(dict.fromkeys(pair.setup for _, pair in pairs))
    devices = " and ".join(dict.fromkeys(pair.device for _, pair in pairs))
    threads = count(speed.provenance.threads, "CPU thread")
    notes = (
        f"rows of {pairs[0][1].length} tokens, {threads}; both models have random weights, "
        "on which "
        "latency does not depend",
        *(f"left out: {words}" for words in speed.left_out),
    )
    sizes = Table(
        "speed1",
        f"What pruning buys on {devices}: sizes, and how many times as fast (95 % interval)",
        ("run", "heads removed", "parameters", "multiply-adds a row", *setups),
        tuple(_sizes(run, setups) for run in speed.runs),
        notes=notes,
    )
    times = Table(
        "speed2",
        f"Medians on {devices}, with quartiles",
        (
            "run",
            "runtime",
            "unpruned ms",
            "pruned ms",
            "unpruned rows/s",
            "pruned rows/s",
            "rounds",
        ),
        tuple(
            (
                run.name,
                pair.setup,
                *(_milliseconds(times) for times in (pair.unpruned, pair.pruned)),
                *(f"{times.rows_per_second:.1f}" for times in (pair.unpruned, pair.pruned)),
                str(pair.rounds),
            )
            for run, pair in pairs
        ),
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


def _sizes(run: RunSpeed, setups: Sequence[str]) -> tuple[str, ...]:
    ratios = {pair.setup: str(pair.ratio) for pair in run.pairs}
    heads = f"{run.heads_removed} of {run.heads}"
    amounts = (str(run.parameters), str(run.multiply_adds))
    return (run.name, heads, *amounts, *(ratios.get(setup, "") for setup in setups))


def _milliseconds(times: Times) -> str:
    return f"{times.milliseconds:.4g} ({times.low_quartile:.4g} to {times.high_quartile:.4g})"


def _short(number: int) -> str:
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return str(number)
