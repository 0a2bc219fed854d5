"""`AuberCallback`: prune at the end of your own `transformers.Trainer` script.

    callback = AuberCallback(task=task, out="runs/mine")
    trainer = Trainer(..., processing_class=tokenizer, callbacks=[callback])

When training ends, the fine-tuned model is pruned as `auber.prune` does it, and the trainer's own
model becomes the result: it loses the same units in place and takes over the weights. So
`trainer.evaluate`, `save_model` and a push use the pruned model. What can be wrong is raised before
training starts.

The Trainer keeps only tokens, so the rows come as a task: those the model is trained on, and dev
rows. A task of any type needs a model of that type.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from auber.api import Pruned, prune
from auber.config import Config, make_config
from auber.data import load_task
from auber.data.task import TaskData
from auber.data.texts import Texts
from auber.errors import ConfigError, RunError, naming_arguments
from auber.models.remote_code import adopt, needs_code
from auber.models.surgery import remove_remaining
from auber.run.answers import describe_task
from auber.run.files import is_run
from auber.run.fine_tuned import check_fit
from auber.run.resuming import check_place
from auber.run.targets import check_keep
from auber.run.validation import check_pruning
from auber.search.registry import default_method, get_method
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import (
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )


class AuberCallback(TrainerCallback):  # type: ignore[misc]
    """Prune what a Trainer has trained; the arguments are those of `auber.prune`.

    Afterwards `pruned` holds what `auber.prune` returns. Its model has the weights of the trainer's
    model, but is another object.
    """

    @naming_arguments
    def __init__(
        self,
        *,
        task: str | TaskData | Texts,
        method: str | None = None,
        heads: int | None = None,
        keep: float | Sequence[float] | None = None,
        config: Config | str = "default",
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.task = load_task(task) if isinstance(task, str) else task
        if not isinstance(config, Config):
            is_texts = isinstance(self.task, Texts)
            config = make_config(config, task=self.task.name, without_labels=is_texts)
        if keep is not None:
            config = config.replace({"size.keep": check_keep(keep)})
        given = None if heads is None else "heads"
        chosen = default_method(config, given)[0] if method is None else get_method(method)
        self._options: dict[str, Any] = {
            "task": self.task,
            "method": chosen.name,
            "heads": heads,
            "config": config,
        }
        if out is None and (config.size.tolerance or len(config.size.shares) > 1):
            raise ConfigError(
                "AuberCallback: several sizes need a folder, found none; give out='runs/mine'"
            )
        self.out = out
        self.progress = progress
        self.pruned: Pruned | None = None
        # The model before training, if fold models are trained from it.
        self._origin: PreTrainedModel | None = None
        if config.protocol == "heldout":
            raise ConfigError(
                "AuberCallback: protocol must be seen or crossfit, found heldout: the trainer has "
                "tuned on the rows to hold out; leave the setting, or run auber.prune on the "
                "pretrained encoder"
            )

    @naming_arguments
    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: PreTrainedModel,
        processing_class: PreTrainedTokenizerBase | None = None,
        **_rest: Any,
    ) -> None:
        """Raise what is wrong with the pruning before the model is trained."""
        if processing_class is None:
            raise ConfigError(
                "AuberCallback: needs the tokenizer; give Trainer(processing_class=tokenizer)"
            )
        if args.world_size > 1:
            raise ConfigError(
                f"AuberCallback: the trainer must run in one process, found {args.world_size}; "
                "save the model and prune it with auber.prune"
            )
        task = describe_task(self.task, model) if isinstance(self.task, Texts) else self.task
        check_fit(model, processing_class, task, f"the trainer's {type(model).__name__}")
        request = check_pruning(model, processing_class, **{**self._options, "task": task})
        if request.needs_first_tuning:
            raise ConfigError(
                "first.when must be auto or never for a model that is trained already, found "
                f"{request.config.first.when}"
            )
        if self.out is not None:
            if is_run(self.out):
                raise RunError(
                    f"{self.out}: holds a run already; give AuberCallback another folder (out)"
                )
            check_place(Path(self.out), resume=False)
        if request.needs_fold_models and not task.is_answered:
            if state.global_step:
                raise ConfigError(
                    f"AuberCallback: training resumes after step {state.global_step}, and fold "
                    "models are trained from the model before the first step; give "
                    'config=auber.make_config(settings={"protocol": "seen"}), or run auber.prune '
                    "on the trained model with its origin"
                )
            with _plain_forward(model):
                self._origin = copy.deepcopy(model).to("cpu")

    @naming_arguments
    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: PreTrainedModel,
        processing_class: PreTrainedTokenizerBase,
        **_rest: Any,
    ) -> None:
        """Prune, and make the trainer's model the result."""
        with _plain_forward(model):
            self.pruned = prune(
                model,
                processing_class,
                **self._options,
                origin=self._origin,
                out=self.out,
                progress=self.progress,
            )
        self._origin = None
        _become(model, self.pruned)


@contextmanager
def _plain_forward(model: PreTrainedModel) -> Iterator[None]:
    """Inside the context, undo the wrapper of `forward` by which accelerate mixes precisions."""
    wrapped = {
        name: vars(model).pop(name)
        for name in ("forward", "_original_forward")
        if name in vars(model)
    }
    try:
        yield
    finally:
        vars(model).update(wrapped)


def _become(model: PreTrainedModel, pruned: Pruned) -> None:
    """Give a live model the units, weights and label names of the pruned one."""
    for name in ("id2label", "label2id", "problem_type"):
        setattr(model.config, name, getattr(pruned.model.config, name))
    remove_remaining(model, pruned.plan)
    model.load_state_dict(pruned.model.state_dict())
    for parameter in model.parameters():
        parameter.grad = None
    if needs_code(model.config):
        adopt(model)
