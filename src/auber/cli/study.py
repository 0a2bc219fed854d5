"""`auber study`: tasks x methods x seeds, what is missing of it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import options, screen
from auber.errors import AuberError, ConfigError
from auber.system.progress import Progress, describe_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import Progress as Bars

    from auber.study import Block, Outcome, Place, Selection, Study, StudyFolder
    from auber.study.estimate import Clock
    from auber.study.plan import StudyRun

_File = Annotated[Path, typer.Argument(metavar="STUDY.TOML", help="The study.", show_default=False)]
_Out = Annotated[Path, typer.Option("--out", help="The study's folder.", show_default=False)]
_Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="KEY=VALUE,...",
        help="A part of it by task, seed, protocol and method, such as task=rte,seed=1; may be repeated.",
    ),
]
_Seeds = Annotated[
    str | None, typer.Option("--seeds", help="In place of the file's, such as 0,1,2.")
]
_Model = Annotated[
    str | None, typer.Option("--model", help="In place of the file's.", show_default=False)
]
_Engine = Annotated[
    str | None,
    typer.Option(
        "--engine", help="local, processes or ray. [default: local, with --jobs processes]"
    ),
]
_Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", help="Blocks at a time on this machine. [default: 1]", show_default=False
    ),
]
_NumCpus = Annotated[
    float | None,
    typer.Option("--num-cpus", help="CPUs a run asks of Ray. [default: 1]", show_default=False),
]
_NumGpus = Annotated[
    float | None,
    typer.Option(
        "--num-gpus", help="GPUs a run asks of Ray, such as 0.5. [default: 0]", show_default=False
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the runs and what they may cost.")]


def command(
    file: _File,
    out: _Out,
    only: _Only = None,
    seeds: _Seeds = None,
    model: _Model = None,
    data: options.Data = None,
    engine: _Engine = None,
    jobs: _Jobs = None,
    num_cpus: _NumCpus = None,
    num_gpus: _NumGpus = None,
    track: options.Track = None,
    allow_upgrade: options.AllowUpgrade = False,
    dry_run: _DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run tasks x methods x seeds: what is complete is skipped, what was cut goes on, what failed is tried again.

    A study file holds what differs from the defaults:

    model = "bert-base-cased"; tasks = ["mrpc", "rte"]; methods = ["auber", "random", "original+tuning"]; seeds = [0, 1]

    Further keys: protocols, preset, draws, data, keep_weights, [settings], [tasks.NAME]. Exit code 1: some run failed.

    Your own rows are a table in place of a name of tasks: [tasks.films] with train and dev, and where needed kind, text, label,
    labels and metric, which are read as the options of 'auber prune' are.

    Example: auber study studies/quick.toml --out runs/quick
    """
    from auber.study import StudyFolder, change_study, read_study, select_runs

    study = change_study(read_study(file), model=model, seeds=seeds, data=data)
    selection = select_runs(study, only or ())
    folder = StudyFolder(out)
    place = _place(engine, jobs, num_cpus, num_gpus)
    folder.check(study)
    if dry_run:
        # What is doubtful about rows is said when they are computed with.
        with screen.listening(quiet=True, warn=False):
            _show_plan(study, folder, selection, place, as_json=json)
        return

    from auber.run.provenance import typed_command
    from auber.study import run_study
    from auber.study.estimate import read_clock

    # The study draws its own bars; what is wanted of the other listener is that the libraries' are silent.
    with screen.listening(quiet=True, warn=False), _bars(quiet) as bars:
        open_runs = _open_runs(study, folder, selection)
        listener = _Screen(bars, open_runs, read_clock(study, folder), place.request.jobs)
        outcomes = run_study(
            study,
            folder,
            listener,
            selection=selection,
            place=place,
            track=track or (),
            allow_upgrade=allow_upgrade,
            command=typed_command(),
        )
    _show_outcomes(folder, outcomes, as_json=json)
    if any(outcome.state != "complete" for outcome in outcomes):
        raise typer.Exit(1)


