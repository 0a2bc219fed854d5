"""A run's folder: what was asked, what is known, what came out.

    run.json      what this run is (model, task, method, data): a run only ever goes on as the same run
    config.toml   every setting
    splits.json   the rows of each part, by index
    plan.json     the heads removed so far
    scores.jsonl  the ledger of scores
    events.jsonl  what happened, with numbers, in order
    stages/       NAME.json for each finished stage; the weights of the newest one (and of the first)
    model/        the result as a model folder
    result.json   written last: its presence means complete

Every file but the two append-only ones is written beside its place and renamed into it. A run that was killed restarts
the stage it was in. In a process group only the main process writes.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber import checkpoint
from auber.config import Config, make_config
from auber.devices import is_main_process, wait_for_all
from auber.errors import RunError
from auber.ledger import Ledger
from auber.plan import PruningPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

RESULT = "result.json"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def write_json(path: Path, data: Any) -> None:
    """Write JSON whole or not at all."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """JSON from a run's folder; `RunError` where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path}: no such file; is {path.parent} a run's folder?") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from error


def is_run(folder: str | Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (Path(folder) / "run.json").is_file()


def read_result(folder: str | Path) -> dict[str, Any]:
    """The result of a finished run."""
    folder = Path(folder)
    if not is_run(folder):
        raise RunError(f"{folder}: not a run's folder (it has no run.json)")
    if not (folder / RESULT).is_file():
        raise RunError(f"{folder}: the run is not finished; continue it with --resume")
    result: dict[str, Any] = read_json(folder / RESULT)
    return result


class Run:
    """An open run. `identity` is what must not change between a stop and the next start."""

    def __init__(self, folder: str | Path, identity: dict[str, Any], config: Config, *, resume: bool = False) -> None:
        self.folder = Path(folder)
        self._stages: dict[str, dict[str, Any]] = {}
        self.resumed = is_run(self.folder)
        if self.resumed:
            self._check_resumable(identity, config, resume)
        else:
            self._create(identity, config)
        # All processes must take the same decisions, so what is done is read once, before anyone goes on.
        for path in sorted((self.folder / "stages").glob("*.json")):
            self._stages[path.stem] = read_json(path)
        wait_for_all()
        self.ledger = Ledger(self.folder / "scores.jsonl", writable=is_main_process())

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, if the run is complete."""
        path = self.folder / RESULT
        return read_json(path) if path.is_file() else None

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

    def stage(self, name: str) -> dict[str, Any] | None:
        """What a finished stage left, None if it is not finished."""
        return self._stages.get(name)

    def finish_stage(self, name: str, info: dict[str, Any], model: PreTrainedModel | None = None) -> dict[str, Any]:
        """Record a stage and, if it changed them, the weights at its end; older weights but the first's are dropped."""
        self._stages[name] = {**info, "weights": model is not None}
        if is_main_process():
            stages = self.folder / "stages"
            if model is not None:
                checkpoint.save(model, None, stages / name)
            write_json(stages / f"{name}.json", self._stages[name])
            if model is not None:
                for folder in stages.iterdir():
                    if folder.is_dir() and folder.name not in (name, "first"):
                        shutil.rmtree(folder)
        return self._stages[name]

    def load_weights(self, names: list[str], model: PreTrainedModel) -> PreTrainedModel:
        """The model at the end of the last of these stages that changed it; `model` where none did."""
        for name in reversed(names):
            if self._stages[name]["weights"]:
                return checkpoint.load(self.folder / "stages" / name, device=model.device)
        return model

    def finish(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, plan: PruningPlan, result: dict[str, Any]
    ) -> None:
        """Write the model and the result, and drop the weights of the stages."""
        if is_main_process():
            write_json(self.folder / "plan.json", plan.to_json())
            checkpoint.save(model, tokenizer, self.folder / "model")
            write_json(self.folder / RESULT, result)
            for folder in (self.folder / "stages").iterdir():
                if folder.is_dir():
                    shutil.rmtree(folder)
        wait_for_all()

    def _create(self, identity: dict[str, Any], config: Config) -> None:
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise RunError(f"{self.folder}: must be a new or an empty folder; choose another --out")
        wait_for_all()
        if is_main_process():
            try:
                (self.folder / "stages").mkdir(parents=True)
            except OSError as error:
                raise RunError(f"{self.folder}: cannot be created ({error}); choose another --out") from error
            write_text(self.folder / "config.toml", config.to_toml())
            write_json(self.folder / "run.json", identity)

    def _check_resumable(self, identity: dict[str, Any], config: Config, resume: bool) -> None:
        if not resume:
            state = "a finished" if self.result else "an unfinished"
            raise RunError(f"{self.folder}: holds {state} run; add --resume to go on with it, or choose another --out")
        recorded = {**read_json(self.folder / "run.json"), **make_config(file=self.folder / "config.toml").flat()}
        asked = {**identity, **config.flat()}
        changed = sorted(key for key in recorded.keys() | asked.keys() if recorded.get(key) != asked.get(key))
        if changed:
            words = ", ".join(f"{key} was {recorded.get(key)!r} and is now {asked.get(key)!r}" for key in changed)
            raise RunError(f"{self.folder}: is another run: {words}; use the same settings or another --out")
