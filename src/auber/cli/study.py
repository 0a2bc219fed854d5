"""`auber study`: execute the missing runs of tasks x methods x seeds."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from auber.cli import options, screen
from auber.errors import AuberError, ConfigError, printable
from auber.run.summary import name_measure
from auber.study.folder import Clock, Listener, Outcome, State, StudyFolder, read_clock
from auber.study.plan import Block, PlacedRun, Study, change_study, read_study, select_runs
from auber.system.progress import LOG_INTERVAL, Progress, describe_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress as Bars

    from auber.study.engines import Engine


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What to run."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,...",
            help="Only these runs, by task, seed, protocol and method: task=rte,seed=1; may be "
            "repeated.",
        ),
    ] = None
    seeds: Annotated[
        str | None, typer.Option(help="Seeds such as 0,1,2, instead of the file's.")
    ] = None
    model: Annotated[str | None, typer.Option(help="The model, instead of the file's.")] = None
    data: options.Data = None


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Where to run it."""

    engine: Annotated[
        str | None,
        typer.Option(
            help="local (one run at a time), processes or ray. [default: local, with --jobs "
            "processes]"
        ),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option(
            help="How many blocks (task, protocol and seed) to run at a time on this machine. "
            "[default: 1]"
        ),
    ] = None
    num_cpus: Annotated[float | None, typer.Option(help="CPUs per run on Ray. [default: 1]")] = None
    num_gpus: Annotated[
        float | None, typer.Option(help="GPUs per run on Ray, such as 0.5. [default: 0]")
    ] = None


