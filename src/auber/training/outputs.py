"""What a model of each kind of task gives, and what it costs to be wrong.

One class a kind: where its logits are, which of them stand for rows or tokens and which for padding, and the loss of a row,
of a batch to learn from, and of many packed rows. For tokens and spans, *packed* means the logits of all tokens, row after
row without padding; a row is one packed item where the kind is sequence.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from auber.data.targets import IGNORED
from auber.metrics.spans import SpanTruth, span_loss
from auber.metrics.tags import NO_TAG, TagTruth
from auber.metrics.task_metrics import predicts_one_class

Targets = dict[str, Tensor]


class Outputs(Protocol):
    """How the outputs of one kind of model are read."""

    def logits(self, output: Any) -> Tensor:
        """The logits of a padded batch, from the model's output."""

    def pack(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The logits of a batch, packed; `mask` (rows, length) is 0 at padding."""

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        """The loss of each row of a padded batch: (rows,)."""

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """The loss to learn from: the mean over a padded batch."""

    def mean_loss(self, logits: Tensor, truth: Any) -> Tensor:
        """The mean loss of packed logits."""

    def is_one_answer(self, logits: Tensor, truth: Any) -> bool:
        """Whether packed logits give the same class everywhere, so that a score says nothing of the rows."""


class _Sequence:
    """One class, or one number, a row."""

    def logits(self, output: Any) -> Tensor:  # (rows, labels)
        logits: Tensor = output.logits
        return logits

    def pack(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        return self._losses(logits, targets["labels"], "none")

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        loss: Tensor = model(**inputs, **targets).loss  # the model's own
        return loss

    def mean_loss(self, logits: Tensor, truth: Tensor) -> Tensor:
        return self._losses(logits, truth, "mean")

    def is_one_answer(self, logits: Tensor, truth: Tensor) -> bool:
        return not truth.is_floating_point() and predicts_one_class(logits)

    def _losses(self, logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
        """Squared error for targets that are numbers, else cross-entropy."""
        if labels.is_floating_point():
            return F.mse_loss(logits.float().reshape(-1), labels, reduction=reduction)
        return F.cross_entropy(logits.float(), labels, reduction=reduction)


class _Tokens:
    """A tag for each token that is a word's first. A row's loss is the mean over its words, a batch's over all of its words."""

    def logits(self, output: Any) -> Tensor:  # (rows, length, tags)
        logits: Tensor = output.logits
        return logits

    def pack(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits[mask.bool()]

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        losses, words = self._losses(logits, targets["labels"])
        return losses.sum(1) / words.sum(1).clamp(min=1)

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        losses, words = self._losses(self.logits(model(**inputs)), targets["labels"])
        return losses.sum() / words.sum().clamp(
            min=1
        )  # a batch may have no word, where a tokenizer made nothing of them

    def mean_loss(self, logits: Tensor, truth: TagTruth) -> Tensor:
        return F.cross_entropy(logits[truth.places].float(), truth.tags, reduction="sum") / max(
            len(truth.tags), 1
        )

    def is_one_answer(self, logits: Tensor, truth: TagTruth) -> bool:
        return predicts_one_class(logits[truth.places])

    def _losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each token, 0 where it has no tag, and whether it has one: each (rows, length)."""
        losses = F.cross_entropy(
            logits.float().transpose(1, 2), labels, ignore_index=NO_TAG, reduction="none"
        )
        return losses, labels != NO_TAG


class _Spans:
    """The first and the last token of an answer, each one of all the row's tokens; the loss is the mean of the two.

    transformers' own loss lets padding compete for start and end, so it depends on what else is in the batch; this does not.
    """

    def logits(self, output: Any) -> Tensor:  # (rows, length, 2)
        return torch.stack((output.start_logits, output.end_logits), dim=-1)

    def pack(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits[mask.bool()]

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        scores = logits.float().masked_fill(mask[..., None] == 0, -torch.inf)  # (rows, length, 2)
        sides = torch.stack(
            (targets["start_positions"], targets["end_positions"]), dim=-1
        )  # (rows, 2)
        return F.cross_entropy(scores, sides, ignore_index=IGNORED, reduction="none").mean(1)

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        losses = self.row_losses(self.logits(model(**inputs)), targets, inputs["attention_mask"])
        # Rows without an answer have no loss; a batch may be nothing but such rows.
        return losses.sum() / (targets["start_positions"] != IGNORED).sum().clamp(min=1)

    def mean_loss(self, logits: Tensor, truth: SpanTruth) -> Tensor:
        return span_loss(logits, truth)

    def is_one_answer(self, logits: Tensor, truth: SpanTruth) -> bool:
        return False  # spans of different rows are no classes


OUTPUTS: dict[str, Outputs] = {"sequence": _Sequence(), "tokens": _Tokens(), "spans": _Spans()}
