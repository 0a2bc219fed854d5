"""What a person should know of a run beside its numbers: where nothing can be removed, and where scores say nothing.

Each function gives the words, or None where there is nothing to say; the pipeline says them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from auber.config import Config
from auber.data.encoding import EncodedRows
from auber.metrics.task_metrics import get_metric
from auber.models.encoders.base import Encoder
from auber.run.job import Job


def cut_rows(rows: EncodedRows, max_length: int) -> str | None:
    """What to say of texts that are longer than rows may be."""
    if not rows.num_cut:
        return None
    return f"{rows.num_cut} of {len(rows)} train rows are cut to {max_length} tokens (max_length)"


def layers_that_stay(encoder: Encoder, layers: Sequence[int]) -> str | None:
    """Which of these layers can lose nothing, because they have one head."""
    kept = sorted(layer for layer in layers if len(encoder.present(layer)) < 2)
    if not kept:
        return None
    names = f"layer{'s' if len(kept) > 1 else ''} {', '.join(map(str, kept))}"
    if len(kept) == len(layers):
        return (
            f"nothing to remove: one head stays in each layer, and {names} had no more to begin with; the model is tuned and "
            "evaluated as it is"
        )
    return f"{names}: one head stays in each layer, and there are no more: passed over"


def untrained_classifier(job: Job) -> str | None:
    """That nothing trains a classifier drawn at random before scores are asked for, and what to do."""
    first = job.config.first
    if job.has_trained_classifier or (job.first_tuning and first.epochs > 0):
        return None
    found, remedy = (
        ("first.epochs is 0", "raise it")
        if job.first_tuning
        else ("first.when is never", "leave it at auto")
    )
    return (
        f"the classifier is untrained, for the model came without one and {found}: scores say nothing of the task or its heads; "
        f"{remedy}, or start from a fine-tuned model"
    )


def blindness(name: str, num_labels: int, rows: EncodedRows, device: torch.device) -> str | None:
    """Why every model of so many labels has the same score by a metric on these rows."""
    metric = get_metric(name)
    if not metric.is_blind(rows.truth(device), num_labels):
        return None
    count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
    return (
        f"{metric.name} needs {metric.needs}, not to be found in {count}, so every model scores 0"
    )


def nothing_learned(metric: str, unpruned: float, num_rows: int) -> str | None:
    """That a smooth reward finds nothing in the outputs of the unpruned layer, so that heads can only be lost for their price."""
    rule = get_metric(metric)
    if (
        rule.by_row is None or rule.compares == "spans" or unpruned > 0
    ):  # spans are found, not explained
        return None
    return (
        f"the unpruned model explains nothing of the {num_rows} reward rows: what was learned does not hold for them, and no head is "
        "worth anything to the reward; more rows, another first.learning_rate or more first.epochs may change that"
    )


def equal_rewards(
    layer: int, scores: Collection[float], num_removed: int | None, has_prior: bool = False
) -> str | None:
    """That the masks of a layer all scored the same, and what a choice of so many heads, or of some, is worth then."""
    if len(scores) < 2 or len(set(scores)) > 1:
        return None
    worth = "none is removed"
    if has_prior:
        worth = "the plan that the search began from decides"
    elif num_removed is None:
        worth = "what goes of it could as well be other heads"
    elif num_removed:
        worth = f"the {'head' if num_removed == 1 else f'{num_removed} heads'} removed could as well be others"
    return (
        f"layer {layer}: all {len(scores)} masks scored the same ({next(iter(scores)):.4f}), so the rewards tell no "
        f"head from another; {worth}"
    )


def nothing_updated(layer: int, config: Config, updates: int | None) -> str | None:
    """That a layer's games were too few or too short for the agent to learn from; None where it learned or was told not to."""
    agent = config.agent
    if updates != 0 or not (agent.episodes and agent.updates_per_episode):
        return None
    untaught = agent.choose == "rollout" and not config.search.heads
    worth = f"what an untaught network {'plays' if untaught else 'and chance came by'}"
    return (
        f"layer {layer}: the agent made no update, as its {agent.episodes} games had fewer than {agent.learning_starts} moves; {worth} "
        "decides; raise agent.episodes, or lower agent.learning_starts (said once; the report names all such layers)"
    )


def other_size(wanted: int, found: int) -> str | None:
    """That the masks scored do not add up to as many heads as are to go."""
    if wanted == found:
        return None
    return (
        f"search.heads asks for {wanted} heads, and the masks that were scored add up to {found} at the nearest; raise "
        "agent.episodes, and more of them will be"
    )
