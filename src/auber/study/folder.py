"""The folder of a study: which study it belongs to, and the state of each run.

    study.toml                                    the study
    TASK/PROTOCOL/seed-N/start                    the fine-tuned model, a run like all below
    TASK/PROTOCOL/seed-N/auber, random-0, ...     one run each
    TASK/PROTOCOL/seed-N/NAME.failed.json, .txt   why a run failed or was skipped; the traceback
    TASK/PROTOCOL/seed-N/.claim                   the process that works on the block

The state of a run is read from these files alone, so every process and machine sees the same.
Tasks, methods, seeds, protocols and draws may be added later; model, rows and settings are fixed.
"""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path
from statistics import fmean

from pydantic import ConfigDict

from auber.config import Value, make_config
from auber.errors import RunError
from auber.run.files import MODELS, RESULT
from auber.run.result_record import ResultRecord
from auber.study.plan import (
    GENERATED,
    REFERENCE,
    START,
    Block,
    PlacedRun,
    Study,
    StudyRun,
    read_study,
    select_runs,
)
from auber.system.files import write_json, write_text
from auber.system.locks import drop_foreign_lock, held
from auber.system.progress import Progress
from auber.system.records import Record, read_if_there

RECORD = "study.toml"
CLAIM = ".claim"
FAILED = ".failed.json"

_IDENTITY = "run.json"
_RECORDING = ".recording"  # the lock for writing `study.toml`
_RECORDED_WITHIN = 10.0  # seconds to wait for other processes that write it


class State(StrEnum):
    """The state of a run."""

    COMPLETE = "complete"
    FAILED = "failed"
    SKIPPED = "skipped"  # a run that it needs has failed
    UNFINISHED = "unfinished"
    MISSING = "missing"

    @property
    def is_settled(self) -> bool:
        """Return whether the current call has nothing left to do for it."""
        return self in (State.COMPLETE, State.FAILED, State.SKIPPED)


class FailureRecord(Record):
    """Why a run has no result: `NAME.failed.json`."""

    model_config = ConfigDict(extra="ignore")  # older versions also wrote what its path says

    error: str
    skipped: bool


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    block: Block
    run: str
    state: State
    error: str | None
    result: ResultRecord | None


class Listener:
    """A front end that follows a study; this one shows nothing."""

    def working(self, block: Block, run: str) -> Progress:
        """Return the progress that a run of this process reports to."""
        return Progress()

    def settled(self, outcome: Outcome) -> None:
        """Note that a run has ended, here or in another process."""

    def say(self, text: str) -> None:
        """Show a message to the user."""