def _place(
    engine: str | None, jobs: int | None, num_cpus: float | None, num_gpus: float | None
) -> Place:
    """Where to compute, as the options say."""
    from auber.study import Place, Request

    engine = engine or ("local" if jobs is None else "processes")
    for name, value in (("--num-cpus", num_cpus), ("--num-gpus", num_gpus)):
        if value is not None and engine != "ray":
            raise ConfigError(f"{name} goes with --engine ray, found engine {engine}; leave it out")
        if value is not None and value < 0:
            raise ConfigError(f"{name} must be a number from 0, found {value:g}")
    cpus = 1.0 if num_cpus is None else num_cpus
    return Place(
        engine, Request(jobs=1 if jobs is None else jobs, num_cpus=cpus, num_gpus=num_gpus or 0.0)
    )


def _open_runs(
    study: Study, folder: StudyFolder, selection: Selection
) -> list[tuple[Block, StudyRun]]:
    return [
        (block, run)
        for block in selection.blocks
        for run in folder.pending(study, block, selection.runs(study, block))
    ]


# --- while it runs ----------------------------------------------------------------------------------------------------


class _Screen:
    """Follows a study: a bar over its runs with the time left, a bar of the run that is computed here, a line a run."""

    def __init__(
        self,
        bars: Bars | None,
        open_runs: Sequence[tuple[Block, StudyRun]],
        clock: Clock,
        jobs: int,
    ) -> None:
        self._bars, self._clock, self._jobs = bars, clock, jobs
        self._open = {(block, run.name): run for block, run in open_runs}
        self._total = len(self._open)
        self._started = time.perf_counter()
        self._whole = (
            bars.add_task("study", total=self._total, note=self._time_left()) if bars else None
        )

    def working(self, block: Block, run: str) -> Progress:
        """A run begins in this process."""
        return Progress() if self._bars is None else _RunBar(self._bars, f"  {block} {run}")

    def settled(self, outcome: Outcome) -> None:
        """Move the bar and say how the run ended."""
        run = self._open.pop((outcome.block, outcome.run), None)
        if run is None:
            return
        if outcome.result is not None:
            self._clock.add(
                outcome.block.task, run.method, outcome.result["cost"]["seconds"]["total"]
            )
        done = self._total - len(self._open)
        self.say(
            f"[{done}/{self._total}] {outcome.block} {outcome.run}: {_describe(outcome)}{self._time_left(', ')}"
        )
        if self._bars is not None and self._whole is not None:
            self._bars.update(self._whole, completed=done, note=self._time_left())

    def say(self, text: str) -> None:
        """A line above the bars."""
        if self._bars is not None:
            screen.print_line(self._bars.console, text)

    def _time_left(self, before: str = "") -> str:
        """What the clock makes of the runs that are open."""
        seconds = self._clock.guess([(block, run) for (block, _), run in self._open.items()])
        if seconds is None:
            return ""
        return f"{before}about {describe_seconds(seconds / min(self._jobs, len(self._open)))} left"


class _RunBar(Progress):
    """Show one bar for all stages of a run."""

    def __init__(self, bars: Bars, label: str) -> None:
        super().__init__()
        self._bars, self._bar = bars, bars.add_task(label, total=None, note="")

    def begin(self, stage: str, total: int) -> None:
        """Show the name of a stage."""
        super().begin(stage, total)
        self.step(0)

    def step(self, done: int, note: str = "") -> None:
        """Move the bar."""
        super().step(done, note)
        total = None if self.share is None else 1.0
        text = f"{self.stage} {note}".strip()
        self._bars.update(self._bar, total=total, completed=self.share or 0.0, note=text)

    def end(self) -> None:
        """Move the bar, and hide it after the last stage."""
        super().end()
        visible = self.finished < self.planned
        self._bars.update(self._bar, completed=self.share or 0.0, visible=visible)

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        screen.print_line(self._bars.console, text)


