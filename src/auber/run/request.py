"""The request: what one run is to do, validated before anything is computed.

`request_pruning` and `request_finetuning` turn the arguments of `auber.prune` and `auber.finetune`
into a `Request`, which the pipeline carries out. Everything that can be wrong with a run is raised
here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from auber.config import Config
from auber.data.splits import make_splits
from auber.data.task import TaskData
from auber.errors import ConfigError, RunError
from auber.metrics.task_metrics import get_metric, smooth_metric
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.run import files, provenance
from auber.run.fine_tuned import (
    FineTuned,
    check_lengths,
    find_pretrained,
    load_fine_tuned,
    warn_of_classes,
)
from auber.run.records import ResultRecord, RunIdentity
from auber.scoring import check_caution
from auber.search.methods import Method
from auber.search.rankings.selection import check_size
from auber.search.registry import METHODS, get_method
from auber.system.distributed import num_processes
from auber.system.progress import Progress
from auber.training.devices import Hardware, resolve_hardware

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


_STEP = math.sqrt(0.5)  # what a step on the way to a size leaves
_HALF = 0.5  # the size if none is given
TRIED_SIZES = (0.75, 0.5, 0.35, 0.25, 0.18, 0.125)  # for a tolerance
_USUAL_RATE = 2e-5  # for later tunings of a model that was fine-tuned elsewhere
_DISTILLATION_RATE = 1e-4  # for those that learn from the unpruned model alone


@dataclass(frozen=True)
class Request:
    """What a run is to do."""

    kind: Literal["prune", "finetune"]
    task: TaskData
    start: FineTuned
    config: Config  # with the settings of the method
    hardware: Hardware
    method: Method
    needs_first_tuning: bool
    num_removed: int | None = None  # heads that a ranking removes; None: to the target size
    matched: ResultRecord | None = None  # result of the run that this one is compared with
    pretrained: PreTrainedModel | None = None  # what fold models are trained from
    command: str | None = None  # the command line
    # Of a task without labels, once the unpruned model has answered: its outputs by split, packed.
    answers: Mapping[str, Tensor] | None = None

    @property
    def reward_metric(self) -> str:
        """The name of the metric whose changes are the rewards."""
        is_smooth = self.config.reward.measure == "smooth"
        return smooth_metric(self.task.metric) if is_smooth else self.task.metric

    @property
    def needs_fold_models(self) -> bool:
        """Whether the rewards come from fold models."""
        return self.method.uses_fold_models(self.config.protocol)

    @property
    def tuned_layers(self) -> tuple[int, ...] | None:
        """The layers to tune after; None: those that the method decides one by one.

        The matched run prescribes them. A target size is reached at once, so that there are none.
        """
        if self.matched is not None:
            return self.matched.tuned_layers
        return () if self.config.size.keep else None

    @property
    def sizes(self) -> tuple[float, ...]:
        """The shares to keep if the run makes a model of each, the largest first; else none.

        With a tolerance the first is 1, the unpruned model that the others are compared with.
        """
        size = self.config.size
        if not self.method.removes_heads:
            return ()
        if size.tolerance is not None:
            return (1.0, *(share for share in size.shares if share < 1))
        is_plain = len(size.shares) < 2 and not size.step_epochs and not size.repair
        return () if is_plain else size.shares

    @property
    def steps(self) -> tuple[float, ...]:
        """The shares on the way to the sizes, the largest first; none if all goes at once."""
        return tuple(sorted({each for share in self.sizes for each in self.steps_to(share)}))[::-1]

    def steps_to(self, share: float) -> tuple[float, ...]:
        """Return the shares on the way to a size, the largest first."""
        if not self.config.size.step_epochs:
            return ()
        # The last step removes no less than half of what the others do.
        number = max(0, math.floor(math.log(share) / math.log(_STEP) - 0.5))
        return tuple(round(_STEP**step, 3) for step in range(1, number + 1))

    @property
    def needs_rate(self) -> bool:
        """Whether a learning rate has to be chosen for tunings whose setting is `auto`."""
        config = self.config
        later = "auto" in (config.layer.learning_rate, config.last.learning_rate)
        tunes_later = later and self.kind == "prune" and self.method.tunes
        is_used = self.needs_first_tuning or self.needs_fold_models or tunes_later
        return config.first.learning_rate == "auto" and is_used

    @property
    def known_rate(self) -> tuple[float, str] | None:
        """The learning rate if it needs no trials, and the reason.

        Trials need a model that has not seen the rows: the pretrained one.
        """
        if self.task.is_answered and self.matched is None:
            return _DISTILLATION_RATE, "the usual one for learning from the unpruned model"
        for result, place in ((self.matched, "the matched run"), (self.start.result, "this model")):
            if result is not None:
                rate = result.learning_rate or result.config.get("first.learning_rate")
                if isinstance(rate, (int, float)):
                    return rate, f"{place} was tuned with it (first.learning_rate)"
        if self.needs_first_tuning or self.pretrained is not None:
            return None
        return _USUAL_RATE, (
            "the usual one, because the model has been fine-tuned elsewhere, and no rows of train "
            "are left to choose it on; set last.learning_rate to change it"
        )

    @property
    def layers(self) -> list[int]:
        """The layers in the order of the search; raise `ConfigError` for missing ones.

        A ranking method chooses among all layers, others go through those of `search.layers`.
        """
        search, num_layers = self.config.search, encoder_of(self.start.model).num_layers
        is_ranking = self.method.choose_layer is None and self.method.removes_heads
        layers = list(range(num_layers)) if is_ranking else search.layers_of(num_layers)
        return layers if search.order == "forward" else layers[::-1]

    def identify(self) -> RunIdentity:
        """Return what a run must have in common with this request to be resumed by it."""
        return RunIdentity(
            kind=self.kind,
            model=self.start.name,
            weights=weights_digest(self.start.model),
            origin=None if self.pretrained is None else weights_digest(self.pretrained),
            task=self.task.name,
            metric=self.task.metric,
            data=self.task.content_hash,
            method=self.method.name,
            heads=self.num_removed,
            tuned_layers=self.tuned_layers,
            device_type=self.hardware.device.type,
            computed_in=self.hardware.precision,
            computed_on_threads=self.hardware.threads,
            # Each process takes a part of every batch, which changes the last bits of sums.
            processes=num_processes(),
            versions=provenance.versions(),
            source=self.start.source,
        )


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
    config, number, run = _assign_heads(method, config, heads)
    matched = None if run is None else _read_matched(run, task, config)
    if matched is not None and method.removes_heads:
        config = _match_size(method, config, matched)
    start = load_fine_tuned(model, tokenizer, task, config)
    warn_of_classes(start.name, start.classes, task)
    request = _make_request(start, task, method, config, number, matched)
    if heads is None and config.size.keep and not has_size:
        progress.say(f"no size was given, so half of the multiply-adds are kept (--keep {_HALF})")
    _check_fold_models(request, has_origin=origin is not None)
    if task.is_answered:
        return _request_answers(request, has_origin=origin is not None)
    if request.needs_fold_models:
        is_tuned = not request.needs_first_tuning
        found = find_pretrained(origin, start, task, config, progress, is_tuned=is_tuned)
        request = replace(request, pretrained=found)
    is_elsewhere = start.source is not None and start.result is None
    if is_elsewhere and not request.needs_first_tuning:
        progress.say(
            f"{start.name} is fine-tuned already and used as it is: if it has seen the dev rows, "
            "all dev scores are too high (first.when=always tunes it on train first)"
        )
    if config.size.tolerance is not None and not _is_new(request):
        progress.say(
            f"warning: {start.name} is fine-tuned already and may have seen the rows held out for "
            "--tolerance, so the loss on new rows may be larger; for unseen rows, tune it with "
            f"'auber finetune --set size.tolerance={config.size.tolerance:g}'"
        )
    if config.protocol == "heldout" and start.has_classifier and start.result is None:
        progress.say(
            f"warning: {start.name} is fine-tuned; rewards come from held-out rows only if it was "
            "not tuned on them, as an 'auber finetune' run with --protocol heldout is not"
        )
    return request


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


def check_keep(keep: float | str | Sequence[float]) -> str:
    """Return the shares to keep as the setting has them; `keep` is one, or several."""
    shares: Sequence[Any] = [keep]
    if isinstance(keep, (str, list, tuple)):
        shares = keep.split(",") if isinstance(keep, str) else keep
    if not shares or not all(map(_is_share, shares)):
        raise ConfigError(
            "--keep must be a share of the encoder's multiply-adds, above 0 and at most 1, found "
            f"{keep!r:.40}; give one such as 0.5"
        )
    return ",".join(f"{float(share)!r}" for share in shares)


def _is_share(value: object) -> bool:
    try:
        return not isinstance(value, bool) and 0 < float(value) <= 1  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


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
    config, number, _ = _assign_heads(chosen, config, heads)
    start = FineTuned(model, tokenizer, type(model).__name__, has_classifier)
    request = _make_request(start, task, chosen, config, number, None)
    has_origin = request.needs_fold_models and not request.needs_first_tuning
    _check_fold_models(request, has_origin=has_origin)
    return request


def most_to_remove(encoder: Encoder, layers: Iterable[int]) -> int:
    """Return how many heads these layers can lose: one stays in each."""
    return sum(max(0, len(encoder.present(layer)) - 1) for layer in layers)


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
        config = config.replace({"size.keep": _list_sizes(encoder, config)})
    when = config.first.when
    request = Request(
        "prune",
        task,
        start,
        config,
        resolve_hardware(config),
        method,
        needs_first_tuning=when == "always" or (when == "auto" and not start.has_classifier),
        num_removed=_count_removed(method, config, heads, matched, encoder),
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


# What to remove


def _assign_heads(
    method: Method, config: Config, heads: int | str | Path | None
) -> tuple[Config, int | None, Path | None]:
    """Return the settings of the method, the number of heads and the run to match.

    Under crossfit, the number of heads for a search is a setting.
    """
    config = config.replace(method.settings)
    if config.size.keep or config.size.tolerance is not None:
        _check_target(method, config, heads)
        return config, None, None
    run = Path(heads) if isinstance(heads, (str, Path)) else None
    number = None if isinstance(heads, (str, Path)) else heads
    if number is not None and type(number) is not int:
        raise ConfigError(f"--heads must be a whole number, found {heads!r:.40}")
    if number is not None and number < 0:
        raise ConfigError(f"--heads must be 0 or more, found {number}")
    can_search_number = method.uses_fold_models(config.protocol)
    if method.decides_number and run is not None:
        remedy = "give --heads" if can_search_number else "set protocol=crossfit and give --heads"
        raise ConfigError(
            "--heads-from is for methods that take the number of heads to remove, and "
            f"'{method.name}' decides it; leave it out, or {remedy}"
        )
    if number is not None and can_search_number:
        if number == 0:
            raise ConfigError(
                "--heads must be at least 1 for a search, found 0; leave it out, and the rewards "
                "decide"
            )
        return config.replace({"search.heads": number}), None, None
    if number is not None and method.decides_number:
        raise ConfigError(
            f"method '{method.name}' decides itself how many heads to remove; leave out --heads, "
            "or set protocol=crossfit"
        )
    if number is not None and not method.removes_heads:
        raise ConfigError(f"method '{method.name}' removes no heads; leave out --heads")
    if heads is None and method.removes_neurons:
        return config.replace({"size.keep": _HALF}), None, None
    if heads is None and method.removes_heads and not method.decides_number:
        raise ConfigError(
            f"method '{method.name}' must be given what to remove; give --keep SHARE, --heads P or "
            "--heads-from RUN"
        )
    return config, number, run


def _check_target(method: Method, config: Config, heads: int | str | Path | None) -> None:
    """Raise `ConfigError` unless the method can prune to a target size."""
    size = config.size
    option = "--keep" if size.keep else "--tolerance"
    if heads is not None:
        value = ",".join(f"{share:g}" for share in size.shares) or f"{size.tolerance:g}"
        raise ConfigError(
            f"{option} {value} and a number of heads exclude each other; give {option}, --heads "
            "or --heads-from alone"
        )
    if method.decides_number:
        able = ", ".join(each.name for each in METHODS.values() if each.removes_neurons)
        raise ConfigError(
            f"method '{method.name}' decides by its rewards how many heads go; leave out {option}, "
            f"or choose --method {able}"
        )
    if not method.removes_heads:
        raise ConfigError(f"method '{method.name}' removes nothing; leave out {option}")
    if not method.removes_neurons and (size.even or size.units != "heads"):
        raise ConfigError(
            f"method '{method.name}' ranks heads only; add --units heads, or choose another method"
        )


def _match_size(method: Method, config: Config, matched: ResultRecord) -> Config:
    """Return the settings with the target size of the run to match, if it had one."""
    size = {key: value for key, value in matched.config.items() if key.startswith("size.")}
    if not size.get("size.keep"):
        return config
    config = config.replace(size)
    _check_target(method, config, None)
    return config


def _count_removed(
    method: Method,
    config: Config,
    heads: int | None,
    matched: ResultRecord | None,
    encoder: Encoder,
) -> int | None:
    if method.decides_number or not method.removes_heads:
        return None
    if config.size.keep:
        return None
    number = heads if matched is None else matched.heads.removed - encoder.removed.num_heads
    assert number is not None, "_assign_heads requires a number for ranking methods"
    most = most_to_remove(encoder, range(encoder.num_layers))
    if not 0 <= number <= most:
        raise ConfigError(
            f"--heads must be from 0 to {most} (one head stays in each layer), found {number}"
        )
    return number


def _read_matched(run: Path, task: TaskData, config: Config) -> ResultRecord:
    """Return the result of the run to match, checked to be comparable."""
    result = files.read_result_record(run)
    if result.data != task.content_hash:
        other = "other rows of its task"
        if result.task != task.name:
            other = f"other rows (task {result.task}) than this run (task {task.name})"
        raise RunError(f"{run}: has {other}; a run can be matched only with the same")
    found, wanted = (result.protocol, result.seed), (config.protocol, config.seed)
    if found != wanted:
        raise RunError(
            f"{run}: has (protocol, seed) {found}, this run {wanted}; a run can be matched only "
            "with the same"
        )
    ours, theirs = config.flat(), result.config
    for key in ours:
        tunes = key.startswith(("layer.", "last.")) or key in ("reward.fraction", "max_length")
        if tunes and theirs.get(key, ours[key]) != ours[key]:
            raise RunError(
                f"{run}: has {key} = {theirs[key]!r}, this run {ours[key]!r}; a run is compared "
                f"only with the same tuning: give --set {key}={theirs[key]}"
            )
    return result


def _list_sizes(encoder: Encoder, config: Config) -> str:
    """Return the sizes to try for a tolerance: those of `TRIED_SIZES` that the encoder can have."""
    possible = []
    for share in TRIED_SIZES:
        try:
            check_size(encoder, config.size.model_copy(update={"keep": share}), config.max_length)
        except ConfigError as error:
            reason = error
        else:
            possible.append(f"{share:g}")
    if not possible:
        raise ConfigError(f"--tolerance: none of the sizes {TRIED_SIZES} can be had ({reason})")
    return ",".join(possible)


def _is_new(request: Request) -> bool:
    """Return whether the start has not seen the rows that are held out for a tolerance."""
    start, config = request.start, request.config.flat()
    if request.needs_first_tuning:
        return not start.has_classifier
    if start.result is None or start.result.kind != "finetune":
        return False
    keys = ("size.tolerance", "seed", "protocol")
    return all(start.result.config.get(key) == config[key] for key in keys)


# What the method and the protocol allow


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