class StudyFolder:
    """The folder `path` of a study."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check(self, study: Study) -> None:
        """Raise `RunError` unless the folder is empty or holds a study that this one may extend."""
        recorded = self.recorded()
        if recorded is None:
            # Hidden files may be left by a cut write.
            is_free = self.path.is_dir() and not any(self.path.glob("[!.]*"))
            if self.path.exists() and not is_free:
                raise RunError(
                    f"{self.path}: must be a study's folder, an empty or a new one; "
                    "choose another folder for --out"
                )
            return
        changed = study_differences(recorded, study)
        if changed:
            raise RunError(
                f"{self.path}: holds another study: {', '.join(changed)}; "
                "restore that or choose another folder for --out"
            )
        if REFERENCE in recorded.methods or REFERENCE not in study.methods:
            return
        alone = [
            self.run_path(block, run)
            for block in recorded.blocks()
            for run in joined_studies(recorded, study).runs(block)
            if run.is_matched and (self.run_path(block, run) / _IDENTITY).is_file()
        ]
        if alone:
            more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
            raise RunError(
                f"{alone[0]}{more}: done without '{REFERENCE}', but its fine-tuning must be the "
                "same; delete its folder to repeat it, or choose another folder for --out to add "
                f"'{REFERENCE}'"
            )

    def recorded(self) -> Study | None:
        """Return the study that the folder belongs to, None if it has no record."""
        record = self.path / RECORD
        return read_study(record) if record.is_file() else None

    def open(self, study: Study) -> None:
        """Record the study together with what earlier calls asked for."""
        self.check(study)
        recorded = self.recorded()
        if recorded is not None and _join_text(recorded, study) == recorded.to_toml():
            return  # nothing to write, so no lock to wait for
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with held(self.path, _RECORDING, wait=_RECORDED_WITHIN):
                self.check(study)  # again: another call may have added to it
                write_text(self.path / RECORD, _join_text(self.recorded(), study))
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written ({error.strerror}); choose another folder "
                "for --out"
            ) from error

    def block_path(self, block: Block) -> Path:
        """Return the folder of a block."""
        return self.path / block.path

    def run_path(self, block: Block, run: StudyRun | str) -> Path:
        """Return the folder of a run."""
        return self.path / block.path / (run if isinstance(run, str) else run.name)

    def state(self, block: Block, run: StudyRun | str) -> State:
        """Return the state of a run."""
        folder = self.run_path(block, run)
        if (folder / RESULT).is_file():
            return State.COMPLETE
        failure = self.failure(block, run)
        if failure is not None:
            return State.SKIPPED if failure.skipped else State.FAILED
        return State.UNFINISHED if (folder / _IDENTITY).is_file() else State.MISSING

    def result(self, block: Block, run: StudyRun | str) -> ResultRecord | None:
        """Return the result of a run, None if it has none."""
        path = self.run_path(block, run) / RESULT
        return read_if_there(ResultRecord, path, f"delete {path.parent} to repeat the run")

    def outcome(self, block: Block, run: StudyRun | str) -> Outcome:
        """Return how a run ended, or its state if it has not."""
        result, failure = self.result(block, run), self.failure(block, run)
        state = self.state(block, run) if result is None else State.COMPLETE
        name = self.run_path(block, run).name
        return Outcome(block, name, state, failure.error if failure else None, result)

    def pending(self, study: Study, runs: Sequence[PlacedRun]) -> list[PlacedRun]:
        """Return those of the runs that are not complete, block by block.

        The first run of a block is included if others need its weights and these were deleted.
        """
        found = [placed for placed in runs if self.state(*placed) is not State.COMPLETE]
        wanted = {(block, run.name) for block, run in found}
        wanted |= {
            (block, START)
            for block, run in found
            if run.from_start and not self.has_weights(block, START)
        }
        blocks = dict.fromkeys(block for block, _ in found)
        return [(b, run) for b in blocks for run in study.runs(b) if (b, run.name) in wanted]

    def has_weights(self, block: Block, run: StudyRun | str) -> bool:
        """Return whether the model of a run exists."""
        return (self.run_path(block, run) / "model").is_dir()

    def prepare(self, block: Block, run: StudyRun) -> Path:
        """Return the run's folder, emptied if it is complete; the caller has claimed the block."""
        folder = self.run_path(block, run)
        drop_foreign_lock(folder)  # a lost node leaves its lock; the claim keeps others out
        if (folder / RESULT).is_file():  # its weights were deleted and are needed again
            _delete_folder(folder)
        return folder

    def progress_of(self, block: Block, run: str) -> tuple[int, int]:
        """Return how far a run has come: its finished stages and the bytes of its ledger."""
        folder = self.run_path(block, run)
        ledger = folder / "scores.jsonl"
        num_stages = len(list((folder / "stages").glob("*.json")))
        return num_stages, ledger.stat().st_size if ledger.is_file() else 0

    def failure(self, block: Block, run: StudyRun | str) -> FailureRecord | None:
        """Return why a run failed or was skipped, None if it was neither."""
        path = self._failure_path(block, run)
        return read_if_there(FailureRecord, path, "delete it to try the run again")

    def record_failure(
        self, block: Block, run: str, error: BaseException | str, *, skipped: bool = False
    ) -> None:
        """Write why a run failed or was skipped, and the traceback if there is one."""
        path = self._failure_path(block, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(error, BaseException):
            trace = "".join(traceback.format_exception(error))
            path.with_suffix(".txt").write_text(trace, encoding="utf-8")
            error = f"{type(error).__name__}: {error}".splitlines()[0]
        write_json(path, FailureRecord(error=error, skipped=skipped).to_json())

    def clear_failure(self, block: Block, run: StudyRun) -> None:
        """Delete the failure of a run so that it is tried again."""
        path = self._failure_path(block, run)
        path.unlink(missing_ok=True)
        path.with_suffix(".txt").unlink(missing_ok=True)

    def _failure_path(self, block: Block, run: StudyRun | str) -> Path:
        folder = self.run_path(block, run)
        return folder.with_name(f"{folder.name}{FAILED}")

    def delete_weights(self, block: Block) -> None:
        """Delete the models of finished runs, but the fine-tuned one only if no run needs it."""
        asked = read_study(self.path / RECORD).runs(block)
        complete = [run for run in asked if self.state(block, run) is State.COMPLETE]
        is_over = len(complete) == len(asked)
        dropped = [
            self.run_path(block, run) / name
            for run in complete
            if run.name != START or is_over
            for name in ("model", MODELS)
        ]
        for folder in [*dropped, *([self.block_path(block) / GENERATED] if is_over else [])]:
            with suppress(OSError):  # costs room, but no result
                _delete_folder(folder)

    @contextmanager
    def claim(self, block: Block) -> Iterator[None]:
        """Keep other processes out of a block; raise `HeldError` if one works on it."""
        folder = self.block_path(block)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{folder}: cannot be created ({error.strerror}); make room there or make the "
                "folder writable"
            ) from error
        with held(folder, CLAIM):
            yield