@contextmanager
def _bars(quiet: bool) -> Iterator[Bars | None]:
    """Bars on a terminal, the lines alone in a log file, nothing if quiet."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<32}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield bars


# --- what is printed --------------------------------------------------------------------------------------------------


def _describe(outcome: Outcome) -> str:
    """How a run ended, in one line."""
    if outcome.result is None:
        return f"{outcome.state}: {outcome.error}" if outcome.error else str(outcome.state)
    result = outcome.result
    return (
        f"dev {result['metric']} {100 * result['dev']['score']:.2f}, train {100 * result['train']['score']:.2f}, "
        f"{result['heads']['removed']} of {result['heads']['total']} heads removed, "
        f"{describe_seconds(result['cost']['seconds']['total'])}"
    )


def _show_outcomes(folder: StudyFolder, outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    if as_json:
        screen.print_json(
            {"folder": str(folder.path), "runs": [_outcome_json(outcome) for outcome in outcomes]}
        )
        return
    for outcome in outcomes:
        if outcome.error is not None:
            print(f"{outcome.block} {outcome.run}: {_describe(outcome)}")
    print(f"{_count(outcomes)}   Next: auber report {folder.path}")


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    block, result = outcome.block, outcome.result
    facts: dict[str, Any] = {
        "task": block.task,
        "protocol": block.protocol,
        "seed": block.seed,
        "run": outcome.run,
    }
    facts["state"] = str(outcome.state)
    if result is not None:
        facts |= {"dev": result["dev"]["score"], "train": result["train"]["score"]}
        facts |= {
            "heads_removed": result["heads"]["removed"],
            "seconds": result["cost"]["seconds"]["total"],
        }
    if outcome.error is not None:
        facts["error"] = outcome.error
    return facts


def _count(outcomes: Sequence[Outcome]) -> str:
    from auber.study import State

    states = [outcome.state for outcome in outcomes]
    counts = [f"{states.count(state)} {state}" for state in State if state in states]
    return f"{len(outcomes)} runs: {', '.join(counts)}."


def _show_plan(
    study: Study, folder: StudyFolder, selection: Selection, place: Place, *, as_json: bool
) -> None:
    """The runs of a study, how each stands, and what the open ones may cost."""
    from auber.study import check_runs, outcomes_of
    from auber.study.estimate import count_bounds, read_clock

    bounds, reason, jobs = None, "", place.request.jobs
    try:
        check_runs(study, folder, selection, elsewhere=place.engine == "ray")
    except ConfigError:
        raise  # settings with which no run could be done
    except AuberError as error:
        reason = str(
            error
        )  # a model or a task that cannot be read here: the plan is worth seeing all the same
    outcomes = outcomes_of(study, folder, selection)
    open_runs = _open_runs(study, folder, selection)
    clock = read_clock(study, folder)
    estimate = clock.estimate(open_runs)
    unmeasured = [
        (block, run) for block, run in open_runs if clock.expect(block.task, run.method) is None
    ]
    if unmeasured and not reason:
        bounds = count_bounds(study, unmeasured)
    if as_json:
        cost: dict[str, Any] = {"runs": estimate.open, "seconds": round(estimate.seconds, 1)}
        cost |= {"runs_not_measured": estimate.unknown}
        cost |= (
            {"most_rewards": bounds.rewards, "most_tuning_steps": bounds.tuning_steps}
            if bounds
            else {}
        )
        screen.print_json({"runs": [_outcome_json(outcome) for outcome in outcomes], "open": cost})
        return
    columns = ["task", "protocol", "seed", "run", "state"]
    rows = [
        [
            o.block.task,
            o.block.protocol,
            str(o.block.seed),
            o.run,
            str(o.state) + (f": {o.error}" if o.error else ""),
        ]
        for o in outcomes
    ]
    screen.print_table(columns, rows)
    print(f"\n{_count(outcomes)}")
    if estimate.open > estimate.unknown:
        shared = f", {jobs} blocks at a time" if jobs > 1 else ""
        print(
            f"{estimate.open - estimate.unknown} open runs: about {describe_seconds(estimate.seconds / jobs)}{shared}, "
            "as long as the finished ones of their kind"
        )
    if bounds is not None:
        print(
            f"{estimate.unknown} open runs: not measured yet; at most {bounds.rewards:,} rewards and "
            f"{bounds.tuning_steps:,} tuning steps"
        )
    elif reason and unmeasured:
        print(f"{estimate.unknown} open runs: not measured yet, and not counted: {reason}")
