"""The front door: `prune`, `finetune` and `evaluate`, from what a caller names to a result.

All take the model as a folder, a hub name, a finished run or a live transformers model, and the rows as a task or as
the caller's own train and dev. What can be wrong is checked first (`asks`), before anything is computed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.config import Config, make_config
from auber.data import load_task, make_task
from auber.data.encoding import encode_split
from auber.data.task import TaskData
from auber.errors import ConfigError, unknown_name
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.run import files as run_files
from auber.run import folder as runs
from auber.run import provenance
from auber.run.pipeline import Job, Pipeline, check_result
from auber.run.request import check_rows, make_ask, make_job, read_matched
from auber.run.starts import (
    NO_TOKENIZER,
    Start,
    check_fit,
    check_lengths,
    find_origin,
    load_start,
    warn_of_classes,
    warn_of_seen_rows,
)
from auber.run.tracking import check_trackers
from auber.run.tracking.listening import listening
from auber.search.registry import get_method
from auber.system.distributed import is_main_process, num_processes
from auber.system.progress import LogProgress, Progress
from auber.training.devices import resolve_hardware
from auber.training.evaluation import Scores, evaluate_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Pruned:
    """What a run hands back."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    plan: PruningPlan
    result: dict[str, Any]


@dataclass(frozen=True)
class _Resume:
    """Whether a run may be there already, and may have been begun with other versions."""

    allowed: bool
    allow_upgrade: bool


