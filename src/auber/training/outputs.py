"""The outputs and losses of the models of each task type.

A class per task type reads the logits of a model's output, packs them, and computes losses. For
tokens and spans, packed logits are those of all tokens, row after row without padding; for
sequences they are those of the rows. The logits of a sentence encoder are its hidden states, packed
by its pooling into the vectors of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from auber.data.encoding import part_batch
from auber.data.targets import IGNORED
from auber.metrics.spans import SpanTruth, span_loss
from auber.metrics.tags import NO_TAG, TagTruth
from auber.metrics.task_metrics import (
    predicts_one_class,
    predicts_one_number,
    predicts_one_vector,
)
from auber.models.pooling import Pooling, pooling_of

Targets = dict[str, Tensor]
VECTORS = "sentence_embedding"  # the output of a graph that pools
_TEMPERATURE = 2.0  # of distillation


class Outputs(ABC):
    """How to read the outputs of the models of one task type."""

    def logits(self, output: Any) -> Tensor:
        """Return the logits of a padded batch, (rows, ...), from the model's output."""
        logits: Tensor = output.logits
        return logits

    def pack(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Return the packed logits of a batch; `mask` (rows, length) is 0 at padding."""
        return logits[mask.bool()]

    @abstractmethod
    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        """Return the loss of each row of a padded batch: (rows,)."""

    def row_sensitivities(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        """Return what to differentiate for a row's importance if the targets are answers: (rows,).

        It is the loss, except where the loss and its gradient are 0 at the model's own answers.
        """
        return self.row_losses(logits, targets, mask)

    def loss(self, model: Any, batch: dict[str, Tensor]) -> Tensor:
        """Return the training loss of a padded batch with its targets."""
        return self.batch_loss(model, *part_batch(batch))

    @abstractmethod
    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        """Return the training loss: the mean over a padded batch."""

    @abstractmethod
    def mean_loss(self, logits: Tensor, truth: Any) -> Tensor:
        """Return the mean loss of packed logits."""

    @abstractmethod
    def distance(self, logits: Tensor, taught: Tensor, mask: Tensor) -> Tensor:
        """Return how far the logits of a padded batch are from those of a teacher: a mean."""

    def is_one_answer(self, logits: Tensor, truth: Any) -> bool:
        """Return whether packed logits predict the same class or number everywhere."""
        return False


class _Sequence(Outputs):
    """One class or one number per row."""

    def pack(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        return self._losses(logits, targets["labels"], "none")

    def row_sensitivities(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        if targets["labels"].is_floating_point():
            # Half the second derivative of (f - answer)² by a gate is the square of f's derivative.
            return logits.float().reshape(-1)
        return self.row_losses(logits, targets, mask)

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        return self._losses(self.logits(model(**inputs)), targets["labels"], "mean")

    def mean_loss(self, logits: Tensor, truth: Tensor) -> Tensor:
        return self._losses(logits, truth, "mean")

    def distance(self, logits: Tensor, taught: Tensor, mask: Tensor) -> Tensor:
        if logits.shape[-1] == 1:  # a number
            return F.mse_loss(logits.float(), taught.float())
        return _divergence(logits, taught).mean()

    def is_one_answer(self, logits: Tensor, truth: Tensor) -> bool:
        if truth.is_floating_point():
            return predicts_one_number(logits)
        return predicts_one_class(logits)

    def _losses(self, logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
        if labels.is_floating_point():
            return F.mse_loss(logits.float().reshape(-1), labels, reduction=reduction)
        return F.cross_entropy(logits.float(), labels, reduction=reduction)


class _Tokens(Outputs):
    """A tag for the first token of each word.

    A row's loss is the mean over its words, a batch's the mean over all its words.
    """

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        losses, words = self._losses(logits, targets["labels"])
        return losses.sum(1) / words.sum(1).clamp(min=1)

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        losses, words = self._losses(self.logits(model(**inputs)), targets["labels"])
        return losses.sum() / words.sum().clamp(min=1)  # a batch may have no tagged word

    def mean_loss(self, logits: Tensor, truth: TagTruth) -> Tensor:
        total = F.cross_entropy(logits[truth.places].float(), truth.tags, reduction="sum")
        return total / max(len(truth.tags), 1)

    def distance(self, logits: Tensor, taught: Tensor, mask: Tensor) -> Tensor:
        return (_divergence(logits, taught) * mask).sum() / mask.sum()

    def is_one_answer(self, logits: Tensor, truth: TagTruth) -> bool:
        return predicts_one_class(logits[truth.places])

    def _losses(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return each token's loss, 0 without a tag, and whether it has a tag: (rows, length)."""
        losses = F.cross_entropy(
            logits.float().transpose(1, 2), labels, ignore_index=NO_TAG, reduction="none"
        )
        return losses, labels != NO_TAG


class _Spans(Outputs):
    """The first and the last token of an answer, each one of the row's tokens.

    The loss is the mean of the two. In transformers' own loss padding competes with the tokens, so
    it depends on the rest of the batch; this one does not.
    """

    def logits(self, output: Any) -> Tensor:  # (rows, length, 2)
        return torch.stack((output.start_logits, output.end_logits), dim=-1)

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        scores = logits.float().masked_fill(mask[..., None] == 0, -torch.inf)  # (rows, length, 2)
        ends = (targets["start_positions"], targets["end_positions"])
        sides = torch.stack(ends, dim=-1)  # (rows, 2)
        return F.cross_entropy(scores, sides, ignore_index=IGNORED, reduction="none").mean(1)

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        losses = self.row_losses(self.logits(model(**inputs)), targets, inputs["attention_mask"])
        # Rows without an answer have no loss; a batch may consist of such rows.
        return losses.sum() / (targets["start_positions"] != IGNORED).sum().clamp(min=1)

    def distance(self, logits: Tensor, taught: Tensor, mask: Tensor) -> Tensor:
        padding = mask[:, None] == 0  # (rows, 1, length)
        scores, wanted = (
            # a finite number: the divergence multiplies it by 0
            each.float().transpose(1, 2).masked_fill(padding, -1e4)
            for each in (logits, taught)
        )
        return _divergence(scores, wanted).mean()

    def mean_loss(self, logits: Tensor, truth: SpanTruth) -> Tensor:
        return span_loss(logits, truth)


def _divergence(logits: Tensor, taught: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence over the last dimension, scaled as by Hinton et al."""
    own = F.log_softmax(logits.float() / _TEMPERATURE, dim=-1)
    wanted = F.log_softmax(taught.float() / _TEMPERATURE, dim=-1)
    return _TEMPERATURE**2 * F.kl_div(own, wanted, reduction="none", log_target=True).sum(-1)


@dataclass(frozen=True)
class _Embeddings(Outputs):
    """A vector per row, compared with the one that the unpruned model gives.

    The loss of a row is the squared distance of the two, relative to the square of the second. If
    both have length 1, that is twice the distance of their cosine from 1.
    """

    pooling: Pooling

    def logits(self, output: Any) -> Tensor:
        # A graph does the pooling itself.
        vectors: Tensor | None = getattr(output, VECTORS, None)
        hidden: Tensor = output.last_hidden_state if vectors is None else vectors
        return hidden

    def pack(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits if logits.ndim == 2 else self.pooling.pool(logits, mask)

    def row_losses(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        return _relative_distances(self.pack(logits, mask), targets["labels"])

    def row_sensitivities(self, logits: Tensor, targets: Targets, mask: Tensor) -> Tensor:
        # Half the second derivative of the squared distance by a gate is the sum of the squared
        # derivatives of all dimensions. With random signs before them, the square of their sum is
        # the same in the mean (Hutchinson), and takes one backward pass.
        vectors = self.pack(logits, mask)
        drawn = torch.randint(0, 2, vectors.shape, generator=torch.Generator().manual_seed(0))
        signs = (2 * drawn - 1).to(vectors)
        return (signs * vectors).sum(-1) / targets["labels"].square().sum(-1).sqrt()

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        hidden = self.logits(model(**inputs))
        return self.row_losses(hidden, targets, inputs["attention_mask"]).mean()

    def mean_loss(self, logits: Tensor, truth: Tensor) -> Tensor:
        return _relative_distances(logits, truth).mean()

    def distance(self, logits: Tensor, taught: Tensor, mask: Tensor) -> Tensor:
        return self.mean_loss(self.pack(logits, mask), self.pack(taught, mask))

    def is_one_answer(self, logits: Tensor, truth: Tensor) -> bool:
        return predicts_one_vector(logits)


def _relative_distances(vectors: Tensor, wanted: Tensor) -> Tensor:
    """Return the squared distance of each vector over the square of the wanted one: (rows,)."""
    wanted = wanted.float()
    return (vectors.float() - wanted).square().sum(-1) / wanted.square().sum(-1)


_OUTPUTS: dict[str, Outputs] = {"sequence": _Sequence(), "tokens": _Tokens(), "spans": _Spans()}


def outputs_of(kind: str, model: Any = None) -> Outputs:
    """Return how to read the outputs of a model, by its task type and for vectors its pooling."""
    return _OUTPUTS[kind] if kind in _OUTPUTS else _make_embeddings(pooling_of(model))


@cache
def _make_embeddings(pooling: Pooling) -> Outputs:
    return _Embeddings(pooling)  # the same object for the same pooling: steps are captured by it
