"""The front door: `prune`, `finetune` and `evaluate`, from what a caller names to a result.

All take the model as a folder, a hub name, a finished run or a live transformers model, and the rows as a task or as
the caller's own train and dev. Everything that can be wrong is checked here, before anything is computed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber import checkpoint, provenance, runs
from auber.config import Config, make_config
from auber.devices import resolve_hardware
from auber.encoders import encoder_of
from auber.encoders.base import Encoder
from auber.errors import ConfigError, RunError, TaskError, unknown_name
from auber.evaluation import Scores, evaluate_rows
from auber.fields import Fields
from auber.methods import get_method
from auber.methods.base import Method
from auber.metrics import get_metric
from auber.pipeline import Job, Pipeline
from auber.pipeline.budget import most_to_remove
from auber.plan import PruningPlan
from auber.progress import Progress, Silent
from auber.scoring import check_caution
from auber.starts import NO_TOKENIZER, Start, check_kind, check_lengths, find_origin, load_start, warn_of_seen_rows
from auber.tasks import load_task, make_task
from auber.tasks.base import TaskData
from auber.tasks.encoding import encode_split
from auber.tracking import check_trackers
from auber.tracking.listening import listening

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
    kind: str | None = None,
    text: str | list[str] | None = None,
    label: str | None = None,
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
    `make_task` takes them with `kind`, `text`, `label` and `metric`. `heads` or `heads_from` (a finished run) say how many heads the ranking methods remove;
    under protocol crossfit `heads` is for a search too.
    `origin`: what a fine-tuned `model` was before it saw the rows, a folder, hub name or live model; protocol crossfit needs it, unless the
    model is a run of `finetune`, which knows it.
    `config`: a preset's name or a `Config`. `out`: the run's folder; a temporary one without it. `resume`: go on with the run in it,
    which other versions of this package, torch or transformers may do only with `allow_upgrade`. `progress`: who listens;
    `track`: experiment trackers that get the same numbers, such as ["tensorboard"] (see docs/watch.md), with files in `out`.
    `command`: the command line to write into the result.
    """
    trackers = _trackers(track, out, resume=resume)
    data = _task_data(task, train, dev, kind, text, label, metric)
    ask = _ask(data, get_method(method), _settings(config, data.name), heads)
    start = load_start(model, tokenizer, data, ask.settings)
    matched = _matched(heads_from, data, ask.settings)
    job = _make_job(ask, start, matched, command)
    start = replace(start, origin=find_origin(origin, start, job, progress or Silent()))
    warn_of_seen_rows(start, job.config, progress or Silent())
    return _carry_out("prune", job, start, out, _Resume(resume, allow_upgrade), progress or Silent(), trackers)


def check_pruning(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    task: TaskData,
    method: str,
    heads: int | None,
    config: Config,
) -> None:
    """Raise what `prune` would say against pruning this live model, without computing anything."""
    ask = _ask(task, get_method(method), config, heads)
    _make_job(ask, Start(model, tokenizer, type(model).__name__, tuned=True), None, None)


