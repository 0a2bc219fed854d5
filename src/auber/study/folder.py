"""A study's folder: which study it is, and how far each run of it has come.

    study.toml                                    the study: one folder holds one
    TASK/PROTOCOL/seed-N/start                    the fine-tuned start, a run's folder like all below
    TASK/PROTOCOL/seed-N/auber, random-0, ...     one run each
    TASK/PROTOCOL/seed-N/NAME.failed.json, .txt   why a run failed or was left out, in one line, and the traceback
    TASK/PROTOCOL/seed-N/.claim                   which process is at work in the block (`auber.system.locks`); gone when it has ended
    TASK/PROTOCOL/seed-N/.NAME.begun              while a run is worked on; left where its process was killed

The state of a run is what lies there and nothing else, so whoever looks, in this process or on another machine, sees the
same. Tasks, methods, seeds, protocols and draws may be added to a study later; model, rows and settings may not change.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from auber.config import Value, make_config
from auber.errors import RunError
from auber.run import files as run_files
from auber.run.fields import is_number
from auber.study.own import OwnTask
from auber.study.plan import EMBEDDED, MATCHED, START, Block, Study, StudyRun, read_study
from auber.system.files import write_json, write_text
from auber.system.locks import HeldError, drop_foreign_lock, held

Item = TypeVar("Item")

RECORD = "study.toml"
CLAIM = ".claim"

_TOLD = (
    "dev.score",
    "train.score",
    "heads.removed",
    "heads.total",
    "cost.seconds.total",
)  # of every result

_RECORDING = ".recording"  # the lock under which `study.toml` is written
_RECORDED_WITHIN = 10.0  # seconds that others may take to write it


class State(StrEnum):
    """How far a run has come."""

    COMPLETE = "complete"
    FAILED = "failed"
    SKIPPED = "skipped"  # a run it needs has failed
    UNFINISHED = "unfinished"
    MISSING = "missing"

    @property
    def is_settled(self) -> bool:
        """Whether this call of the study is through with it."""
        return self in (State.COMPLETE, State.FAILED, State.SKIPPED)


@dataclass(frozen=True)
class Failure:
    """Why a run has no result."""

    error: str
    skipped: bool


class StudyFolder:
    """The folder `path` of a study."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check(self, study: Study) -> None:
        """Raise `RunError` unless the folder is new, or holds this study or a smaller one of the same settings."""
        if not (self.path / RECORD).is_file():
            if self.path.exists() and (not self.path.is_dir() or any(_visible(self.path))):
                raise RunError(
                    f"{self.path}: must be a new or an empty folder or a study's; choose another --out"
                )
            return
        recorded = read_study(self.path / RECORD)
        changed = study_differences(recorded, study)
        if changed:
            raise RunError(
                f"{self.path}: holds another study: {', '.join(changed)}; use what it had or another --out"
            )
        self._require_matched(recorded, joined_studies(recorded, study))

    def _require_matched(self, recorded: Study, joined: Study) -> None:
        """Raise `RunError` where `auber` is added to a study that has done without it what would be matched with it."""
        if MATCHED in recorded.methods or MATCHED not in joined.methods:
            return
        alone = [
            self.run_path(block, run)
            for block in recorded.blocks()
            for run in joined.runs(block)
            if run.is_matched and run_files.is_run(self.run_path(block, run))
        ]
        if alone:
            more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
            raise RunError(
                f"{alone[0]}{more}: done without '{MATCHED}', whose tunings it has to share to be compared with it; delete the folder of "
                f"each such run to do it anew, or choose another --out to add '{MATCHED}'"
            )

    def open(self, study: Study) -> None:
        """Make the folder this study's: record it, together with what an earlier call has already asked for."""
        self.check(study)
        if self._is_recorded(study):
            return  # many may open it at once, and none of them needs to write
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # What another call asks for in the same moment is read before ours is added to it, or it would be lost.
            with _waiting_for_others(self.path):
                self.check(study)
                record = self.path / RECORD
                asked = joined_studies(read_study(record), study) if record.is_file() else study
                write_text(record, asked.to_toml())
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written ({error.strerror}); choose another --out"
            ) from error

    def _is_recorded(self, study: Study) -> bool:
        record = self.path / RECORD
        if not record.is_file():
            return False
        old = read_study(record)
        return joined_studies(old, study).to_toml() == old.to_toml()

    def block_path(self, block: Block) -> Path:
        """The folder of a block."""
        return self.path / block.path

    def run_path(self, block: Block, run: StudyRun | str) -> Path:
        """The folder of a run."""
        return self.path / block.path / (run if isinstance(run, str) else run.name)

    def state(self, block: Block, run: StudyRun | str) -> State:
        """How far a run has come."""
        folder = self.run_path(block, run)
        if (folder / run_files.RESULT).is_file():
            return State.COMPLETE
        failure = self.failure(block, run)
        if failure is not None:
            return State.SKIPPED if failure.skipped else State.FAILED
        return State.UNFINISHED if run_files.is_run(folder) else State.MISSING

    def result(self, block: Block, run: StudyRun | str) -> dict[str, Any] | None:
        """The result of a run; None where it has none, or another process is just making it again."""
        path = self.run_path(block, run) / run_files.RESULT
        try:
            result = run_files.read_result(path.parent) if path.is_file() else None
        except RunError:
            if path.is_file():
                raise
            return None
        if result is not None:
            _require_scores(path, result)
        return result

    def pending(
        self, study: Study, block: Block, chosen: Sequence[StudyRun] | None = None
    ) -> list[StudyRun]:
        """The chosen runs of a block (all without it) that are not complete, in order.

        The start is among them too where they need its weights and those are gone.
        """
        all_runs = study.runs(block)
        found = [
            run
            for run in (all_runs if chosen is None else chosen)
            if self.state(block, run) is not State.COMPLETE
        ]
        if (
            any(run.from_start for run in found)
            and all_runs[0] not in found
            and not self.has_weights(block, START)
        ):
            found.insert(0, all_runs[0])
        return found

    def has_weights(self, block: Block, run: StudyRun | str) -> bool:
        """Whether the model of a run is still there."""
        return (self.run_path(block, run) / "model").is_dir()

    def prepare(self, block: Block, run: StudyRun) -> Path:
        """The run's folder, cleared where it holds nothing a run can go on from; for who has claimed the block."""
        folder = self.run_path(block, run)
        drop_foreign_lock(
            folder
        )  # a node that was lost cannot sign off, and the claim keeps others out
        if (folder / run_files.RESULT).is_file():  # its weights are gone and wanted again
            _drop(folder)
        return folder

    # --- attempts ---------------------------------------------------------------------------------------------------

    @contextmanager
    def attempt(self, block: Block, run: StudyRun | str) -> Iterator[None]:
        """A run is worked on inside the context: who is killed in it leaves that to be seen."""
        mark = self._attempt_path(block, run)
        mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def end_attempt(self, block: Block, run: StudyRun | str) -> bool:
        """Whether a process was killed while it worked on a run; to be asked once after each loss."""
        mark = self._attempt_path(block, run)
        was_begun = mark.exists()
        mark.unlink(missing_ok=True)
        return was_begun

    def advance(self, block: Block, run: StudyRun | str) -> tuple[int, int]:
        """How far a run without a result has come: its finished stages, and the bytes of its ledger."""
        folder = self.run_path(block, run)
        ledger = folder / "scores.jsonl"
        return len(
            list((folder / "stages").glob("*.json"))
        ), ledger.stat().st_size if ledger.is_file() else 0

    def _attempt_path(self, block: Block, run: StudyRun | str) -> Path:
        folder = self.run_path(block, run)
        return folder.with_name(f".{folder.name}.begun")

    # --- failures ---------------------------------------------------------------------------------------------------

    def failure(self, block: Block, run: StudyRun | str) -> Failure | None:
        """The failure of a run in this or an earlier call."""
        path = self._failure_path(block, run)
        if not path.is_file():
            return None
        try:
            data = run_files.read_json(path)
        except RunError as error:
            if isinstance(
                error.__cause__, FileNotFoundError
            ):  # another call is just trying the run again
                return None
            raise
        if (
            not isinstance(data, dict)
            or not isinstance(data.get("error"), str)
            or type(data.get("skipped")) is not bool
        ):
            raise RunError(
                f"{path}: must say why a run has no result, found {data!r:.60}; delete it to try the run again"
            )
        return Failure(data["error"], data["skipped"])

    def record_failure(self, block: Block, run: StudyRun | str, error: BaseException | str) -> None:
        """Write why a run failed: one line, and the traceback beside it where there is one."""
        path = self._failure_path(block, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(error, BaseException):
            path.with_suffix(".txt").write_text(
                "".join(traceback.format_exception(error)), encoding="utf-8"
            )
            error = f"{type(error).__name__}: {error}".splitlines()[0]
        self._write_failure(path, block, run, error, skipped=False)

    def record_skip(self, block: Block, run: StudyRun | str, needed: str) -> None:
        """Write that a run was left out because another has no result."""
        self._write_failure(
            self._failure_path(block, run),
            block,
            run,
            f"left out: '{needed}' has no result",
            skipped=True,
        )

    def forget_failures(self, block: Block, chosen: Iterable[StudyRun]) -> None:
        """What failed of these may be tried again, and what killed an earlier call counts no more."""
        for run in chosen:
            path = self._failure_path(block, run)
            for part in (path, path.with_suffix(".txt"), self._attempt_path(block, run)):
                part.unlink(missing_ok=True)

    def _failure_path(self, block: Block, run: StudyRun | str) -> Path:
        folder = self.run_path(block, run)
        return folder.with_name(f"{folder.name}.failed.json")

    def _write_failure(
        self, path: Path, block: Block, run: StudyRun | str, error: str, *, skipped: bool
    ) -> None:
        name = run if isinstance(run, str) else run.name
        facts = {"task": block.task, "protocol": block.protocol, "seed": block.seed, "run": name}
        write_json(path, {**facts, "error": error, "skipped": skipped})

    # --- weights and claims -----------------------------------------------------------------------------------------

    def drop_weights(self, block: Block) -> None:
        """Delete the models of finished runs; the start's only when no run that was ever asked for needs it any more."""
        asked = read_study(self.path / RECORD).runs(block)
        complete = [run for run in asked if self.state(block, run) is State.COMPLETE]
        is_over = len(complete) == len(asked)
        for run in complete:
            if run.name != START or is_over:
                with suppress(
                    OSError
                ):  # what is left is room that is not made, and no error of the study
                    _drop(self.run_path(block, run) / "model")
        if is_over:
            with suppress(OSError):
                _drop(self.block_path(block) / EMBEDDED)

    @contextmanager
    def claim(self, block: Block) -> Iterator[None]:
        """Keep other processes out of a block inside the context; `HeldError`, which names it, where one is in."""
        folder = self.block_path(block)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{folder}: cannot be created ({error.strerror}); make room there or make the folder writable"
            ) from error
        with held(folder, CLAIM):
            yield


