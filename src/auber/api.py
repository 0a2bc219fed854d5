"""The entry points: `prune`, `finetune` and `evaluate`.

Each takes a model (a folder, a hub name, a finished run or a live transformers model), a task and
settings. What can be wrong is checked by `auber.run.validation` before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.config import Config, make_config
from auber.data import load_task
from auber.data.encoding import encode_split
from auber.data.task import TaskData
from auber.data.texts import Texts
from auber.errors import ConfigError, unknown_name
from auber.models import checkpoint
from auber.run.answers import describe_task
from auber.run.files import read_row_settings
from auber.run.fine_tuned import NO_TOKENIZER, check_fit, check_lengths, warn_of_classes
from auber.run.pipeline import Pruned, carry_out
from auber.run.resuming import Resume, check_place
from auber.run.targets import check_keep
from auber.run.trackers import check_trackers
from auber.run.validation import request_finetuning, request_pruning
from auber.search.methods import Method
from auber.search.own import Player, make_method
from auber.search.registry import default_method, get_method
from auber.system.distributed import is_main_process, num_processes
from auber.system.progress import LogProgress, Progress
from auber.training.devices import resolve_hardware
from auber.training.evaluation import Scores, evaluate_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["Pruned", "evaluate", "finetune", "prune"]

# What follows a run: listeners, and names of experiment trackers.
Listeners = Progress | str | Sequence[Progress | str] | None


def prune(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    task: str | TaskData | Texts,
    method: str | None = None,
    player: Player | None = None,
    heads: int | str | Path | None = None,
    keep: float | str | Sequence[float] | None = None,
    origin: str | Path | PreTrainedModel | None = None,
    config: Config | str = "default",
    out: str | Path | None = None,
    resume: Resume = False,
    progress: Listeners = None,
) -> Pruned:
    """Prune an encoder for a task and fine-tune what is left.

    Args:
        model: A folder, hub name, finished run, or a live model, which is not changed.
        tokenizer: The tokenizer of a live model.
        task: The name of a known task, rows as `auber.make_task` returns them, or texts without
            labels as `auber.make_texts` returns them: the answers of `model` are their labels.
        method: One of the methods that `auber list methods` shows. By default that of the preset:
            `auber` for `paper` and `reference`; for `default` it is `fisher`, or `auber` if
            `heads`, `origin` or a setting of its search is given.
        player: A player of your own, in place of a method; see `auber.search.own`.
        heads: How many heads a ranking removes; or a finished run, to remove as many and be tuned
            like it. Under protocol crossfit a search takes a number too.
        keep: The share of the encoder's multiply-adds that a ranking leaves, such as 0.5 (the
            default), or several, each of which gives a model in `out`/models. Heads and neurons go;
            the settings `size.units` and `size.even` change that. With `size.tolerance`, the
            smallest size is chosen that loses at most that many points.
        origin: The pretrained model behind a fine-tuned `model`, for protocol crossfit. A run of
            `finetune` knows it.
        config: The name of a preset, or the settings that `auber.make_config` returns.
        out: The folder of the run; without it, a temporary one is used.
        resume: Continue the run in `out`; "upgrade" allows other versions of auber, torch and
            transformers.
        progress: Who is told how far the run is: a `Progress`, the name of an experiment tracker
            such as "tensorboard", whose files go into `out`, or a list of these. Without a
            `Progress` it is logged at level INFO, which `logging.basicConfig(level="INFO")` shows.
    """
    listener, trackers = _split_listeners(progress)
    _check_folder(out, resume, trackers)
    task = describe_task(task, model) if isinstance(task, Texts) else task
    task, settings = _load_task(task, config)
    if keep is not None:
        settings = settings.replace({"size.keep": check_keep(keep)})
    chosen, reason = _choose_method(method, player, settings, heads, origin)
    if reason is not None:
        listener.say(reason)
    request = request_pruning(
        model,
        tokenizer,
        task=task,
        method=chosen,
        heads=heads,
        origin=origin,
        config=settings,
        progress=listener,
    )
    if len(request.sizes) > 1 and out is None:
        raise ConfigError("out: several sizes need a folder, found none; give out='runs/mine'")
    return carry_out(request, out, resume=resume, progress=listener, trackers=trackers)


def finetune(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    task: str | TaskData,
    config: Config | str = "default",
    out: str | Path | None = None,
    resume: Resume = False,
    progress: Listeners = None,
) -> Pruned:
    """Fine-tune a pretrained encoder, as a start for several prunings; see `prune`."""
    listener, trackers = _split_listeners(progress)
    _check_folder(out, resume, trackers)
    task, settings = _load_task(task, config)
    request = request_finetuning(model, tokenizer, task=task, config=settings)
    return carry_out(request, out, resume=resume, progress=listener, trackers=trackers)


def evaluate(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    task: str | TaskData,
    split: str = "dev",
    config: Config | str = "default",
) -> Scores:
    """Return the scores of a fine-tuned model on a task's `dev` or `train` rows.

    Rows are truncated as those of the model's run were, unless `config` is a whole configuration.
    """
    if split not in ("dev", "train"):
        raise ConfigError(unknown_name("split", split, ("dev", "train")))
    task = task if isinstance(task, TaskData) else load_task(task)
    if isinstance(config, str) and isinstance(model, (str, Path)):
        config = make_config(config, task=task.name, otherwise=read_row_settings(model))
    task, settings = _load_task(task, config)
    hardware = resolve_hardware(settings)
    if isinstance(model, (str, Path)):
        name = str(model)
        tokenizer = tokenizer or checkpoint.load_tokenizer(model)
        model = checkpoint.load(model, device=hardware.device)
    elif tokenizer is None:
        raise ConfigError(NO_TOKENIZER)
    else:
        name = f"the live {type(model).__name__}"
    check_fit(model, tokenizer, task, name)
    warn_of_classes(name, checkpoint.classes_of(model.config), task)
    check_lengths(model, tokenizer, task, settings.max_length, (split,))
    rows = encode_split(tokenizer, task, split, settings.max_length)
    return evaluate_rows(model, rows, task.metric)


def _choose_method(
    method: str | None, player: Player | None, config: Config, heads: Any, origin: Any
) -> tuple[Method, str | None]:
    """Return the method, and the reason if it is neither named nor that of the preset."""
    if method is not None and player is not None:
        raise ConfigError(
            f"player: takes the place of a method, found method={method!r:.40}; leave one out"
        )
    if player is not None:
        return make_method(player), None
    if method is not None:
        return get_method(method), None
    given = {"heads": heads, "origin": origin}
    return default_method(config, next((k for k, v in given.items() if v is not None), None))


def _split_listeners(progress: Listeners) -> tuple[Progress, tuple[str, ...]]:
    """Return the listener, by default the log of the main process, and the trackers."""
    given: Sequence[Progress | str | None] = (
        [progress] if progress is None or isinstance(progress, (Progress, str)) else progress
    )
    trackers = check_trackers([each for each in given if isinstance(each, str)])
    others = [each for each in given if each is not None and not isinstance(each, str)]
    if not others:
        return LogProgress() if is_main_process() else Progress(), trackers
    return others[0] if len(others) == 1 else Progress(*others), trackers


def _check_folder(out: str | Path | None, resume: Resume, trackers: Sequence[str]) -> None:
    """Raise what is wrong with the folder before the model is read."""
    if resume not in (False, True, "upgrade"):
        raise ConfigError(f"resume: must be True, False or 'upgrade', found {resume!r}")
    if resume and out is None:
        raise ConfigError("resume: continues the run in a folder, found none; give out='runs/mine'")
    if out is None and num_processes() > 1:
        raise ConfigError(
            f"out: a group of {num_processes()} processes shares the run's folder, found none; "
            "give out='runs/mine'"
        )
    if out is not None and num_processes() == 1:  # in a group another may have created it by now
        check_place(Path(out), resume=bool(resume))
    if trackers and out is None:
        raise ConfigError(
            f"tracker {trackers[0]}: its files go into the run's folder, found none; give "
            "out='runs/mine'"
        )


def _load_task(task: str | TaskData, config: Config | str) -> tuple[TaskData, Config]:
    """Return the task and its settings."""
    task = task if isinstance(task, TaskData) else load_task(task)
    if isinstance(config, Config):
        return task, config
    if not isinstance(config, str):
        raise ConfigError(
            f"config: must be a preset's name or a Config, found {type(config).__name__}; pass "
            "single settings as auber.make_config(settings={...})"
        )
    return task, make_config(config, task=task.name, without_labels=task.is_answered)