def _delete_folder(folder: Path) -> None:
    """Delete a folder; if the process is killed meanwhile, no half of it stays under its name."""
    if folder.is_symlink():  # the model of a run with several sizes
        folder.unlink()
        return
    trash = folder.with_name(f".{folder.name}.dropped")
    shutil.rmtree(trash, ignore_errors=True)  # left by an earlier call
    if folder.exists():
        folder.rename(trash)
        (trash / _IDENTITY).unlink(missing_ok=True)  # so that it is not found as a run
        shutil.rmtree(trash)


def study_differences(was: Study, now: Study) -> list[str]:
    """Return why two studies cannot share a folder: their model, rows or settings differ.

    Settings are compared for all tasks, and for those that the older study has.
    """
    found: dict[str, str] = {}
    if was.model_name != now.model_name:
        found["model"] = f"model was {was.model_name!r} and is now {now.model_name!r}"
    elif was.weights and now.weights and was.weights != now.weights:
        found["model"] = f"model {now.model_name!r} has other weights than it had"
    for name in was.own.keys() & now.own.keys():
        rows, other = was.own[name].rows, now.own[name].rows
        if rows and other and rows != other:
            found[f"tasks.{name}"] = f"task {name} has other rows than it had"
    both = joined_studies(was, now)
    for task, protocol in product((None, *was.tasks), both.protocols):
        before, after = _settings(was, task, protocol), _settings(both, task, protocol)
        for key in before:
            if before[key] != after[key]:
                place = f" for task {task}" if task else ""
                found.setdefault(key, f"{key}{place} was {before[key]!r} and is now {after[key]!r}")
    return list(found.values())


def _settings(study: Study, task: str | None, protocol: str) -> dict[str, Value]:
    """Return every setting of a study for a task; None: for a task that it does not name."""
    changed = {**study.settings_of(task), "protocol": protocol}
    return make_config(study.preset, task=task, settings=changed).flat()


def joined_studies(old: Study, new: Study) -> Study:
    """Return what both studies ask for, in the order of the older one."""
    tasks = {**old.tasks, **new.tasks}
    for name in old.own.keys() & new.own.keys():
        rows = new.tasks[name].rows or old.tasks[name].rows
        tasks[name] = new.tasks[name].model_copy(update={"rows": rows})
    both = {
        key: tuple(dict.fromkeys((*getattr(old, key), *getattr(new, key))))
        for key in ("methods", "seeds", "protocols")
    }
    return new.change(
        **both, tasks=tasks, draws=max(old.draws, new.draws), weights=new.weights or old.weights
    )


def _join_text(old: Study | None, new: Study) -> str:
    return (new if old is None else joined_studies(old, new)).to_toml()


class Clock:
    """The times of finished runs, to estimate those of others.

    A run is expected to take the mean time of the finished runs of its method on its task, else of
    its method on any task. The method of the run that fine-tunes is None.
    """

    def __init__(self) -> None:
        self._times: list[tuple[str, str | None, float]] = []

    def add(self, task: str, method: str | None, seconds: float) -> None:
        """Add a finished run."""
        self._times.append((task, method, seconds))

    def expect(self, task: str, method: str | None) -> float | None:
        """Return the expected seconds of a run, None if no run of its method has finished."""
        same = [(where, seconds) for where, what, seconds in self._times if what == method]
        times = [s for where, s in same if where == task] or [s for _, s in same]
        return fmean(times) if times else None

    def estimate(self, runs: Sequence[PlacedRun]) -> tuple[float, int]:
        """Return the expected seconds of these runs, and the number of those not included.

        Runs are not included if no run of their method has finished.
        """
        expected = [self.expect(block.task, run.method) for block, run in runs]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known), len(expected) - len(known)

    def guess(self, runs: Sequence[PlacedRun]) -> float | None:
        """Return the seconds of these runs; one of an unmeasured kind takes the mean of all."""
        if not self._times or not runs:
            return None
        seconds, unknown = self.estimate(runs)
        return seconds + unknown * fmean(seconds for *_, seconds in self._times)


def read_clock(study: Study, folder: StudyFolder) -> Clock:
    """Return the times of all finished runs of a study."""
    clock = Clock()
    for block, run in select_runs(study):
        result = folder.result(block, run)
        if result is not None:
            clock.add(block.task, run.method, result.cost.seconds["total"])
    return clock
