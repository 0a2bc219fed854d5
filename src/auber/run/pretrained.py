"""The pretrained model behind a fine-tuned one, from which fold models are trained.

It must have seen no row of the task (protocol crossfit). A run of `auber finetune` records what it
was tuned from; for other fine-tuned models the caller names it (`origin`).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

from auber.data.task import TaskData
from auber.errors import AuberError, ConfigError, RunError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.run import files
from auber.run.fine_tuned import FineTuned, load_fine_tuned
from auber.run.request import Request
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def find_pretrained(
    origin: str | Path | PreTrainedModel | None, request: Request, progress: Progress
) -> PreTrainedModel:
    """Return the model that fold models are trained from.

    That is the start itself if it is still to be tuned, otherwise the origin that the caller names,
    or the model that the start's run recorded.
    """
    start, task = request.start, request.task
    if request.needs_first_tuning:
        _check_unseen(start.source, task, "give --model what it started from")
        if start.has_classifier and start.source is not None:
            _warn_of_trained_classifier(start.source, progress)
        return copy.deepcopy(start.model)
    if origin is None:
        return _load_recorded(request, progress)
    place = str(origin) if isinstance(origin, (str, Path)) else None
    if place is not None:
        _check_unseen(place, task, "give --origin the model that it started from")
    loaded = load_fine_tuned(origin, start.tokenizer, task, request.config)
    if loaded.has_classifier and place is not None:
        _warn_of_trained_classifier(place, progress)
    if _describe_build(loaded.model) != _describe_build(start.model):
        raise ConfigError(
            f"{place or loaded.name}: the origin must be built like the model {start.name}, and "
            "have the same heads; give what the model was fine-tuned from"
        )
    if place is not None:  # the classifier of a live one was drawn by the caller
        _check_recorded_weights(place, loaded, request)
    return loaded.model


def _check_unseen(folder: str | None, task: TaskData, remedy: str) -> None:
    """Raise `RunError` for the model of a run on the same rows."""
    run = None if folder is None else files.find_run(folder)
    if run is not None and files.read_result_record(run).data == task.content_hash:
        raise RunError(
            f"{folder}: is of a run, whose model has seen rows that fold models must not see; "
            f"{remedy}"
        )


def _warn_of_trained_classifier(place: str, progress: Progress) -> None:
    progress.say(
        f"warning: fold models are trained from {place}, whose classifier is trained already; if "
        "it was trained on these rows, the rewards are too optimistic"
    )


def _load_recorded(request: Request, progress: Progress) -> PreTrainedModel:
    """Load what the start was tuned from, as its run recorded it."""
    start, task, config = request.start, request.task, request.config
    if encoder_of(start.model).removed:
        raise ConfigError(
            f"{start.place}: has lost heads already, and fold models are trained from a model with "
            "the same heads that has not seen the rows; choose --protocol seen"
        )
    if start.finetuning is None:
        progress.say(
            f"warning: {start.name} is fine-tuned and may have seen the rows that rewards come "
            "from, so rewards may be too optimistic; origin names the model behind it, if known"
        )
        return copy.deepcopy(start.model)
    source = files.read_source(start.place)
    if source is None:
        raise ConfigError(
            f"{start.place}: does not record what it was tuned from, which fold models are "
            "trained from: name it with --origin, or choose --protocol seen"
        )
    where = f"{start.place}: was tuned from {source}, which fold models are trained from and which"
    try:
        found = load_fine_tuned(source, start.tokenizer, task, config, seed=start.finetuning.seed)
    except (AuberError, OSError) as error:
        raise ConfigError(
            f"{where} cannot be read ({error}); name it with --origin, or choose --protocol seen"
        ) from error
    if checkpoint.weights_digest(found.model) != files.read_identity(start.place).weights:
        raise ConfigError(
            f"{where} has other weights now; name the earlier ones with --origin, or choose "
            "--protocol seen"
        )
    if found.has_classifier:
        raise ConfigError(
            f"{where} was fine-tuned itself, so that it may have seen these rows: name the "
            "pretrained model with --origin, or choose --protocol seen"
        )
    progress.say(f"fold models are trained from {source}, which {start.place} was tuned from")
    return found.model


def _check_recorded_weights(place: str, loaded: FineTuned, request: Request) -> None:
    """Raise `ConfigError` if the start's run recorded that it was tuned from other weights."""
    start, task, config = request.start, request.task, request.config
    if start.finetuning is None:
        return
    recorded = files.read_identity(start.place).weights
    if recorded is None:
        return
    if start.finetuning.seed != config.seed:  # its classifier was drawn from that seed
        loaded = load_fine_tuned(place, start.tokenizer, task, config, seed=start.finetuning.seed)
    if checkpoint.weights_digest(loaded.model) != recorded:
        raise ConfigError(
            f"{place}: the origin must have the weights that {start.place} was tuned from, found "
            "others; give what it was tuned from, or choose --protocol seen"
        )


def _describe_build(model: PreTrainedModel) -> tuple[object, object]:
    """Return the names and shapes of a model's tensors, and which heads they belong to."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    return shapes, encoder_of(model).removed