def _require_scores(path: Path, result: Any) -> None:
    """Raise `RunError` unless a result holds the numbers that are told of a run."""
    for key in _TOLD:
        found = result
        for name in key.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if not is_number(found):
            raise RunError(
                f"{path}: '{key}' must be a finite number, found {found!r:.40}; it is damaged, delete {path.parent} to make the run "
                "again"
            )
    if not isinstance(result.get("metric"), str):
        raise RunError(
            f"{path}: 'metric' must be a name; it is damaged, delete {path.parent} to make the run again"
        )


@contextmanager
def _waiting_for_others(folder: Path) -> Iterator[None]:
    """Be the only one to write the record inside the context; who is at it is waited for."""
    ends = time.monotonic() + _RECORDED_WITHIN
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(held(folder, _RECORDING))
                break
            except HeldError:
                if time.monotonic() > ends:
                    raise
            time.sleep(0.05)
        yield


def _drop(folder: Path) -> None:
    """Delete a folder so that nobody finds half of it, not even where this is killed on the way."""
    away = folder.with_name(f".{folder.name}.dropped")
    shutil.rmtree(away, ignore_errors=True)  # what an earlier one left
    if folder.exists():
        folder.rename(away)
        (away / "run.json").unlink(
            missing_ok=True
        )  # what is left of a run is no run to who looks below all folders
        shutil.rmtree(away)


