"""The scorer: which heads of one layer go -> the metric on the reward set.

Only the searched layer's mask changes between two scores, so what does not depend on it is computed once: the layer's
input and each head's context. A score weights the context, and runs what lies above; the last layer does that for the
first token alone, the only one the classifier reads.

Contract: in float32 on a CPU the predictions equal, row for row, those of the physically pruned model run plainly.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from auber.batching import length_batches
from auber.checkpoint import weights_digest
from auber.devices import Hardware
from auber.encoders import encoder_of
from auber.metrics import get_metric
from auber.tasks.encoding import EncodedRows, pad_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VERSION = 1  # raised whenever the scorer may give other bits; part of every score's key


@dataclass(frozen=True)
class _Batch:
    """What a batch keeps between two scores of one layer."""

    hidden: torch.Tensor  # (rows, length, hidden): input of the searched layer; (rows, 1, hidden) for the last one
    context: torch.Tensor  # (rows, length, present_heads * head_dim): its heads' outputs before the projection
    tokens: torch.Tensor | None  # (rows, length), True where there is a token
    bias: torch.Tensor | None


class LayerScorer:
    """Scores masks of one layer of a model whose other layers stay as they are.

    The caches are made at the first score, so that a scorer whose every score is already known costs nothing.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int,
        rows: EncodedRows,
        metric: str,
        hardware: Hardware,
        tokens_per_batch: int = 16384,
    ) -> None:
        self._model, self.layer, self._rows, self._hardware = model, layer, rows, hardware
        self._metric = get_metric(metric)
        self._tokens_per_batch = tokens_per_batch
        self._batches: list[_Batch] | None = None
        self.present = encoder_of(model).present(layer)
        identity = f"{weights_digest(model)}/{rows.content_hash}/{metric}/{hardware.precision}/{VERSION}"
        self.key = hashlib.sha256(identity.encode()).hexdigest()[:24]

    def score(self, removed: Sequence[int]) -> float:
        """The metric with these heads (numbered as in the unpruned model) removed from the layer."""
        return self.score_many([removed])[0]

    def score_many(self, masks: Sequence[Sequence[int]]) -> list[float]:
        """The metric for each of several sets of removed heads."""
        if self._batches is None:
            self._prepare()
        return [float(self._metric.compute(self.logits(removed), self._labels)) for removed in masks]

    @torch.inference_mode()
    def logits(self, removed: Sequence[int]) -> torch.Tensor:
        """The logits of every row, longest row first, in float32."""  # (rows, labels)
        if self._batches is None:
            self._prepare()
        assert self._batches is not None
        gone = set(removed)
        keep = [float(head not in gone) for head in self.present]
        weights = torch.tensor(keep, dtype=self._hardware.dtype, device=self._hardware.device)
        weights = weights.repeat_interleave(self._encoder.head_dim)  # (present_heads * head_dim,)
        return torch.cat([self._finish(batch, weights) for batch in self._batches]).float()

    @torch.inference_mode()
    def _prepare(self) -> None:
        model = copy.deepcopy(self._model).to(device=self._hardware.device, dtype=self._hardware.dtype).eval()
        self._encoder = encoder_of(model)
        last = self._encoder.num_layers - 1
        order: list[int] = []
        self._batches = []
        for rows in length_batches(self._rows.lengths, self._tokens_per_batch):
            order.extend(rows)
            inputs = pad_batch([self._rows[row] for row in rows], self._rows.pad_token_id)
            inputs = {name: tensor.to(self._hardware.device) for name, tensor in inputs.items()}
            mask = inputs["attention_mask"].bool()
            tokens = None if bool(mask.all()) else mask
            hidden = self._encoder.embed(inputs["input_ids"], inputs.get("token_type_ids"))
            bias = self._encoder.attention_bias(hidden.shape[1])
            for layer in range(self.layer):
                context = self._encoder.context(layer, hidden, tokens, bias)
                hidden = self._encoder.finish(layer, context, hidden)
            context = self._encoder.context(self.layer, hidden, tokens, bias, first_only=self.layer == last)
            hidden = hidden[:, :1] if self.layer == last else hidden
            self._batches.append(_Batch(hidden, context, tokens, bias))
        self._labels = self._rows.labels[order].to(self._hardware.device)

    def _finish(self, batch: _Batch, weights: torch.Tensor) -> torch.Tensor:
        """The logits of one batch with the searched layer's heads weighted."""  # (rows, labels)
        encoder = self._encoder
        last = encoder.num_layers - 1
        hidden = encoder.finish(self.layer, batch.context * weights, batch.hidden)
        for layer in range(self.layer + 1, encoder.num_layers):
            context = encoder.context(layer, hidden, batch.tokens, batch.bias, first_only=layer == last)
            hidden = encoder.finish(layer, context, hidden[:, :1] if layer == last else hidden)
        return encoder.classify(hidden[:, 0])
