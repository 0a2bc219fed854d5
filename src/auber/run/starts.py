"""What a run begins with: its model and tokenizer, and, where it makes scouts, what the model was before any row tuned it.

A fine-tuning run writes down what it was tuned from, so that a pruning of its model finds that origin again; for other fine-tuned
models the caller names it.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.config import Config
from auber.data.encoding import encode_split
from auber.data.task import TaskData
from auber.data.task_types import get_task_type
from auber.errors import AuberError, ConfigError, RunError, TaskError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.run import files as run_files
from auber.run.pipeline import Job
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_MAY_HAVE_SEEN = "careful: scouts are made of {}, whose classifier is trained; what it has seen of these rows is not unseen to them"
NO_TOKENIZER = (
    "a live model needs its tokenizer beside it; give tokenizer=AutoTokenizer.from_pretrained(...)"
)


@dataclass(frozen=True)
class Start:
    """The model a run begins with."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    tuned: bool  # its classifier is trained already
    source: str | None = None  # the folder or hub name it was read from; None: it was a live model
    result: dict[str, Any] | None = None  # of the run that the source is
    origin: PreTrainedModel | None = (
        None  # what it was before any row tuned it, where that is needed
    )
    classes: tuple[str, ...] | None = (
        None  # the names that its trained classifier had for its outputs
    )


def load_start(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    task: TaskData,
    config: Config,
    seed: int | None = None,
) -> Start:
    """What a caller names, checked to fit the task; a new classifier is drawn from the settings' seed or another."""
    if not isinstance(model, (str, Path)):
        if not hasattr(model, "config"):
            raise ConfigError(
                f"model: a folder, a hub name, a finished run or a live transformers model is needed, found {type(model).__name__}"
            )
        if tokenizer is None:
            raise ConfigError(NO_TOKENIZER)
        return _take_live(model, tokenizer, task)
    result = None
    place = source = str(model)
    if run_files.is_run(source):
        result = _read_result(source)
        _check_same_data(source, result, task, config)
        place = str(Path(source) / "model")
        run_files.check_digest(Path(place), result)
    elif (of_run := run_of(source)) is not None and of_run["data"] == task.content_hash:
        _check_held_out(source, of_run, config)
    loaded = checkpoint.load_classifier(
        place,
        num_labels=task.num_labels,
        label_names=task.label_names,
        is_regression=task.is_regression,
        kind=task.kind,
        seed=config.seed if seed is None else seed,
    )
    encoder_of(loaded.model)
    name = source
    if Path(model).exists():
        source = str(Path(model).resolve())
        name = Path(source).name if result is None else result["model"]
    return Start(
        loaded.model,
        tokenizer or loaded.tokenizer,
        name,
        loaded.is_trained,
        source,
        result,
        classes=loaded.classes,
    )


def check_fit(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: TaskData, name: str
) -> None:
    """Raise unless a live classifier is one for the task, with its labels in its order and a word for each of its tokens."""
    check_kind(model, task)
    names = None if task.label_names is None else list(task.label_names)
    checkpoint.check_labels(name, model.config, task.num_labels, names)
    checkpoint.check_vocabulary(name, model.config, tokenizer)


def _take_live(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: TaskData) -> Start:
    """A copy of a live model as a folder of it would be read: in float32, in which tunings add up, and with the task's labels."""
    name = type(model).__name__
    check_fit(model, tokenizer, task, f"the live {name}")
    taken = copy.deepcopy(model).float()
    classes = checkpoint.classes_of(model.config)
    checkpoint.name_outputs(
        taken, task.label_names, is_regression=task.is_regression, kind=task.kind
    )
    return Start(taken, tokenizer, name, tuned=True, classes=classes)


def warn_of_classes(name: str, classes: tuple[str, ...] | None, task: TaskData) -> None:
    """Say where a classifier has other names for its outputs than the task has: whether they mean the same nobody can know."""
    if classes is not None and task.label_names is not None and classes != task.label_names:
        logger.warning(
            "careful: %s: its classes are %s, the task's %s: they are taken for each other in this order",
            name, ", ".join(classes), ", ".join(task.label_names),
        )  # fmt: skip