def finetune(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    task: str | TaskData | None = None,
    train: Any = None,
    dev: Any = None,
    kind: str | None = None,
    text: str | list[str] | None = None,
    label: str | None = None,
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
    trackers = _trackers(track, out, resume=resume)
    data = _task_data(task, train, dev, kind, text, label, metric)
    settings = _settings(config, data.name).replace({"first.when": "always"})
    hardware = resolve_hardware(settings)
    start = load_start(model, tokenizer, data, settings)
    check_lengths(start.model, start.tokenizer, data, settings.max_length, ("train", "dev"))
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
    return _carry_out("finetune", job, start, out, _Resume(resume, allow_upgrade), progress or Silent(), trackers)


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
        config = make_config(config, task=data.name, otherwise=runs.read_row_settings(model))
    settings = _settings(config, data.name)
    hardware = resolve_hardware(settings)
    if isinstance(model, (str, Path)):
        folder = Path(model) / "model" if runs.is_run(model) else Path(model)
        tokenizer = tokenizer or checkpoint.load_tokenizer(folder)
        model = checkpoint.load(folder, device=hardware.device)
    elif tokenizer is None:
        raise ConfigError(NO_TOKENIZER)
    check_kind(model, data)
    check_lengths(model, tokenizer, data, settings.max_length, (split,))
    if model.config.num_labels != data.num_labels:
        raise TaskError(
            f"task {data.name}: has {data.num_labels} labels, the model's classifier {model.config.num_labels}; "
            "evaluate a model that was tuned for this task"
        )
    return evaluate_rows(model, encode_split(tokenizer, data, split, settings.max_length), data.metric)


def _trackers(track: Sequence[str], out: str | Path | None, *, resume: bool) -> tuple[str, ...]:
    """The trackers by name; what needs a run's folder is refused without one."""
    trackers = check_trackers(track)
    if resume and out is None:
        raise ConfigError("resume: goes on with the run in a folder, found none; give out='runs/mine'")
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
        progress.say(f"{run.folder} is complete: nothing to do")
        runs.check_digest(run.folder / "model", run.result)
        model = checkpoint.load(run.folder / "model", device=job.hardware.device)
        return Pruned(model, start.tokenizer, encoder_of(model).removed, run.result)
    run.log("resumed" if run.resumed else "started", process=os.getpid())
    config = job.config
    facts = {"kind": kind, "model": start.name, "task": job.task.name, "method": job.method.name}
    name = f"{job.task.name} {config.protocol} seed {config.seed} {run.folder.name}"
    settings = {**facts, **config.flat()}
    with listening(run, progress, track=trackers, name=name, settings=settings, command=job.command) as listener:
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
    }


def _task_data(
    task: str | TaskData | None,
    train: Any,
    dev: Any,
    kind: str | None,
    text: str | list[str] | None,
    label: str | None,
    metric: str | None,
) -> TaskData:
    if (task is None) == (train is None):
        raise ConfigError("give either a task or train and dev rows, found " + ("neither" if task is None else "both"))
    if isinstance(task, TaskData):
        return task
    if task is not None:
        return load_task(task)
    if dev is None:
        raise ConfigError("train rows need dev rows beside them, found train alone; give dev too")
    return make_task(train, dev, kind=kind, text=text, label=label, metric=metric)


@dataclass(frozen=True)
class _Ask:
    """What a caller wants pruned, and how."""

    task: TaskData
    method: Method
    settings: Config  # with what the method changes of them
    heads: int | None  # for a method that ranks; a search finds its number in the settings


def _ask(task: TaskData, method: Method, settings: Config, heads: int | None) -> _Ask:
    if heads is not None and type(heads) is not int:
        raise ConfigError(f"--heads must be a whole number, found {heads!r:.40}")
    settings = settings.replace(method.settings)
    if heads is not None and method.makes_scouts(settings.protocol):  # it decides all layers before it tunes
        if heads == 0:
            raise ConfigError("--heads must be at least 1 for a search, found 0; leave it out, and the rewards decide")
        settings, heads = settings.replace({"search.heads": heads}), None
    return _Ask(task, method, settings, heads)


def _make_job(ask: _Ask, start: Start, matched: _Matched | None, command: str | None) -> Job:
    """What is to be done, with all that can be said against it said."""
    settings, encoder = ask.settings, encoder_of(start.model)
    job = Job(
        task=ask.task,
        model_name=start.name,
        command=command,
        config=settings,
        hardware=resolve_hardware(settings),
        method=ask.method,
        num_removed=_number_to_remove(ask.method, ask.heads, matched, encoder),
        tuned_layers=matched.tuned_layers if matched else None,
        first_tuning=_needs_first_tuning(start, settings),
        has_trained_classifier=start.tuned,
        expected_start=matched.start if matched else None,
    )
    _check_start_of_control(start, job)
    job.layers(encoder.num_layers)  # a layer that the model lacks is said before anything is made
    _check_plans_of_all_layers(job, encoder)
    if ask.method.choose_layer is not None:
        check_caution(get_metric(job.reward_metric), settings.reward.caution)
    check_lengths(start.model, start.tokenizer, ask.task, settings.max_length, ("train", "dev"))
    return job


def _settings(config: Config | str, task: str) -> Config:
    if isinstance(config, Config):
        return config
    if not isinstance(config, str):
        raise ConfigError(
            f"config: a preset's name or a Config is needed, found {type(config).__name__}; single settings go into "
            "auber.make_config(settings={...})"
        )
    return make_config(config, task=task)