def prune(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    task: str | TaskData | None = None,
    train: Any = None,
    dev: Any = None,
    name: str | None = None,
    kind: str | None = None,
    text: str | list[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
    method: str = "auber",
    heads: int | None = None,
    heads_from: str | Path | None = None,
    origin: str | Path | PreTrainedModel | None = None,
    config: Config | str = "default",
    out: str | Path | None = None,
    resume: bool = False,
    allow_upgrade: bool = False,
    progress: Progress | None = None,
    track: Sequence[str] = (),
    command: str | None = None,
) -> Pruned:
    """Prune the heads of an encoder for a task and fine-tune what is left.

    `model`: folder, hub name, finished run, or a live model (left untouched) with its `tokenizer`.
    `task`: a known task's name or a `TaskData`; or `train` and `dev`: files, or rows that map columns to values, as
    `make_task` takes them with `name`, `kind`, `text`, `label`, `labels` and `metric`. `heads` or `heads_from` (a finished run) say how many heads the ranking methods remove;
    under protocol crossfit `heads` is for a search too.
    `origin`: what a fine-tuned `model` was before it saw the rows, a folder, hub name or live model; protocol crossfit needs it, unless the
    model is a run of `finetune`, which knows it.
    `config`: a preset's name or a `Config`. `out`: the run's folder; a temporary one without it. `resume`: go on with the run in it,
    which other versions of this package, torch or transformers may do only with `allow_upgrade`. `progress`: who listens; without it the log does,
    at level INFO, which `logging.basicConfig(level="INFO")` shows;
    `track`: experiment trackers that get the same numbers, such as ["tensorboard"] (see docs/watch.md), with files in `out`.
    `command`: the command line that asks for it; the result has it with paths cut to their last part.
    """
    _require_folder(out, resume=resume)
    trackers = _trackers(track, out)
    own = {
        "name": name,
        "kind": kind,
        "text": text,
        "label": label,
        "labels": labels,
        "metric": metric,
    }
    data = _task_data(task, train, dev, own)
    ask = make_ask(data, get_method(method), _settings(config, data.name), heads, heads_from)
    start = load_start(model, tokenizer, data, ask.settings)
    warn_of_classes(start.name, start.classes, data)
    matched = read_matched(heads_from, data, ask.settings)
    job = make_job(ask, start, matched, command)
    listener = _listener(progress)
    start = replace(start, origin=find_origin(origin, start, job, listener))
    warn_of_seen_rows(start, job.config, listener)
    return _carry_out("prune", job, start, out, _Resume(resume, allow_upgrade), listener, trackers)


def finetune(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    task: str | TaskData | None = None,
    train: Any = None,
    dev: Any = None,
    name: str | None = None,
    kind: str | None = None,
    text: str | list[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
    config: Config | str = "default",
    out: str | Path | None = None,
    resume: bool = False,
    allow_upgrade: bool = False,
    progress: Progress | None = None,
    track: Sequence[str] = (),
    command: str | None = None,
) -> Pruned:
    """The first tuning alone: the start that several prunings can share. Arguments as in `prune`."""
    _require_folder(out, resume=resume)
    trackers = _trackers(track, out)
    own = {
        "name": name,
        "kind": kind,
        "text": text,
        "label": label,
        "labels": labels,
        "metric": metric,
    }
    data = _task_data(task, train, dev, own)
    settings = _settings(config, data.name).replace({"first.when": "always"})
    hardware = resolve_hardware(settings)
    start = load_start(model, tokenizer, data, settings)
    warn_of_classes(start.name, start.classes, data)
    check_lengths(start.model, start.tokenizer, data, settings.max_length, ("train", "dev"))
    check_rows(data, settings, encoder_of(start.model))
    job = Job(
        task=data,
        model_name=start.name,
        command=command,
        config=settings,
        hardware=hardware,
        method=get_method("original"),
        num_removed=None,
        tuned_layers=None,
        first_tuning=True,
        has_trained_classifier=start.tuned,
    )
    return _carry_out(
        "finetune", job, start, out, _Resume(resume, allow_upgrade), _listener(progress), trackers
    )


def evaluate(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    task: str | TaskData,
    split: str = "dev",
    config: Config | str = "default",
) -> Scores:
    """The scores of a fine-tuned model (folder, finished run or live model) on a task's `dev` or `train` rows.

    Rows are cut as those of the run were, unless `config` is a whole configuration.
    """
    data = load_task(task) if isinstance(task, str) else task
    if split not in ("dev", "train"):
        raise ConfigError(unknown_name("split", split, ("dev", "train")))
    if isinstance(config, str) and isinstance(model, (str, Path)):
        config = make_config(config, task=data.name, otherwise=run_files.read_row_settings(model))
    settings = _settings(config, data.name)
    hardware = resolve_hardware(settings)
    name = str(model) if isinstance(model, (str, Path)) else f"the live {type(model).__name__}"
    if isinstance(model, (str, Path)):
        tokenizer = tokenizer or checkpoint.load_tokenizer(model)
        model = checkpoint.load(model, device=hardware.device)
    elif tokenizer is None:
        raise ConfigError(NO_TOKENIZER)
    check_fit(model, tokenizer, data, name)
    warn_of_classes(name, checkpoint.classes_of(model.config), data)
    check_lengths(model, tokenizer, data, settings.max_length, (split,))
    return evaluate_rows(
        model, encode_split(tokenizer, data, split, settings.max_length), data.metric
    )


def _require_folder(out: str | Path | None, *, resume: bool) -> None:
    """Say first what is wrong with the folder: a model takes seconds to read."""
    if resume and out is None:
        raise ConfigError(
            "resume: goes on with the run in a folder, found none; give out='runs/mine'"
        )
    if out is None and num_processes() > 1:
        raise ConfigError(
            f"out: a group of {num_processes()} processes shares the run's folder, found none; give out='runs/mine'"
        )
    if (
        out is not None and num_processes() == 1
    ):  # in a group another process may have made it by now
        runs.require_place(Path(out), resume=resume)


def _listener(progress: Progress | None) -> Progress:
    """Who listens; the log where a caller names nobody, and of a group of processes that of the first."""
    return progress or (LogProgress() if is_main_process() else Progress())


def _trackers(track: Sequence[str], out: str | Path | None) -> tuple[str, ...]:
    trackers = check_trackers(track)
    if trackers and out is None:
        raise ConfigError(
            f"tracker {trackers[0]}: its files go into the run's folder, found none; give out='runs/mine'"
        )
    return trackers


def _carry_out(
    kind: str,
    job: Job,
    start: Start,
    out: str | Path | None,
    resume: _Resume,
    progress: Progress,
    trackers: tuple[str, ...],
) -> Pruned:
    with tempfile.TemporaryDirectory(prefix="auber-") as scratch:
        run = runs.Run(
            out or Path(scratch) / "run",
            _identity(kind, job, start),
            job.config,
            resume=resume.allowed,
            versions=provenance.versions(),
            source=start.source,
            allow_upgrade=resume.allow_upgrade,
        )
        with run.writing(), closing(run):
            return _carry_through(kind, job, start, run, progress, trackers)


def _carry_through(
    kind: str, job: Job, start: Start, run: runs.Run, progress: Progress, trackers: tuple[str, ...]
) -> Pruned:
    if run.result is not None:
        check_result(run_files.RunFile(run.folder / run_files.RESULT, run.result))
        progress.say(f"{run.folder} is complete: nothing to do")
        run_files.check_digest(run.folder / "model", run.result)
        model = checkpoint.load(run.folder / "model", device=job.hardware.device)
        return Pruned(model, start.tokenizer, encoder_of(model).removed, run.result)
    run.log("resumed" if run.resumed else "started", process=os.getpid())
    config = job.config
    facts = {"kind": kind, "model": start.name, "task": job.task.name, "method": job.method.name}
    name = f"{job.task.name} {config.protocol} seed {config.seed} {run.folder.name}"
    settings = {**facts, **config.flat()}
    with listening(
        run, progress, track=trackers, name=name, settings=settings, command=job.command
    ) as listener:
        pipeline = Pipeline(job, run, start.model, start.tokenizer, listener, start.origin)
        if kind == "finetune":
            pipeline.finetune()
        else:
            pipeline.prune()
        result = pipeline.conclude(kind)
    return Pruned(pipeline.model, start.tokenizer, encoder_of(pipeline.model).removed, result)


def _identity(kind: str, job: Job, start: Start) -> dict[str, Any]:
    """What makes two starts the same run, beside the settings."""
    return {
        "kind": kind,
        "model": start.name,
        "weights": checkpoint.weights_digest(start.model),
        **({} if start.origin is None else {"origin": checkpoint.weights_digest(start.origin)}),
        "task": job.task.name,
        "metric": job.task.metric,
        "data": job.task.content_hash,
        "method": job.method.name,
        "heads": job.num_removed,
        "tuned_layers": None if job.tuned_layers is None else list(job.tuned_layers),
        "device_type": job.hardware.device.type,
        "computed_in": job.hardware.precision,
        "computed_on_threads": job.hardware.threads,
        # Each takes a part of every batch, and their sums end in other bits than one process's.
        **({} if num_processes() == 1 else {"processes": num_processes()}),
    }


def _task_data(task: str | TaskData | None, train: Any, dev: Any, own: dict[str, Any]) -> TaskData:
    """The task that is named or given, or that rows make; `own` is what `make_task` takes beside them, None where it was not given."""
    if (task is None) == (train is None):
        raise ConfigError(
            "give either a task or train and dev rows, found "
            + ("neither" if task is None else "both")
        )
    given = {name: value for name, value in own.items() if value is not None}
    if task is not None:
        beside = [*(["dev"] if dev is not None else []), *given]
        if beside:
            raise ConfigError(
                f"{beside[0]} is for rows given as train and dev, found a task beside it; leave one out"
            )
        return task if isinstance(task, TaskData) else load_task(task)
    if dev is None:
        raise ConfigError("train rows need dev rows beside them, found train alone; give dev too")
    return make_task(train, dev, **given)


def _settings(config: Config | str, task: str) -> Config:
    if isinstance(config, Config):
        return config
    if not isinstance(config, str):
        raise ConfigError(
            f"config: a preset's name or a Config is needed, found {type(config).__name__}; single settings go into "
            "auber.make_config(settings={...})"
        )
    return make_config(config, task=task)
