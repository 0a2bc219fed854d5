"""Write a run's folder.

    run.json      what the run is (model, task, method, data); see `auber.run.resuming`
    config.toml   every setting
    splits.json   the rows of each part, by index
    plan.json     the units removed so far
    scores.jsonl  the ledger of scores
    events.jsonl  what happened, with numbers, in order
    stages/       NAME.json for each finished stage; the weights of the newest one, of the first and
                  of fold models; without labels the outputs of the unpruned model
    settled.json  numbers that depended on the clock, so that a resumed run uses the same
    progress.json where the run is while it works (`auber.run.progress`), for 'auber watch'
    tuning.json   the trials of --tune, which come before the run
    track/        files of experiment trackers
    model/        the result as a model folder; of several sizes a link to the one in models/ that
                  was chosen by the tolerance, or else to the smallest
    models/       of several sizes, each as a model folder, such as models/0.5/
    result.json   written last: the run is complete if it is there
    .lock         the process at work (`auber.system.locks`), deleted at its end

All files but the two append-only ones are replaced atomically. A run that was killed repeats the
stage it was in, from weights whose digest is checked. In a process group only the main process
writes. To read a run, use `auber.run.files`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.config import Config
from auber.errors import CheckpointError, RunError
from auber.models import checkpoint
from auber.models.source import WEIGHTS
from auber.run.files import (
    DIGEST,
    MODELS,
    PROGRESS,
    RESULT,
    SCRATCH,
    SETTLED,
    check_digest,
    describe_going_back,
    find_remedy,
    is_run,
    read_identity,
    read_result,
)
from auber.run.ledger import Ledger
from auber.run.records import RunIdentity, SettledRecord, UpgradeRecord
from auber.run.resuming import Resume, Versions, check_place, check_resumable
from auber.run.stage_record import StageRecord
from auber.search.stages import ANSWERS, BUDGET, PLAN, PRIOR, RATE, STEP, is_layer_stage, is_of
from auber.system import records
from auber.system.distributed import is_main_process, wait_for_all
from auber.system.files import cut_torn_line, digest_file, is_refusal, write_json, write_text
from auber.system.locks import LOCK, FolderLock

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_REQUIRED: Mapping[str, tuple[str, ...]] = {  # what a stage must have recorded
    ANSWERS: ("answers_sha256",),
    RATE: ("rate",),
    "first": ("digest",),
    PRIOR: ("plan",),
    BUDGET: ("plan",),
    PLAN: ("removed",),
    STEP: ("tuning",),
}


class Run:
    """An open run, locked against other processes until it is closed."""

    def __init__(
        self, folder: str | Path, identity: RunIdentity, config: Config, *, resume: Resume = False
    ) -> None:
        self.folder = Path(folder)
        self.resumed = is_run(self.folder)
        self.upgrades: tuple[UpgradeRecord, ...] = ()
        self._stages: dict[str, StageRecord] = {}
        self._lock: FolderLock | None = None
        try:
            self._open(identity, config, resume)
        except BaseException:
            self._release()
            raise

    @property
    def is_complete(self) -> bool:
        """Whether the result is there."""
        return (self.folder / RESULT).is_file()

    def close(self) -> None:
        """Close the ledger and release the lock."""
        try:
            self.ledger.close()
        finally:
            self._release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inside the context, report in one line that the disk refuses to write."""
        try:
            yield
        except OSError as error:
            if not is_refusal(error):
                raise
            raise self._not_written(error.filename or self.folder, error.strerror) from error

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

    def settle(self, name: str, measure: Callable[[], int]) -> int:
        """Return a number that is measured once, even if the run is resumed.

        All processes of a group use that of the main one.
        """
        path = self.folder / SETTLED
        known = records.read_if_there(SettledRecord, path, find_remedy(path))
        numbers = {} if known is None else known.numbers
        wait_for_all()  # nobody writes before all have read
        if name not in numbers:
            self.write(SETTLED, SettledRecord(numbers={**numbers, name: measure()}).to_json())
            wait_for_all()
            numbers = records.read(SettledRecord, path, find_remedy(path)).numbers
        return numbers[name]

    def stage(self, name: str) -> StageRecord | None:
        """Return the record of a finished stage, None if it is not finished."""
        return self._stages.get(name)

    def forget_others(self, kept: Collection[str]) -> None:
        """Delete the records of all stages but these, which followed a stage that is repeated."""
        for name in [name for name in self._stages if name not in kept]:
            del self._stages[name]
            self.remove(f"stages/{name}.json")

    def finish_stage(
        self,
        name: str,
        info: dict[str, Any],
        model: PreTrainedModel | None = None,
        *,
        is_apart: bool = False,
    ) -> StageRecord:
        """Record a stage and store a model at its end.

        A model of a fold or of a size stands apart. If it is the run's own model, older weights but
        those of the first stage are deleted.
        """
        is_own = model is not None and not is_apart
        stages = self.folder / "stages"
        info = {**info, "weights": is_own}
        if is_main_process():
            if model is not None:  # before the record: a recorded stage is complete
                info[DIGEST] = self._save(model, None, stages / name)
            write_json(stages / f"{name}.json", info, durable=True)
        self._stages[name] = self._parse_stage(name, info)
        if is_main_process() and is_own:
            for folder in stages.iterdir():
                if folder.is_dir() and folder.name not in (name, "first"):
                    shutil.rmtree(folder)
        return self._stages[name]

    def load_stage(self, name: str, device: torch.device) -> PreTrainedModel:
        """Load the model that a finished stage stored."""
        place = self.folder / "stages" / name
        try:
            check_digest(place, self._stages[name].model_sha256)
            return checkpoint.load(place, device=device)
        except CheckpointError as error:
            raise RunError(f"stage {name}: {error}; {self._find_remedy(name)}") from error

    def load_weights(self, names: list[str], model: PreTrainedModel) -> PreTrainedModel:
        """Load the model after the last of these stages that changed it; `model` if none did."""
        for name in reversed(names):
            if self._stages[name].weights:
                return self.load_stage(name, model.device)
        return model

    def finish(
        self,
        models: Sequence[PreTrainedModel],
        tokenizer: PreTrainedTokenizerBase,
        result: dict[str, Any],
    ) -> dict[str, Any]:
        """Write models and result, delete the weights of stages, and return the result as read."""
        if is_main_process():
            write_json(self.folder / "plan.json", result["plan"])
            place = self.folder / "model"
            sizes = [dict(size) for size in result.get("sizes", ())]
            if sizes:
                for size, model in zip(sizes, models, strict=True):
                    size[DIGEST] = self._save(model, tokenizer, self.folder / MODELS / size["name"])
                result = {**result, "sizes": sizes}
                (digest,) = [size[DIGEST] for size in sizes if size["name"] == result["chosen"]]
                place.unlink(missing_ok=True)
                place.symlink_to(Path(MODELS, result["chosen"]), target_is_directory=True)
            else:
                digest = self._save(models[0], tokenizer, place)
            write_json(self.folder / RESULT, {**result, DIGEST: digest}, durable=True)
            self._sweep()
        wait_for_all()
        return read_result(self.folder)

    def _open(self, identity: RunIdentity, config: Config, resume: Resume) -> None:
        changed: Versions = {}
        if self.resumed:
            changed = check_resumable(self.folder, identity, config, resume)
            self._take_lock()
            self.upgrades = read_identity(self.folder).upgrades
        else:
            self._create(identity, config)
        # All processes must decide alike, so the stages are read once, before any goes on.
        if not self.is_complete:
            for path in sorted((self.folder / "stages").glob("*.json")):
                data = records.read_json(path, find_remedy(path))
                self._stages[path.stem] = self._parse_stage(path.stem, data)
        if changed:
            self._record_upgrade(changed, identity)
        wait_for_all()
        self.ledger = Ledger(
            self.folder / "scores.jsonl", writable=is_main_process() and not self.is_complete
        )

    def _create(self, identity: RunIdentity, config: Config) -> None:
        check_place(self.folder, resume=True)
        source = identity.source
        if source is not None and Path(source).is_absolute():
            # Relative, so that equal runs have equal records wherever they are.
            relative = os.path.relpath(source, self.folder.resolve())
            identity = identity.model_copy(update={"source": relative})
        wait_for_all()
        if is_main_process():
            try:
                (self.folder / "stages").mkdir(parents=True, exist_ok=True)
                self._take_lock()
                if is_run(self.folder):
                    raise RunError(
                        f"{self.folder}: another process has just begun a run in it; choose "
                        "another folder for --out"
                    )
                write_text(self.folder / "config.toml", config.to_toml())
                self._write_identity(identity)
            except OSError as error:
                raise RunError(
                    f"{self.folder}: cannot be created ({error}); choose another folder for --out"
                ) from error

    def _write_identity(self, identity: RunIdentity) -> None:
        content = identity.model_dump(mode="json", exclude_defaults=True)
        write_json(self.folder / "run.json", content, durable=True)

    def _record_upgrade(self, changed: Versions, identity: RunIdentity) -> None:
        """Record a change of versions, with the stages finished before it."""
        upgrade = UpgradeRecord(changed=changed, after=tuple(sorted(self._stages)))
        self.upgrades = (*self.upgrades, upgrade)
        if is_main_process():
            recorded = read_identity(self.folder)
            changes = {"versions": identity.versions, "upgrades": self.upgrades}
            self._write_identity(recorded.model_copy(update=changes))
        self.log("upgraded", **upgrade.to_json())

    def _parse_stage(self, name: str, data: Any) -> StageRecord:
        path = self.folder / "stages" / f"{name}.json"
        stage = records.parse(StageRecord, data, str(path), find_remedy(path))
        kind = next((kind for kind in (PLAN, STEP) if is_of(name, kind)), name)
        required = _REQUIRED.get(kind, ("removed", "tuning") if is_layer_stage(name) else ())
        if required and all(getattr(stage, key) is None for key in required):
            raise RunError(
                f"{path}: lacks '{' or '.join(required)}'; it is damaged: {find_remedy(path)}"
            )
        return stage

    def _take_lock(self) -> None:
        """Lock the folder, and delete what a killed process left half written."""
        if not is_main_process():
            return
        if self.is_complete:
            if (self.folder / LOCK).exists():  # killed between the result and its end
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
        """Delete half-written files and, once the result is there, the weights of stages."""
        stages = self.folder / "stages"
        waste = [path for path in self.folder.iterdir() if SCRATCH.fullmatch(path.name)]
        waste += [*stages.glob(".*"), *(self.folder / MODELS).glob(".*")]
        if self.is_complete:
            waste += [path for path in stages.glob("*") if path.suffix != ".json"]
            waste += [self.folder / PROGRESS]
        for path in waste:
            with suppress(OSError):  # harmless if it stays
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _save(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, folder: Path
    ) -> str:
        """Write a model folder and return the digest of its weights."""
        try:
            checkpoint.save(model, tokenizer, folder)
            return digest_file(folder / WEIGHTS)
        except CheckpointError as error:
            cause = error.__cause__
            reason = cause.strerror if isinstance(cause, OSError) else str(cause or error)
            raise self._not_written(folder, reason) from error

    def _not_written(self, place: str | Path, reason: str | None) -> RunError:
        stages = [
            name for name in self._stages if (self.folder / "stages" / f"{name}.json").is_file()
        ]
        kept = f"the finished stages ({', '.join(stages)}) and " if stages else ""
        return RunError(
            f"{place}: cannot be written ({reason}); {kept}{len(self.ledger)} scores are kept: "
            "make room there or make the folder writable, then go on with --resume"
        )

    def _find_remedy(self, stage: str) -> str:
        """Return what to do if the weights of a stage are damaged."""
        stages = self.folder / "stages"
        has_lost_first = self._stages["first"].weights and not (stages / "first").is_dir()
        if stage == "first" or has_lost_first:
            return "put a copy of it back, or start anew with another folder for --out"
        return describe_going_back(stages)