def _needs_first_tuning(start: Start, config: Config) -> bool:
    if config.first.when == "auto":
        return not start.tuned
    return config.first.when == "always"


def _check_start_of_control(start: Start, job: Job) -> None:
    """Under heldout a control is tuned on more rows than a start that is to be pruned, so it must not begin with one."""
    if job.config.protocol == "heldout" and not job.method.removes_heads and start.result is not None:
        raise ConfigError(
            f"{start.source}: is tuned without the rows held out, and method '{job.method.name}' has them from the start; give --model "
            "what it was tuned from"
        )


@dataclass(frozen=True)
class _Matched:
    """What a run takes over from the one it is matched with."""

    num_removed: int
    tuned_layers: tuple[int, ...]
    start: str  # the digest of the weights it began with


def _matched(heads_from: str | Path | None, task: TaskData, config: Config) -> _Matched | None:
    """The run to match, checked to be comparable."""
    if heads_from is None:
        return None
    result = Fields(str(Path(heads_from) / runs.RESULT), runs.read_result(heads_from))
    if result.get("data", str) != task.content_hash:
        name = result.get("task", str)
        other = (
            f"other rows (task {name}) than this run (task {task.name})"
            if name != task.name
            else "other rows of its task"
        )
        raise RunError(f"{heads_from}: has {other}; a run can be matched only with the same")
    found, wanted = (result.get("protocol", str), result.get("seed", int)), (config.protocol, config.seed)
    if found != wanted:
        raise RunError(
            f"{heads_from}: has (protocol, seed) {found}, this run {wanted}; a run can be matched only with the same"
        )
    _check_same_tunings(heads_from, result.get("config", dict), config)
    return _Matched(result.get("heads.removed", int), result.items("tuned_layers", int), result.get("start", str))


def _check_same_tunings(heads_from: str | Path, theirs: Mapping[str, Any], config: Config) -> None:
    """Raise `RunError` unless a run was tuned as this one will be, after its layers and at the end."""
    ours = config.flat()
    for key in ours:
        tunes = key.startswith(("layer.", "last.")) or key in ("reward.fraction", "max_length")
        if tunes and theirs.get(key, ours[key]) != ours[key]:
            raise RunError(
                f"{heads_from}: has {key} = {theirs[key]!r}, this run {ours[key]!r}; a run is compared only with the same tuning: give "
                f"--set {key}={theirs[key]}"
            )


def _number_to_remove(method: Method, heads: int | None, matched: _Matched | None, encoder: Encoder) -> int | None:
    if method.decides_number or not method.removes_heads:
        if heads is not None:
            raise ConfigError(
                f"method '{method.name}' decides itself how many heads go; leave out --heads"
                + (", or set protocol=crossfit" if method.decides_number else "")
            )
        return None
    if heads is not None and matched is not None:
        raise ConfigError("--heads and --heads-from exclude each other; give one")
    number = heads
    if matched is not None:
        number = matched.num_removed - encoder.removed.num_removed
    if number is None:
        raise ConfigError(
            f"method '{method.name}' must be told how many heads to remove; give --heads P or --heads-from RUN"
        )
    most = most_to_remove(encoder, range(encoder.num_layers))
    if not 0 <= number <= most:
        raise ConfigError(f"--heads must be from 0 to {most} (one head stays in each layer), found {number}")
    return number


def _check_plans_of_all_layers(job: Job, encoder: Encoder) -> None:
    """Raise `ConfigError` where settings speak of a plan for all layers and the search cannot know one, or none so large."""
    search, protocol = job.config.search, job.config.protocol
    if job.method.choose_layer is None:
        return
    if not job.method.makes_scouts(protocol):
        for name, nothing, found in (("search.prior", "none", search.prior), ("search.heads", 0, search.heads)):
            if found != nothing:
                raise ConfigError(
                    f"{name} must be {nothing} under protocol {protocol}, which tunes after each layer before the next is known, "
                    f"found {found}; set protocol=crossfit"
                )
    most = most_to_remove(encoder, job.layers(encoder.num_layers))
    if search.heads > most:
        raise ConfigError(
            f"search.heads must be from 0 to {most} (one head stays in each of the layers searched), found {search.heads}"
        )