def check_origin(job: Job, *, is_given: bool) -> None:
    """Raise `ConfigError` where the settings do not go with scouts, or with an origin that is given to make them of."""
    if not job.method.uses_fold_models(job.config.protocol):
        if is_given:
            raise ConfigError(
                f"an origin is for scouts, which method {job.method.name} under protocol {job.config.protocol} has none of; "
                "leave it out, or choose a layer-wise method and protocol crossfit"
            )
        return
    if job.config.first.epochs == 0:
        raise ConfigError(
            "first.epochs must be at least 1 under protocol crossfit, whose scouts it tunes, found 0; raise it"
        )
    if job.config.reward.shards > 1:
        raise ConfigError(
            f"reward.shards must be 1 under protocol crossfit, where each scout has its own rows, found {job.config.reward.shards}; "
            "leave it, or choose --protocol seen"
        )
    if job.first_tuning and is_given:
        raise ConfigError(
            "an origin goes with a fine-tuned model, and this one is still to be tuned; leave it out"
        )


def find_origin(
    origin: str | Path | PreTrainedModel | None, start: Start, job: Job, progress: Progress
) -> PreTrainedModel | None:
    """The model that no row has tuned yet, where a run makes scouts of it: the start itself, or what it came from."""
    check_origin(job, is_given=origin is not None)
    if not job.method.uses_fold_models(job.config.protocol):
        return None
    if job.first_tuning:
        _require_unseen(start.source, job.task, "give --model what it started from")
        if start.tuned and start.source is not None:
            progress.say(_MAY_HAVE_SEEN.format(start.source))
        return copy.deepcopy(start.model)
    if origin is None:
        return _remembered_origin(start, job, progress)
    named = str(origin) if isinstance(origin, (str, Path)) else None
    _require_unseen(named, job.task, "give --origin the model that it started from")
    loaded = load_start(origin, start.tokenizer, job.task, job.config)
    if loaded.tuned and named is not None:
        progress.say(_MAY_HAVE_SEEN.format(named))
    found = loaded.model
    if not _same_build(found, start.model):
        raise ConfigError(
            f"{origin if isinstance(origin, (str, Path)) else type(origin).__name__}: the origin must be built like the model "
            f"{start.name}, and have the same heads; give what the model was fine-tuned from"
        )
    if named is not None and start.source is not None and start.result is not None:
        _require_same_origin(named, loaded, start, job)
    return found


def _require_same_origin(named: str, loaded: Start, start: Start, job: Job) -> None:
    """Raise `ConfigError` where a fine-tuning run says that it was tuned from other weights than those of the origin.

    A live origin is not compared: its classifier was drawn by whoever made it.
    """
    assert start.source is not None
    assert start.result is not None
    recorded = (
        run_files.read_record(start.source).get("weights")
        if start.result["kind"] == "finetune"
        else None
    )
    if recorded is None:
        return
    if (
        start.result["seed"] != job.config.seed
    ):  # a new classifier is drawn from the seed: the start had that of its own
        loaded = load_start(named, start.tokenizer, job.task, job.config, seed=start.result["seed"])
    if checkpoint.weights_digest(loaded.model) != recorded:
        raise ConfigError(
            f"{named}: the origin must have the weights that {start.source} was tuned from, found others; give what it was tuned from, "
            "or choose --protocol seen"
        )


def run_of(folder: str | Path) -> dict[str, Any] | None:
    """The result of the run that a folder is, or whose model lies in it; None of any other."""
    run = run_files.find_run(folder)
    return None if run is None else _read_result(run)


def _read_result(run: str | Path) -> dict[str, Any]:
    """The result of a finished run, with all that a start is judged by."""
    result = run_files.read_result(run)
    read = run_files.RunFile(Path(run) / run_files.RESULT, result)
    for key in ("kind", "model", "task", "data", "protocol"):
        read.get(key, str)
    read.get("seed", int)
    return result


def warn_of_seen_rows(start: Start, config: Config, progress: Progress) -> None:
    """Say where nobody can know whether a model was tuned on the rows that the protocol holds out of its tuning."""
    if config.protocol == "heldout" and start.tuned and start.result is None:
        progress.say(
            f"careful: {start.name} is fine-tuned; rewards are of held-out rows only if it was not tuned on them, as an 'auber finetune' run "
            "with --protocol heldout is not"
        )