@options.grouped
def command(
    file: Annotated[Path, typer.Argument(metavar="STUDY.TOML", help="The study file.")],
    out: Annotated[
        Path,
        typer.Option(help="The folder to write the runs to.", rich_help_panel="What to run"),
    ],
    changes: Changes,
    machines: Machines,
    track: options.Track = None,
    allow_upgrade: options.AllowUpgrade = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and estimate their time.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run tasks x methods x seeds; continue where it stopped.

    Complete runs are skipped, stopped ones resume, and failed ones are tried again. A study file
    holds what differs from the defaults, a key per line:

    \b
    model = "bert-base-cased"
    tasks = ["mrpc", "rte"]
    methods = ["auber", "random", "original+tuning"]
    seeds = [0, 1]

    Further keys: protocols, preset, draws, data, keep_weights, [settings], [tasks.NAME]. Your own
    rows are a table such as [tasks.films] with train and dev, and where needed kind, text, label,
    labels and metric, as in the options of 'auber prune'.

    Exit code 1: a run failed.

    Example: auber study studies/quick.toml --out runs/quick
    """  # noqa: D301
    from auber.study.engines import Engine

    study = read_study(file)
    study = change_study(study, model=changes.model, seeds=changes.seeds, data=changes.data)
    runs, folder = select_runs(study, changes.only or ()), StudyFolder(out)
    doubt = _doubt_verdict(study)
    engine = Engine(
        machines.engine or ("local" if machines.jobs is None else "processes"),
        jobs=1 if machines.jobs is None else machines.jobs,
        num_cpus=machines.num_cpus,
        num_gpus=machines.num_gpus,
    )
    folder.check(study)
    if dry_run:
        with screen.listening(quiet=True, warn=False):
            _show_plan(study, folder, runs, engine, as_json=json)
        if doubt and not json:
            print(doubt)
        return

    from auber.run.provenance import typed_command
    from auber.study.runner import run_study

    # The study draws its own bar; `listening` silences the libraries.
    began = time.monotonic()
    with screen.listening(quiet=True, warn=False), ExitStack() as stack:
        listener = Listener()
        if not quiet:
            console = Console(stderr=True)
            bars = stack.enter_context(screen.make_bars(console))
            pending, clock = folder.pending(study, runs), read_clock(study, folder)
            listener = shown = _Screen(bars, pending, clock, engine.jobs)
            if not console.is_terminal:
                stack.enter_context(screen.ticking(shown.tick))
            if doubt:
                shown.say(doubt)
        outcomes = run_study(
            study,
            folder,
            listener,
            runs=runs,
            engine=engine,
            track=track or (),
            allow_upgrade=allow_upgrade,
            command=typed_command(),
        )
    if json:
        found = [describe_outcome(outcome) for outcome in outcomes]
        screen.print_json({"folder": str(folder.path), "runs": found})
    else:
        if not quiet:
            took = describe_seconds(time.monotonic() - began)
            screen.print_line(Console(stderr=True), f"took {took} in all")
        for outcome in outcomes:
            if outcome.error is not None:
                print(f"{outcome.block} {outcome.run}: {_describe(outcome)}")
        print(f"{_count_states(outcomes)}   Next: auber report {folder.path}")
    if any(outcome.state != "complete" for outcome in outcomes):
        raise typer.Exit(1)


class _Screen(Listener):
    """Show a bar over the runs with the time left, and print a line for each run."""

    def __init__(
        self, bars: Bars, pending: Sequence[PlacedRun], clock: Clock, num_blocks: int
    ) -> None:
        self._bars, self._clock, self._num_blocks = bars, clock, num_blocks
        self._open = {(block, run.name): run for block, run in pending}
        self._total = len(self._open)
        self._bar = bars.add_task("study", total=self._total, note="", left="")
        self._note, self._left = "", ""
        self._printed = time.monotonic()

    def working(self, block: Block, run: str) -> Progress:
        """Show the stages of a run."""
        return _RunProgress(self, f"{block} {run}")

    def show(self, note: str, share: float = 0.0) -> None:
        """Show a note below the bar, and the share of the current run that is done."""
        self._note = note
        done = self._total - len(self._open) + share
        self._bars.update(self._bar, note=f"  {note}", completed=done)

    def tick(self) -> None:
        """Print what is under way unless a line was printed within the last half minute."""
        if self._open and time.monotonic() - self._printed >= LOG_INTERVAL:
            done = f"[{self._total - len(self._open)}/{self._total}]"
            self.say(", ".join(filter(None, (f"{done} {self._note or 'working'}", self._left))))

    def settled(self, outcome: Outcome) -> None:
        """Move the bar and print how the run ended."""
        run = self._open.pop((outcome.block, outcome.run), None)
        if run is None:
            return
        if outcome.result is not None:
            seconds = outcome.result.cost.seconds["total"]
            self._clock.add(outcome.block.task, run.method, seconds)
        done = self._total - len(self._open)
        left = self._clock.guess([(block, run) for (block, _), run in self._open.items()])
        if left is not None:
            left /= max(1, min(self._num_blocks, len(self._open)))
        self._left = screen.describe_left(left)
        line = f"[{done}/{self._total}] {outcome.block} {outcome.run}: {_describe(outcome)}"
        self.say(", ".join(filter(None, (line, self._left))))
        self._bars.update(self._bar, left=self._left)
        self.show("")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._printed = time.monotonic()
        screen.print_line(self._bars.console, text)


class _RunProgress(Progress):
    """Show the stage of a run below the bar of the study."""

    def __init__(self, study: _Screen, label: str) -> None:
        super().__init__(study)  # which receives messages
        self._study, self._label = study, label

    def step(self, done: int, note: str = "") -> None:
        """Show how much of the run is done."""
        super().step(done, note)
        share = self.share or 0.0
        words = f"{self._label} {100 * share:.0f} % {self.stage} {note}"
        self._study.show(words.strip(), share)


def _state(outcome: Outcome) -> str:
    return f"{outcome.state}: {outcome.error}" if outcome.error else str(outcome.state)


def _describe(outcome: Outcome) -> str:
    result = outcome.result
    if result is None:
        return _state(outcome)
    measure = name_measure(result.metric, answered=result.answered)
    size = f"{result.heads.removed} of {result.heads.total} heads removed"
    if result.remaining is not None and result.neurons is not None and result.neurons.removed:
        size = f"{100 * result.remaining.multiply_adds:.0f} % of the multiply-adds"
    return (
        f"dev {measure} {100 * result.dev.score:.2f}, train {100 * result.train.score:.2f}, "
        f"{size}, {describe_seconds(result.cost.seconds['total'])}"
    )


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain JSON types."""
    result = outcome.result
    facts = {**asdict(outcome.block), "run": outcome.run, "state": str(outcome.state)}
    if result is not None:
        facts |= {"dev": result.dev.score, "train": result.train.score}
        facts |= {"heads_removed": result.heads.removed, "seconds": result.cost.seconds["total"]}
    if outcome.error is not None:
        facts["error"] = printable(outcome.error)
    return facts


def _count_states(outcomes: Sequence[Outcome]) -> str:
    states = [outcome.state for outcome in outcomes]
    counts = [f"{states.count(state)} {state}" for state in State if state in states]
    return f"{len(outcomes)} runs: {', '.join(counts)}."


def _doubt_verdict(study: Study) -> str | None:
    """Return a warning if even all runs of the study are too few for a verdict."""
    from auber.metrics.statistics import FEWEST_PAIRS  # imports scipy

    pairs = len(study.seeds) * len(study.tasks)
    if len(study.methods) < 2 or pairs >= FEWEST_PAIRS:
        return None
    found = [
        f"{len(names)} {name}{'s' if len(names) > 1 else ''}"
        for names, name in ((study.seeds, "seed"), (study.tasks, "task"))
    ]
    return (
        f"warning: {' of '.join(found)} cannot give a verdict, which takes at least {FEWEST_PAIRS} "
        "pairs of runs with the same task and seed; add seeds"
    )


def _show_plan(
    study: Study, folder: StudyFolder, runs: Sequence[PlacedRun], engine: Engine, *, as_json: bool
) -> None:
    """Print the state of every run, and what the pending ones may cost."""
    from auber.study.runner import check_runs

    pending = folder.pending(study, runs)
    unreadable = ""
    try:
        check_runs(study, pending, engine.name)
    except ConfigError:
        raise
    except AuberError as error:  # a model or task that is not here; the plan is of use anyway
        unreadable = str(error)
    outcomes = [folder.outcome(block, run) for block, run in runs]
    seconds, unknown = read_clock(study, folder).estimate(pending)
    if as_json:
        cost = {"runs": len(pending), "seconds": round(seconds, 1), "runs_not_measured": unknown}
        screen.print_json({"runs": [describe_outcome(each) for each in outcomes], "open": cost})
        return
    rows = [
        [each.block.task, each.block.protocol, str(each.block.seed), each.run, _state(each)]
        for each in outcomes
    ]
    screen.print_table(["task", "protocol", "seed", "run", "state"], rows)
    print(f"\n{_count_states(outcomes)}")
    if len(pending) > unknown:
        shared = f", {engine.jobs} blocks at a time" if engine.jobs > 1 else ""
        print(
            f"{len(pending) - unknown} runs to do: about {describe_seconds(seconds / engine.jobs)}"
            f"{shared}, by the finished runs of their kind"
        )
    if unknown:
        print(f"{unknown} runs to do: no estimate until one of their kind has finished")
    if unreadable:
        print(f"not checked: {unreadable}")
