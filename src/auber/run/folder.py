"""A run's folder: what was asked, what is known, what came out.

    run.json      what this run is (model, task, method, data): a run only ever goes on as the same run
    config.toml   every setting
    splits.json   the rows of each part, by index
    plan.json     the heads removed so far
    scores.jsonl  the ledger of scores
    events.jsonl  what happened, with numbers, in order
    stages/       NAME.json for each finished stage; the weights of the newest one (and of the first, and of scouts at work)
    progress.json where it is, while it goes on (`auber.run.tracking`); 'auber watch' shows it
    track/        what experiment trackers keep, where some were asked for
    model/        the result as a model folder
    result.json   written last: its presence means complete
    .lock         which process is at work (`auber.system.locks`); gone when it has ended

Every file but the two append-only ones is written beside its place and renamed into it. A run that was killed restarts
the stage it was in, with weights that are checked to be the ones it wrote, and under the versions it was begun with unless
the caller allows others. In a process group only the main process writes. Who only reads a run needs `auber.run.files`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.config import Config, make_config
from auber.errors import CheckpointError, RunError
from auber.models import checkpoint
from auber.models.plan import PruningPlan
from auber.models.source import WEIGHTS
from auber.run.files import (
    DIGEST,
    RESULT,
    RunFile,
    advise_going_back,
    check_digest,
    is_run,
    read_object,
    read_record,
    read_result,
)
from auber.run.ledger import Ledger
from auber.system.distributed import is_main_process, wait_for_all
from auber.system.files import cut_torn_line, digest_file, is_refusal, write_json, write_text
from auber.system.locks import LOCK, FolderLock

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

PROGRESS = "progress.json"
TUNING = "tuning.json"  # the trials of --tune, which come before the run

# What a write that was cut leaves beside its place, by `write_text` and by `checkpoint.save`.
_SCRATCH = re.compile(
    r"\.((run|splits|plan|progress|result)\.json|config\.toml)\.[0-9]+|\.model\.[a-z0-9_]{8}"
)
# Known by digests, which would tell a person nothing.
_DIGESTED = {
    "data": "its rows were others",
    "weights": "its model had other weights",
    "origin": "its scouts were made of another model",
}
_UNRECORDED = {"processes": 1}  # what is meant where neither an old run nor a new one says it
# What follows from where a run computes: how to have it again as it was.
_SURROUNDINGS: dict[str, Callable[[Any], str]] = {
    "computed_on_threads": lambda threads: f"--set threads={threads}",
    "processes": lambda number: (
        "without torchrun" if number == 1 else f"torchrun --nproc-per-node {number}"
    ),
}
_SAME_VERSIONS = ("auber", "torch", "transformers")  # another of these may give other numbers


class Run:
    """An open run, held against other processes until it is closed.

    `identity` is what must not change between a stop and the next start. Neither may the `versions` of the packages, unless
    `allow_upgrade`: then the change is written down, and `upgrades` tells of all there were. `source`: where the model was read from.
    """

    def __init__(
        self,
        folder: str | Path,
        identity: dict[str, Any],
        config: Config,
        *,
        resume: bool = False,
        versions: Mapping[str, str] | None = None,
        source: str | None = None,
        allow_upgrade: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.resumed = is_run(self.folder)
        self.upgrades: list[dict[str, Any]] = []
        self._stages: dict[str, dict[str, Any]] = {}
        self._lock: FolderLock | None = None
        try:
            self._open(identity, config, resume, dict(versions or {}), source, allow_upgrade)
        except BaseException:
            self._release()
            raise

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, if the run is complete."""
        path = self.folder / RESULT
        return read_object(path) if path.is_file() else None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Say in one line what is kept where, inside the context, the disk takes nothing more."""
        try:
            yield
        except OSError as error:
            if not is_refusal(error):
                raise
            raise self._not_written(error.filename or self.folder, error.strerror) from error

    def close(self) -> None:
        """Let go of the ledger, and let other processes in."""
        try:
            self.ledger.close()
        finally:
            self._release()

    def log(self, event: str, **numbers: Any) -> None:
        """Append to the events."""
        if is_main_process():
            entry = {"time": round(time.time(), 3), "event": event, **numbers}
            with (self.folder / "events.jsonl").open("a", encoding="utf-8") as sink:
                sink.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def write(self, name: str, data: Any) -> None:
        """Write one of the run's JSON files."""
        if is_main_process():
            write_json(self.folder / name, data)

    def remove(self, name: str) -> None:
        """Delete one of the run's files."""
        if is_main_process():
            (self.folder / name).unlink(missing_ok=True)

    def stage(self, name: str) -> dict[str, Any] | None:
        """What a finished stage left, None if it is not finished."""
        return self._stages.get(name)

    def read_stage(self, name: str) -> RunFile:
        """What a finished stage left, read field by field: somebody may have changed it since."""
        return RunFile(self.folder / "stages" / f"{name}.json", self._stages[name])

    def forget_others(self, kept: Collection[str]) -> None:
        """Drop the records of all stages but these: they followed one that is done again, and may not follow from it now."""
        for name in [name for name in self._stages if name not in kept]:
            del self._stages[name]
            self.remove(f"stages/{name}.json")

    def finish_stage(
        self, name: str, info: dict[str, Any], model: PreTrainedModel | None = None
    ) -> dict[str, Any]:
        """Record a stage and, if it changed them, the weights at its end; older weights but the first's are dropped."""
        self._write_stage(name, {**info, "weights": model is not None}, model)
        if is_main_process() and model is not None:
            for folder in (self.folder / "stages").iterdir():
                if folder.is_dir() and folder.name not in (name, "first"):
                    shutil.rmtree(folder)
        return self._stages[name]

    def finish_scout(self, name: str, info: dict[str, Any], scout: PreTrainedModel) -> None:
        """Record the stage of a model beside the run's own; its weights are kept until a stage changes those of the run's own."""
        self._write_stage(name, {**info, "weights": False}, scout)

    def load_stage(self, name: str, device: torch.device) -> PreTrainedModel:
        """The model that a finished stage left, as it was written."""
        place = self.folder / "stages" / name
        try:
            check_digest(place, self._stages[name])
            return checkpoint.load(place, device=device)
        except CheckpointError as error:
            raise RunError(f"stage {name}: {error}; {self._remedy(name)}") from error

    def load_weights(self, names: list[str], model: PreTrainedModel) -> PreTrainedModel:
        """The model at the end of the last of these stages that changed it, as it was written; `model` where none did."""
        for name in reversed(names):
            if self._stages[name]["weights"]:
                return self.load_stage(name, model.device)
        return model

    def finish(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        plan: PruningPlan,
        result: dict[str, Any],
    ) -> dict[str, Any]:
        """Write the model and the result, and drop the weights of the stages; the result as it was written."""
        if is_main_process():
            write_json(self.folder / "plan.json", plan.to_json())
            digest = self._save(model, tokenizer, self.folder / "model")
            write_json(self.folder / RESULT, {**result, DIGEST: digest}, durable=True)
            self._sweep()
        wait_for_all()
        return read_result(self.folder)

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open(
        self,
        identity: dict[str, Any],
        config: Config,
        resume: bool,
        versions: dict[str, str],
        source: str | None,
        allow_upgrade: bool,
    ) -> None:
        if self.resumed:
            self._check_resumable(identity, config, resume)
            changed = self._changed_versions(versions, allow_upgrade)
            self._take_lock()
        else:
            changed = {}
            if (
                source is not None and Path(source).is_absolute()
            ):  # from here, so that equal runs have equal records wherever they lie
                source = os.path.relpath(source, self.folder.resolve())
            beside = {"versions": versions, "source": source}
            self._create(
                {**identity, **{name: value for name, value in beside.items() if value}}, config
            )
        # All processes must take the same decisions, so what is done is read once, before anyone goes on.
        if not self._is_complete:
            self._read_stages()
        if changed:
            self._record_upgrade(changed, versions)
        wait_for_all()
        self.ledger = Ledger(
            self.folder / "scores.jsonl", writable=is_main_process() and not self._is_complete
        )

    def _read_stages(self) -> None:
        for path in sorted((self.folder / "stages").glob("*.json")):
            self._stages[path.stem] = read_object(path)
            read = self.read_stage(path.stem)
            read.get("weights", bool)
            read.find(DIGEST, str)

    @property
    def _is_complete(self) -> bool:
        return (self.folder / RESULT).is_file()

    def _create(self, identity: dict[str, Any], config: Config) -> None:
        require_place(self.folder, resume=True)
        wait_for_all()
        if is_main_process():
            try:
                (self.folder / "stages").mkdir(parents=True, exist_ok=True)
                self._take_lock()
                if is_run(self.folder):
                    raise RunError(
                        f"{self.folder}: another process has just begun a run in it; choose another --out"
                    )
                write_text(self.folder / "config.toml", config.to_toml())
                write_json(self.folder / "run.json", identity, durable=True)
            except OSError as error:
                raise RunError(
                    f"{self.folder}: cannot be created ({error}); choose another --out"
                ) from error

    def _take_lock(self) -> None:
        """Keep other processes out, and clear away what a killed one left half written."""
        if not is_main_process():
            return
        if self._is_complete:
            if (
                self.folder / LOCK
            ).exists():  # its process was killed after the result, before it signed off
                with suppress(RunError):
                    FolderLock(self.folder).release()
        else:
            self._lock = FolderLock(self.folder)
            if self._lock.left_by is not None:
                logger.info(
                    "%s: %s, which was at work in it, is gone", self.folder, self._lock.left_by
                )
            cut_torn_line(self.folder / "events.jsonl")
        self._sweep()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _sweep(self) -> None:
        """Delete what stands half written beside its place, and the weights of stages once the result is there."""
        stages = self.folder / "stages"
        waste = [path for path in self.folder.iterdir() if _SCRATCH.fullmatch(path.name)]
        waste += stages.glob(".*")
        if self._is_complete:
            waste += [path for path in stages.glob("*") if path.is_dir()] + [self.folder / PROGRESS]
        for path in waste:
            with suppress(OSError):  # it is in nobody's way
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _check_resumable(self, identity: dict[str, Any], config: Config, resume: bool) -> None:
        require_place(self.folder, resume=resume)
        settings = make_config("paper", file=self.folder / "config.toml").flat()
        recorded = {**_UNRECORDED, **read_record(self.folder), **settings}
        asked = {**_UNRECORDED, **identity, **config.flat()}
        # Versions are judged by themselves, weights may be read from elsewhere, and of threads the number that computes counts.
        for key in ("versions", "upgrades", "source", "threads"):
            recorded.pop(key, None)
            asked.pop(key, None)
        changed = sorted(
            key for key in recorded.keys() | asked.keys() if recorded.get(key) != asked.get(key)
        )
        if changed:
            said = [
                f"{key} was {recorded.get(key)!r} and is now {asked.get(key)!r}"
                for key in changed
                if key not in _DIGESTED
            ]
            # other weights, rows or scouts mostly follow from another seed or method
            words = ", ".join(said or [_DIGESTED[key] for key in changed])
            again = [
                _SURROUNDINGS[key](recorded.get(key)) for key in changed if key in _SURROUNDINGS
            ]
            hint = f" ({', '.join(again)})" if again else ""
            raise RunError(
                f"{self.folder}: is another run: {words}; use the same settings{hint} or another --out"
            )

    # --- versions ---------------------------------------------------------------------------------------------------

    def _changed_versions(self, versions: Mapping[str, str], allowed: bool) -> dict[str, list[str]]:
        """The packages of which the run was begun with another version: what it was, and what it is now."""
        recorded = RunFile(self.folder / "run.json", read_record(self.folder))
        self.upgrades = list(recorded.items("upgrades", dict))
        before = recorded.find("versions", dict) or {}
        changed = {
            name: [before.get(name, "not recorded"), versions[name]]
            for name in _SAME_VERSIONS
            if name in versions and before.get(name) != versions[name]
        }
        if not changed or self._is_complete:
            return {}
        words = ", ".join(
            f"{name} was {was} and is now {now}" for name, (was, now) in changed.items()
        )
        if not allowed:
            raise RunError(
                f"{self.folder}: was begun with other versions: {words}; install those to end in the numbers of an unbroken run, "
                "or add --allow-upgrade to go on with these"
            )
        logger.warning(
            "%s: goes on with other versions (%s): its numbers may differ from an unbroken run's",
            self.folder,
            words,
        )
        return changed

    def _record_upgrade(self, changed: dict[str, list[str]], versions: Mapping[str, str]) -> None:
        """Write a change of versions into run.json, with the stages that were done before it."""
        self.upgrades.append({"changed": changed, "after": sorted(self._stages)})
        if is_main_process():
            write_json(
                self.folder / "run.json",
                {**read_record(self.folder), "versions": dict(versions), "upgrades": self.upgrades},
                durable=True,
            )
        self.log("upgraded", **self.upgrades[-1])

    # --- what is kept -----------------------------------------------------------------------------------------------

    def _save(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, folder: Path
    ) -> str:
        """Write a model folder; the digest of its weights."""
        try:
            checkpoint.save(model, tokenizer, folder)
            return digest_file(folder / WEIGHTS)
        except CheckpointError as error:
            cause = error.__cause__
            reason = cause.strerror if isinstance(cause, OSError) else str(cause or error)
            raise self._not_written(folder, reason) from error

    def _write_stage(self, name: str, info: dict[str, Any], model: PreTrainedModel | None) -> None:
        """The weights, where there are some, before the record: a stage that is recorded is whole."""
        self._stages[name] = info
        if is_main_process():
            stages = self.folder / "stages"
            if model is not None:
                info[DIGEST] = self._save(model, None, stages / name)
            write_json(stages / f"{name}.json", info, durable=True)

    def _not_written(self, place: str | Path, reason: str | None) -> RunError:
        stages = [
            name for name in self._stages if (self.folder / "stages" / f"{name}.json").is_file()
        ]
        kept = f"the finished stages ({', '.join(stages)}) and " if stages else ""
        return RunError(
            f"{place}: cannot be written ({reason}); {kept}{len(self.ledger)} scores are kept: make room there or make the "
            "folder writable, then go on with --resume"
        )

    def _remedy(self, stage: str) -> str:
        has_lost_first = (
            self._stages["first"]["weights"] and not (self.folder / "stages" / "first").is_dir()
        )
        if stage == "first" or has_lost_first:
            return "put a copy of it back, or start anew with another --out"
        return advise_going_back(self.folder / "stages")