def check_lengths(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: TaskData,
    max_length: int,
    splits: Sequence[str],
) -> None:
    """Raise `ConfigError` where a row has more tokens than a model has positions for."""
    most = encoder_of(model).most_tokens
    if most is None or max_length <= most:
        return
    for split in splits:
        longest = max(encode_split(tokenizer, task, split, max_length).lengths)
        if longest > most:
            raise ConfigError(
                f"task {task.name}: a {split} row has {longest} tokens and {type(model).__name__} positions for {most}; set "
                f"max_length={most}"
            )


def check_kind(model: PreTrainedModel, task: TaskData) -> None:
    """Raise `TaskError` unless a model is of the kind that a task is for."""
    found, wanted = encoder_of(model).kind, get_task_type(task.kind)
    if found != wanted:
        raise TaskError(
            f"task {task.name}: is of kind {wanted.name} and needs a model ...{wanted.ending}, found {type(model).__name__}; "
            f"give a model of that kind ({wanted.auto_class})"
        )


def _require_unseen(folder: str | None, task: TaskData, remedy: str) -> None:
    """Raise `RunError` for a run of the same rows, or its model: it has seen them, and scouts must not."""
    run = None if folder is None else run_of(folder)
    if run is not None and run["data"] == task.content_hash:
        raise RunError(
            f"{folder}: is of a run, whose model has seen rows that scouts must not; {remedy}"
        )


def _remembered_origin(start: Start, job: Job, progress: Progress) -> PreTrainedModel:
    """What a start that is a fine-tuning run was tuned from, as far as it lies where it was and is what it was."""
    if encoder_of(start.model).removed:
        raise ConfigError(
            f"{start.source or start.name}: has lost heads already, and scouts are made of a model with the same heads that has not seen the "
            "rows; choose --protocol seen"
        )
    if start.source is None or start.result is None or start.result["kind"] != "finetune":
        raise ConfigError(
            f"{start.name}: is fine-tuned, and scouts must not have seen all rows: name what it was before with --origin, give the "
            "pretrained model itself as --model, or choose --protocol seen"
        )
    source = run_files.read_source(start.source)
    if source is None:
        raise ConfigError(
            f"{start.source}: does not say what it was tuned from, and scouts are made of that: name it with --origin, or choose "
            "--protocol seen"
        )
    try:
        found = load_start(source, start.tokenizer, job.task, job.config, seed=start.result["seed"])
    except (AuberError, OSError) as error:
        raise ConfigError(
            f"{start.source}: was tuned from {source}, of which scouts are made and which cannot be read ({error}); name it with --origin, or "
            "choose --protocol seen"
        ) from error
    if checkpoint.weights_digest(found.model) != run_files.read_record(start.source).get("weights"):
        raise ConfigError(
            f"{start.source}: was tuned from {source}, of which scouts are made and which holds other weights now; name what it was with "
            "--origin, or choose --protocol seen"
        )
    if found.tuned:
        raise ConfigError(
            f"{start.source}: was tuned from {source}, which was fine-tuned itself and may have seen rows that scouts must not: name what "
            "that was before with --origin, or choose --protocol seen"
        )
    progress.say(f"scouts are made of {source}, which {start.source} was tuned from")
    return found.model


def _same_build(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    """Whether all tensors of two models have the same names and shapes, and belong to the same heads."""
    builds = [
        (
            {name: tensor.shape for name, tensor in model.state_dict().items()},
            encoder_of(model).removed,
        )
        for model in (one, other)
    ]
    return builds[0] == builds[1]


def _check_same_data(source: str, result: dict[str, Any], task: TaskData, config: Config) -> None:
    """A start from a run must not have been tuned on rows that this run holds out."""
    if result["data"] != task.content_hash:
        raise RunError(
            f"{source}: was made with other rows (task {result['task']}) than this run has (task {task.name}); "
            "start from a run made with the same, or from the pretrained model"
        )
    _check_held_out(source, result, config)


def _check_held_out(source: str, result: dict[str, Any], config: Config) -> None:
    if "heldout" not in (result["protocol"], config.protocol):
        return  # then all rows tune a start
    for key, wanted in {
        "protocol": config.protocol,
        "seed": config.seed,
        "kind": "finetune",
    }.items():
        if result[key] != wanted:
            raise RunError(
                f"{source}: was made with {key} {result[key]!r}, this run has {wanted!r}; "
                "start from a run made with the same, or from the pretrained model"
            )
