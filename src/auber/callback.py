"""`AuberCallback`: prunes at the end of somebody's own `transformers.Trainer` script.

    trainer = Trainer(..., processing_class=tokenizer, callbacks=[AuberCallback(task=task, out="runs/mine")])

When training ends, the fine-tuned model is pruned as `auber.prune` does, and the trainer's own model becomes the result: it
loses the same heads in place and takes over the weights, so that `trainer.evaluate`, `save_model` and a push see the pruned
model, and a folder that `save_model` writes loads anywhere. What can be wrong is said before training starts.

Trainer keeps tokens alone, so the rows come with their texts as a task: the ones the model is trained on, and dev rows. A task
of any kind goes with a model of that kind: one for sequences, for tokens, or for question answering.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from auber.api import Pruned, prune
from auber.config import Config, make_config
from auber.data import load_task
from auber.data.task import TaskData
from auber.errors import ConfigError, RunError
from auber.models.remote_code import adopt
from auber.models.surgery import remove_remaining
from auber.run import files as run_files
from auber.run import folder as runs
from auber.run.request import check_pruning
from auber.run.starts import check_fit
from auber.search.registry import get_method
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
    """Prune what a Trainer has trained. `task`, `method`, `heads`, `config` and `out` are those of `auber.prune`.

    Afterwards `pruned` holds what `auber.prune` returns; its model is another object than the trainer's, with equal weights.
    """

    def __init__(
        self,
        *,
        task: str | TaskData,
        method: str = "auber",
        heads: int | None = None,
        config: Config | str = "default",
        out: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.task = load_task(task) if isinstance(task, str) else task
        self.method = get_method(method).name
        self.heads = heads
        self.config = (
            config if isinstance(config, Config) else make_config(config, task=self.task.name)
        )
        self.out = out
        self.progress = progress
        self.pruned: Pruned | None = None
        # The model as it was before the trainer tuned it, where scouts are made of that.
        self._origin: PreTrainedModel | None = None
        if self.config.protocol == "heldout":
            raise ConfigError(
                "AuberCallback: protocol must be seen or crossfit, found heldout: the trainer has tuned on rows that it holds out; leave "
                "the setting, or run auber.prune on the pretrained encoder"
            )

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
        """Find out whether the model can be pruned before the time is spent to train it."""
        if processing_class is None:
            raise ConfigError(
                "AuberCallback: needs the tokenizer; give Trainer(processing_class=tokenizer)"
            )
        if args.world_size > 1:
            raise ConfigError(
                f"AuberCallback: the trainer must run in one process, found {args.world_size}; "
                "save the model and prune it with auber.prune"
            )
        check_fit(model, processing_class, self.task, f"the trainer's {type(model).__name__}")
        check_pruning(
            model,
            processing_class,
            task=self.task,
            method=self.method,
            heads=self.heads,
            config=self.config,
        )
        if self.out is not None:
            if run_files.is_run(self.out):
                raise RunError(f"{self.out}: holds a run already; give AuberCallback another out")
            runs.require_place(Path(self.out), resume=False)
        if get_method(self.method).uses_fold_models(self.config.protocol):
            if state.global_step:
                raise ConfigError(
                    f"AuberCallback: the training goes on after step {state.global_step}, and scouts are made of the model before the "
                    'first; give config=auber.make_config(settings={"protocol": "seen"}), or run auber.prune on what is trained with its origin'
                )
            with _plain_forward(model):
                self._origin = copy.deepcopy(model).to("cpu")

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
                task=self.task,
                method=self.method,
                heads=self.heads,
                origin=self._origin,
                config=self.config,
                out=self.out,
                progress=self.progress,
            )
        self._origin = None
        _become(model, self.pruned)


@contextmanager
def _plain_forward(model: PreTrainedModel) -> Iterator[None]:
    """Within the context the model computes in its own precision: accelerate wraps `forward` where Trainer mixes precisions."""
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
    """Give a live model the heads and the weights of the pruned one, and its names for the answers."""
    for name in ("id2label", "label2id", "problem_type"):
        setattr(model.config, name, getattr(pruned.model.config, name))
    remove_remaining(model, pruned.plan)
    model.load_state_dict(pruned.model.state_dict())
    for parameter in model.parameters():
        parameter.grad = None
    if pruned.plan:
        adopt(model)