def require_place(folder: Path, *, resume: bool) -> None:
    """Raise `RunError` unless a run can begin in a folder, or go on in it."""
    try:
        str(folder).encode()
        is_there = is_run(folder)
    except UnicodeEncodeError as error:
        raise RunError(
            f"{folder}: must have a name in UTF-8, without which no tokenizer can be written there; choose another --out"
        ) from error
    except OSError as error:  # such as a name that is too long
        raise RunError(
            f"{folder}: cannot be a run's folder ({error.strerror}); choose another --out"
        ) from error
    if is_there:
        if not resume:
            state = "a finished" if (folder / RESULT).is_file() else "an unfinished"
            raise RunError(
                f"{folder}: holds {state} run; add --resume to go on with it, or choose another --out"
            )
    elif folder.exists() and not (folder.is_dir() and _is_unused(folder)):
        raise RunError(f"{folder}: must be a new or an empty folder; choose another --out")


def _is_unused(folder: Path) -> bool:
    """Whether a folder is empty, or holds no more than a run that was killed while it was being made."""
    ours = {LOCK, "stages", "config.toml"}
    names = {path.name for path in folder.iterdir() if not _SCRATCH.fullmatch(path.name)}
    names.discard(TUNING)
    return not names or (
        names <= ours and (folder / "stages").is_dir() and not any((folder / "stages").iterdir())
    )
