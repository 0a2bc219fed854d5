"""From the arguments of `auber.prune` and `auber.finetune` to a checked `Request`.

Everything that can be wrong with a run is raised here, before anything is computed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auber.config import Config
from auber.data.splits import make_splits
from auber.data.task import TaskData
from auber.errors import ConfigError
from auber.metrics.task_metrics import get_metric
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.run import files, provenance
from auber.run.fine_tuned import (
    FineTuned,
    check_lengths,
    load_fine_tuned,
    warn_of_classes,
)
from auber.run.pretrained import find_pretrained
from auber.run.request import Request
from auber.run.result_record import ResultRecord
from auber.run.targets import HALF, assign_target, count_removed, list_sizes, most_to_remove
from auber.scoring import check_caution
from auber.search.methods import Method
from auber.search.rankings.selection import check_size
from auber.search.registry import get_method
from auber.system.distributed import num_processes
from auber.system.progress import Progress
from auber.training.devices import resolve_hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def request_pruning(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    task: TaskData,
    method: Method,
    heads: int | str | Path | None,
    origin: str | Path | PreTrainedModel | None,
    config: Config,
    progress: Progress,
) -> Request:
    """Return the request to prune a model; the arguments are those of `auber.prune`."""
    has_size = bool(config.size.keep)
    config, number, matched = assign_target(method, config, heads, task)
    start = load_fine_tuned(model, tokenizer, task, config)
    warn_of_classes(start.name, start.classes, task)
    request = _make_request(start, task, method, config, number, matched)
    if heads is None and config.size.keep and not has_size:
        progress.say(f"no size was given, so half of the multiply-adds are kept (keep {HALF})")
    _check_fold_models(request, has_origin=origin is not None)
    if task.is_answered:
        return _request_answers(request, has_origin=origin is not None)
    if request.needs_fold_models:
        request = replace(request, pretrained=find_pretrained(origin, request, progress))
    _warn_of_seen_rows(request, progress)
    return request


def _warn_of_seen_rows(request: Request, progress: Progress) -> None:
    """Report which scores are too high if the model was fine-tuned on their rows."""
    start, config = request.start, request.config
    is_elsewhere = start.source is not None and start.result is None
    if is_elsewhere and not request.needs_first_tuning:
        progress.say(
            f"{start.name} is fine-tuned already and used as it is: if it has seen the dev rows, "
            "all dev scores are too high (first.when=always tunes it on train first)"
        )
    if config.size.tolerance is not None and not _is_new(request):
        progress.say(
            f"warning: {start.name} is fine-tuned already and may have seen the rows held out for "
            "the tolerance, so the loss on new rows may be larger; for unseen rows, tune it with "
            f"'auber finetune --set size.tolerance={config.size.tolerance:g}'"
        )
    if config.protocol == "heldout" and start.has_classifier and start.result is None:
        progress.say(
            f"warning: {start.name} is fine-tuned; rewards come from held-out rows only if it was "
            "not tuned on them, as an 'auber finetune' run with protocol heldout is not"
        )


def _request_answers(request: Request, *, has_origin: bool) -> Request:
    """Return the request to prune without labels; no model has to be kept from any row."""
    if request.needs_first_tuning:
        place = request.start.place
        if not request.start.has_classifier:
            raise ConfigError(f"{place}: has no trained head, so it has no answers to texts")
        raise ConfigError(
            "first.when must be auto or never without labels, of which there are none to tune on, "
            f"found {request.config.first.when}"
        )
    if has_origin:
        raise ConfigError(
            "an origin is for fold models that learn from labels, found texts without; leave it out"
        )
    if not request.needs_fold_models:
        return request
    return replace(request, pretrained=request.start.model)


def request_finetuning(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    task: TaskData,
    config: Config,
) -> Request:
    """Return the request for the first tuning alone."""
    config = config.replace({"first.when": "always"})
    hardware = resolve_hardware(config)
    start = load_fine_tuned(model, tokenizer, task, config)
    warn_of_classes(start.name, start.classes, task)
    _check_rows(start, task, config)
    return Request(
        "finetune",
        task,
        start,
        config,
        hardware,
        get_method("original"),
        needs_first_tuning=True,
        command=provenance.recorded_command(),
    )


def check_pruning(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    task: TaskData,
    method: str,
    heads: int | None,
    config: Config,
    has_classifier: bool = True,
) -> Request:
    """Raise what `prune` would raise for a live model, without using its weights.

    A pretrained model for fold models counts as given.
    """
    chosen = get_method(method)
    config, number, _ = assign_target(chosen, config, heads, task)
    start = FineTuned(model, tokenizer, type(model).__name__, has_classifier)
    request = _make_request(start, task, chosen, config, number, None)
    has_origin = request.needs_fold_models and not request.needs_first_tuning
    _check_fold_models(request, has_origin=has_origin)
    return request


def _make_request(
    start: FineTuned,
    task: TaskData,
    method: Method,
    config: Config,
    heads: int | None,
    matched: ResultRecord | None,
) -> Request:
    """Return the request after all checks that need no pretrained model."""
    encoder = encoder_of(start.model)
    if config.size.tolerance is not None and not config.size.keep:
        config = config.replace({"size.keep": list_sizes(encoder, config)})
    when = config.first.when
    request = Request(
        "prune",
        task,
        start,
        config,
        resolve_hardware(config),
        method,
        needs_first_tuning=when == "always" or (when == "auto" and not start.has_classifier),
        num_removed=count_removed(method, config, heads, matched, encoder),
        matched=matched,
        command=provenance.recorded_command(),
    )
    _check_control(request)
    layers = request.layers  # also raises if the settings name others than the model has
    if method.choose_layer is not None:
        _check_search(request, encoder, layers)
    if method.removes_heads:
        for share in config.size.shares:
            check_size(encoder, config.size.model_copy(update={"keep": share}), config.max_length)
    _check_rows(start, task, config)
    return request


def _check_rows(start: FineTuned, task: TaskData, config: Config) -> None:
    """Raise if rows are too long for the model or too few for the splits."""
    check_lengths(start.model, start.tokenizer, task, config.max_length)
    num_layers = encoder_of(start.model).num_layers
    make_splits(task.train.labels, config, num_layers, not task.has_classes)


def _is_new(request: Request) -> bool:
    """Return whether the start has not seen the rows that are held out for a tolerance."""
    start, config = request.start, request.config.flat()
    if request.needs_first_tuning:
        return not start.has_classifier
    if start.finetuning is None:
        return False
    keys = ("size.tolerance", "seed", "protocol")
    return all(start.finetuning.config.get(key) == config[key] for key in keys)


def _check_control(request: Request) -> None:
    """Raise `ConfigError` for a control whose start was tuned without the held-out rows."""
    source = request.start.source
    is_control = request.config.protocol == "heldout" and not request.method.removes_heads
    if is_control and source is not None and files.find_run(source) is not None:
        raise ConfigError(
            f"{source}: is tuned without the rows held out, and method '{request.method.name}' has "
            "them from the start; give --model what it was tuned from"
        )


def _check_search(request: Request, encoder: Encoder, layers: list[int]) -> None:
    """Raise `ConfigError` for settings that the search cannot have."""
    config = request.config
    search, latency = config.search, config.reward.latency
    if not request.needs_fold_models:
        for name, default, found in (
            ("search.prior", "none", search.prior),
            ("search.heads", 0, search.heads),
        ):
            if found != default:
                raise ConfigError(
                    f"{name} must be {default} under protocol {config.protocol}, which tunes after "
                    f"each layer before the next is decided, found {found}; set protocol=crossfit"
                )
    most = most_to_remove(encoder, layers)
    if search.heads > most:
        raise ConfigError(
            f"search.heads must be from 0 to {most} (one head stays in each of the layers "
            f"searched), found {search.heads}"
        )
    request.method.check(config, {layer: len(encoder.present(layer)) for layer in layers})
    check_caution(get_metric(request.reward_metric), config.reward.caution)
    if latency and num_processes() > 1:
        raise ConfigError(
            f"reward.latency must be 0 in a group of {num_processes()} processes, each of which "
            f"measures another time, found {latency:g}; start one process, or give reward.head"
        )


def _check_fold_models(request: Request, *, has_origin: bool) -> None:
    """Raise `ConfigError` if settings and origin do not fit the use of fold models."""
    config, method = request.config, request.method
    if not request.needs_fold_models:
        if has_origin:
            raise ConfigError(
                f"an origin is for fold models, which method {method.name} under protocol "
                f"{config.protocol} does not use; leave it out, or choose a layer-wise method and "
                "protocol crossfit"
            )
        return
    if config.first.epochs == 0:
        raise ConfigError(
            "first.epochs must be at least 1 under protocol crossfit, which trains fold models, "
            "found 0; raise it"
        )
    if config.reward.shards > 1:
        raise ConfigError(
            "reward.shards must be 1 under protocol crossfit, where each fold model has its own "
            f"rows, found {config.reward.shards}; leave it, or choose --protocol seen"
        )
    if request.needs_first_tuning and has_origin:
        raise ConfigError(
            "an origin goes with a fine-tuned model, and this one is still to be tuned; leave it "
            "out"
        )
