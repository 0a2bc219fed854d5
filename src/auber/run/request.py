"""What a caller asks for as a job, with all that can be said against it said before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.config import Config
from auber.data.splits import make_splits
from auber.data.task import TaskData
from auber.errors import ConfigError, RunError
from auber.metrics.task_metrics import get_metric
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.run import files as run_files
from auber.run.budget import most_to_remove
from auber.run.fields import Fields
from auber.run.pipeline import Job
from auber.run.starts import Start, check_lengths, check_origin
from auber.scoring import check_caution
from auber.search.methods import Method
from auber.search.registry import get_method
from auber.system.distributed import num_processes
from auber.training.devices import resolve_hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Ask:
    """What a caller wants pruned, and how."""

    task: TaskData
    method: Method
    settings: Config  # with what the method changes of them
    heads: int | None  # for a method that ranks; a search finds its number in the settings


def make_ask(
    task: TaskData,
    method: Method,
    settings: Config,
    heads: int | None,
    heads_from: str | Path | None = None,
) -> Ask:
    """What a caller wants, with the number of heads where it belongs; `heads_from` names the run that may give it."""
    if heads is not None and type(heads) is not int:
        raise ConfigError(f"--heads must be a whole number, found {heads!r:.40}")
    if heads is not None and heads < 0:
        raise ConfigError(f"--heads must be 0 or more, found {heads}")
    settings = settings.replace(method.settings)
    if heads is not None and method.uses_fold_models(
        settings.protocol
    ):  # it decides all layers before it tunes
        if heads == 0:
            raise ConfigError(
                "--heads must be at least 1 for a search, found 0; leave it out, and the rewards decide"
            )
        settings, heads = settings.replace({"search.heads": heads}), None
    _check_number(method, settings.protocol, heads, heads_from)
    return Ask(task, method, settings, heads)


def make_job(ask: Ask, start: Start, matched: Matched | None, command: str | None) -> Job:
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
        ask.method.check(
            settings,
            {layer: len(encoder.present(layer)) for layer in job.layers(encoder.num_layers)},
        )
        check_caution(get_metric(job.reward_metric), settings.reward.caution)
        _check_one_clock(settings.reward.latency)
    check_lengths(start.model, start.tokenizer, ask.task, settings.max_length, ("train", "dev"))
    check_rows(ask.task, settings, encoder)
    return job


def check_rows(task: TaskData, settings: Config, encoder: Encoder) -> None:
    """Raise `TaskError` where train has too few rows for all that they are to serve; later a folder would be taken by then."""
    make_splits(task.train.labels, settings, encoder.num_layers, not task.has_classes)


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
    ask = make_ask(task, get_method(method), config, heads)
    job = make_job(ask, Start(model, tokenizer, type(model).__name__, tuned=True), None, None)
    if job.first_tuning:
        raise ConfigError(
            f"first.when must be auto or never for a model that is trained already, found {config.first.when}"
        )
    check_origin(
        job, is_given=job.method.uses_fold_models(config.protocol)
    )  # scouts of a model that is trained need one


def _needs_first_tuning(start: Start, config: Config) -> bool:
    if config.first.when == "auto":
        return not start.tuned
    return config.first.when == "always"


def _check_start_of_control(start: Start, job: Job) -> None:
    """Under heldout a control is tuned on more rows than a start that is to be pruned, so it must not begin with one."""
    if (
        job.config.protocol == "heldout"
        and not job.method.removes_heads
        and start.source is not None
        and run_files.find_run(start.source) is not None
    ):
        raise ConfigError(
            f"{start.source}: is tuned without the rows held out, and method '{job.method.name}' has them from the start; give --model "
            "what it was tuned from"
        )


@dataclass(frozen=True)
class Matched:
    """What a run takes over from the one it is matched with."""

    num_removed: int
    tuned_layers: tuple[int, ...]
    start: str  # the digest of the weights it began with


def read_matched(heads_from: str | Path | None, task: TaskData, config: Config) -> Matched | None:
    """The run to match, checked to be comparable."""
    if heads_from is None:
        return None
    result = Fields(str(Path(heads_from) / run_files.RESULT), run_files.read_result(heads_from))
    if result.get("data", str) != task.content_hash:
        name = result.get("task", str)
        other = (
            f"other rows (task {name}) than this run (task {task.name})"
            if name != task.name
            else "other rows of its task"
        )
        raise RunError(f"{heads_from}: has {other}; a run can be matched only with the same")
    found, wanted = (
        (result.get("protocol", str), result.get("seed", int)),
        (config.protocol, config.seed),
    )
    if found != wanted:
        raise RunError(
            f"{heads_from}: has (protocol, seed) {found}, this run {wanted}; a run can be matched only with the same"
        )
    _check_same_tunings(heads_from, result.get("config", dict), config)
    return Matched(
        result.get("heads.removed", int),
        result.items("tuned_layers", int),
        result.get("start", str),
    )


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


def _check_number(
    method: Method, protocol: str, heads: int | None, heads_from: str | Path | None
) -> None:
    """Raise `ConfigError` unless a method that has to be told how many heads go is told so once, and no other is."""
    if method.decides_number and heads_from is not None:
        raise ConfigError(
            f"--heads-from is for methods that are told how many heads go, and '{method.name}' is none; leave it out, or "
            + (
                "give --heads"
                if method.uses_fold_models(protocol)
                else "set protocol=crossfit and give --heads"
            )
        )
    if method.decides_number or not method.removes_heads:
        if heads is not None:
            raise ConfigError(
                f"method '{method.name}' decides itself how many heads go; leave out --heads, or set protocol=crossfit"
                if method.decides_number
                else f"method '{method.name}' removes no heads; leave out --heads"
            )
    elif heads is not None and heads_from is not None:
        raise ConfigError("--heads and --heads-from exclude each other; give one")
    elif heads is None and heads_from is None:
        raise ConfigError(
            f"method '{method.name}' must be told how many heads to remove; give --heads P or --heads-from RUN"
        )


def _number_to_remove(
    method: Method, heads: int | None, matched: Matched | None, encoder: Encoder
) -> int | None:
    if method.decides_number or not method.removes_heads:
        return None
    number = heads if matched is None else matched.num_removed - encoder.removed.num_removed
    assert number is not None, "a method that ranks has been told its number"
    most = most_to_remove(encoder, range(encoder.num_layers))
    if not 0 <= number <= most:
        raise ConfigError(
            f"--heads must be from 0 to {most} (one head stays in each layer), found {number}"
        )
    return number


def _check_one_clock(latency: float) -> None:
    """Raise `ConfigError` where every process of a group would be paid by its own clock, and decide by it."""
    if latency and num_processes() > 1:
        raise ConfigError(
            f"reward.latency must be 0 in a group of {num_processes()} processes, each of which measures another time, found "
            f"{latency:g}; start one process, or give reward.head"
        )


def _check_plans_of_all_layers(job: Job, encoder: Encoder) -> None:
    """Raise `ConfigError` where settings speak of a plan for all layers and the search cannot know one, or none so large."""
    search, protocol = job.config.search, job.config.protocol
    if job.method.choose_layer is None:
        return
    if not job.method.uses_fold_models(protocol):
        for name, nothing, found in (
            ("search.prior", "none", search.prior),
            ("search.heads", 0, search.heads),
        ):
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