def _visible(folder: Path) -> list[str]:
    """What lies in a folder, but for the scratch files of a write that was cut."""
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def study_differences(was: Study, now: Study) -> list[str]:
    """What keeps two studies out of one folder: another model, other rows, or other settings for all or for tasks the older one has."""
    found: dict[str, str] = {}
    if was.model_name != now.model_name:
        found["model"] = f"model was {was.model_name!r} and is now {now.model_name!r}"
    elif was.weights and now.weights and was.weights != now.weights:
        found["model"] = f"model {now.model_name!r} has other weights than it had"
    for name in was.own:
        rows, other = was.own[name].rows, now.own[name].rows if name in now.own else None
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
    """Every setting of a study under a protocol for a task, or for one it says nothing particular about."""
    changed = {**study.settings_of(task or ""), "protocol": protocol}
    return make_config(study.preset, task=task, settings=changed).flat()


def joined_studies(old: Study, new: Study) -> Study:
    """Both studies together, the older one's order first."""
    return replace(
        new,
        tasks=_both(old.tasks, new.tasks),
        methods=_both(old.methods, new.methods),
        seeds=_both(old.seeds, new.seeds),
        protocols=_both(old.protocols, new.protocols),
        draws=max(old.draws, new.draws),
        task_settings={**old.task_settings, **new.task_settings},
        own={**old.own, **{name: _known(own, old.own.get(name)) for name, own in new.own.items()}},
        weights=new.weights or old.weights,
    )


def _known(new: OwnTask, old: OwnTask | None) -> OwnTask:
    """A task with the digest of its rows, whoever of the two has it."""
    return new if new.rows or old is None else replace(new, rows=old.rows)


def _both(old: tuple[Item, ...], new: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(old + new))
