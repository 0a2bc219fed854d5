"""Evaluate the models that a run made, and the fine-tuned one that it began with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from auber.data.encoding import EncodedRows
from auber.errors import ModelError
from auber.run.answers import measure_agreement
from auber.run.folder import Run
from auber.run.steps import Steps
from auber.search.stages import LAST, size_stage
from auber.system.distributed import wait_for_all
from auber.training.evaluation import Scores, predict, score_logits
from auber.training.latency import time_rows

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Evaluated:
    """A model, its scores and the time that it takes for a row."""

    model: PreTrainedModel
    dev: Scores
    train: Scores | None  # None for the fine-tuned model, where it is not reported
    agreement: dict[str, Any] | None = None  # with the unpruned model, without labels
    milliseconds: float | None = None
    tokens: int = 0
    share: float | None = None  # of several sizes


def evaluate_models(
    steps: Steps, run: Run, dev_rows: EncodedRows
) -> tuple[list[Evaluated], Evaluated | None]:
    """Return the models of a run, the largest first, and the fine-tuned one if it was pruned."""
    request, progress, train_rows = steps.request, steps.progress, steps.train
    if held_out := set(steps.splits.held_out):  # they were never trained on
        train_rows = train_rows.select([r for r in range(len(train_rows)) if r not in held_out])
    wait_for_all()  # for the main process to store the last size
    models: dict[float | None, PreTrainedModel] = {
        share: run.load_stage(size_stage(LAST, share), request.hardware.device)
        for share in request.sizes
        if size_stage(LAST, share) in steps.done
    }
    models = models or {None: steps.model}
    is_pruned = request.kind == "prune"
    progress.begin("evaluating", 2 * len(models) + is_pruned)
    found = []
    for number, (share, model) in enumerate(models.items()):
        train, _ = _evaluate(model, train_rows, "train", request.task.metric)
        progress.step(2 * number + 1)
        dev, logits = _evaluate(model, dev_rows, "dev", request.task.metric)
        agreement = None
        if request.task.is_answered:
            agreement = measure_agreement(logits, dev_rows, request.task)
        found.append(Evaluated(model, dev, train, agreement, share=share))
        progress.step(2 * number + 2)
    if not is_pruned:
        progress.end()
        return found, None
    fine_tuned = steps.copy_fine_tuned()
    dev, _ = _evaluate(fine_tuned, dev_rows, "dev", request.task.metric)
    tokens = sorted(dev_rows.lengths)[len(dev_rows) // 2]
    seconds = time_rows([fine_tuned, *models.values()], request.hardware, tokens)
    progress.end()
    before, *made = (
        replace(evaluated, milliseconds=1000 * each, tokens=tokens)
        for evaluated, each in zip([Evaluated(fine_tuned, dev, None), *found], seconds, strict=True)
    )
    return made, before


def _evaluate(
    model: PreTrainedModel, rows: EncodedRows, split: str, metric: str
) -> tuple[Scores, Tensor]:
    """Return the scores of a model on rows, and its logits."""
    logits = predict(model, rows)
    scores = score_logits(logits, model, rows, metric)
    if not math.isfinite(scores.loss):
        raise ModelError(
            f"evaluating: the loss on {split} must be a finite number, found {scores.loss}: "
            "the model's weights are finite but too large to compute with; give lower learning "
            "rates, and as that is another run, another folder for --out"
        )
    return scores, logits
