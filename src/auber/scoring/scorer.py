"""Scores masks of one layer. Everything that does not depend on the mask is computed only once.

That is the layer's input and each head's context. A score multiplies the contexts by the mask and
runs the layers above. If the classifier reads only the first token, the last layer runs for first
tokens only. On a GPU a score is a replayed CUDA graph, and several masks share a pass if one would
not fill the device. What does not fit into memory is computed again for each score. A batch that
runs out of memory is halved.

Contract: in float32 the predictions equal, row for row and token for token, those of the physically
pruned model.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from auber.data.encoding import EncodedRows, pad_batch, part_batch
from auber.errors import ModelError
from auber.metrics.task_metrics import get_metric
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.scoring.base import MaskScorer
from auber.scoring.layers import load_kernels, pack_layers
from auber.scoring.packing import PackedBatch, cut_rows
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

VERSION = 5  # raised when the scorer may give other bits; part of every score's key

# The largest number of tokens of a batch, and the number that fills the device: below it several
# masks share a pass. Small batches stay in a CPU's caches; large ones keep a GPU's matrix units
# busy.
_BATCH_TOKENS = {"cuda": 131_072, "cpu": 1_024}
_FULL_TOKENS = {"cuda": 65_536, "cpu": 1_024}
_MOST_MASKS = 64

# Share of the free memory that is used; the allocator's rounding, libraries and other processes
# take the rest.
_USABLE_MEMORY = 0.8

# Capturing a graph and emptying the allocator's cache affect all threads: one at a time may.
_process_lock = threading.Lock()


@dataclass
class _Chunk:
    """Some rows, and what is cached of them between two scores."""

    rows: list[int]
    batch: PackedBatch
    may_cache: bool
    # input of the searched layer: (tokens, hidden), or (rows, hidden) of first tokens
    hidden: torch.Tensor | None = None
    # the heads' contexts: (tokens or rows, present_heads * head_dim)
    context: torch.Tensor | None = None
    graphs: dict[int, _Graph] = field(default_factory=dict)  # by number of masks


@dataclass(frozen=True)
class _Graph:
    """A captured pass: write the weights, replay, read the logits."""

    weights: torch.Tensor
    logits: torch.Tensor
    replay: Callable[[], None]


class LayerScorer(MaskScorer):
    """Scores masks of one layer of a model, which is not changed.

    The caches are filled at the first score, so a scorer whose scores are all known costs nothing.
    `sharing` is the number of scorers that share the device's memory. `identity` identifies the
    model if the caller can do so without a digest of all its weights.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int,
        rows: EncodedRows,
        metric: str,
        hardware: Hardware,
        tokens_per_batch: int | None = None,
        sharing: int = 1,
        identity: str | None = None,
    ) -> None:
        encoder = encoder_of(model)
        super().__init__(layer, encoder.present(layer), get_metric(metric))
        self._model, self._rows, self._hardware = model, rows, hardware
        self._identity, self._sharing = identity, sharing
        self._tokens_per_batch = tokens_per_batch or _for_device(_BATCH_TOKENS, hardware.device)
        self._chunks: list[_Chunk] | None = None
        last = encoder.num_layers - 1
        self._last_reads_first = encoder.reads == "first" and encoder.between(last) is None
        self._first_only = self._last_reads_first and layer == last

    @property
    def device(self) -> torch.device:
        """The device of the computation."""
        return self._hardware.device

    @cached_property
    def key(self) -> str:
        """What a score depends on besides layer and mask: equal keys mean equal scores."""
        identity = self._identity or weights_digest(self._model)
        return score_key(identity, self._rows, self.metric.name, self._hardware.precision)

    def _statistics(self, masks: Sequence[Sequence[int]]) -> torch.Tensor:
        self._prepare()
        width = min(self._masks_per_pass(), len(masks))
        found = []
        for start in range(0, len(masks), width):
            some = list(masks[start : start + width])
            # A short last pass is filled up, so that one captured graph serves all.
            logits = self._logits(some + [some[-1]] * (width - len(some)))
            found += [self.metric.statistics(each, self._truth) for each in logits[: len(some)]]
        return torch.stack(found)

    def logits(self, removed: Sequence[int]) -> torch.Tensor:
        """Return the logits of every row, longest first, in float32.

        If the classifier reads all tokens, return those of every token.
        """
        self._require_masks([removed])
        self._prepare()
        return self._logits([removed])[0]

    # --- computed once -------------------------------------------------------------------------

    @torch.inference_mode()
    def _prepare(self) -> None:
        """Copy the weights in the scorer's precision, pack the rows, and decide what to cache."""
        if self._chunks is not None:
            return
        device, dtype = self._hardware.device, self._hardware.dtype
        self._encoder = encoder_of(_cast(self._model, device, dtype).eval())
        self._layers = pack_layers(self._encoder, max(self._rows.lengths), load_kernels(device))
        self._chunks = self._cut_rows(self._encoder, dtype.itemsize)
        order = [row for chunk in self._chunks for row in chunk.rows]
        self._truth = self._rows.truth(device, order)

    def _cut_rows(self, encoder: Encoder, itemsize: int) -> list[_Chunk]:
        """Return the rows in chunks that fit into memory, and mark those that may be cached."""
        room = int(_USABLE_MEMORY * available_bytes(self._hardware.device)) // self._sharing
        scored_tokens = max(self._rows.lengths) if self._layers[0].forms_scores else 0
        per_pass = _bytes_per_pass_token(encoder, itemsize, scored_tokens)
        tokens = max(1, min(self._tokens_per_batch, room // 2 // per_pass))
        room -= tokens * per_pass
        width = len(encoder.present(self.layer)) * encoder.head_dim
        cached = int((encoder.hidden_size + width) * itemsize)  # bytes per token
        chunks = []
        for rows in cut_rows(self._rows.lengths, tokens):
            batch = self._pack(rows)
            needed = cached * (len(rows) if self._first_only else batch.num_tokens)
            chunks.append(_Chunk(rows, batch, may_cache=needed <= room))
            room -= needed if needed <= room else 0
        uncached = sum(len(chunk.rows) for chunk in chunks if not chunk.may_cache)
        if uncached:
            logger.warning(
                "layer %d: %d of %d reward rows do not fit into memory and are computed anew for "
                "each reward; reward.max_rows bounds them",
                self.layer, uncached, len(self._rows),
            )  # fmt: skip
        return chunks

    def _pack(self, rows: Sequence[int]) -> PackedBatch:
        return PackedBatch(tuple(self._rows.lengths[row] for row in rows), self._hardware.device)

    def _below(self, chunk: _Chunk) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the searched layer's input and its heads' contexts for the rows of a chunk."""
        if chunk.hidden is not None and chunk.context is not None:
            return chunk.hidden, chunk.context
        rows, device = self._rows, self._hardware.device
        inputs, _ = part_batch(pad_batch([rows[row] for row in chunk.rows], rows.pad_token_id))
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in inputs.items()}
        # (rows, longest, hidden)
        embedded = self._encoder.embed(inputs["input_ids"], inputs.get("token_type_ids"))
        hidden = embedded[inputs["attention_mask"].bool()]  # (tokens, hidden)
        for layer in self._layers[: self.layer]:
            hidden = layer.finish(layer.context(hidden, chunk.batch), hidden, chunk.batch)
        searched = self._layers[self.layer]
        if self._first_only:
            context = searched.first_context(hidden, chunk.batch)
            hidden = hidden[chunk.batch.firsts]
        else:
            context = searched.context(hidden, chunk.batch)
        if chunk.may_cache:
            chunk.hidden, chunk.context = hidden, context
        return hidden, context

    # --- computed for each score ---------------------------------------------------------------

    @torch.inference_mode()
    def _logits(self, masks: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the logits of each mask, rows longest first: (masks, rows or tokens, labels)."""
        present = [[float(head not in set(removed)) for head in self.present] for removed in masks]
        weights = torch.tensor(present, dtype=self._hardware.dtype)
        weights = weights.repeat_interleave(self._encoder.head_dim, dim=1)
        weights = weights.to(self._hardware.device)  # (masks, present_heads * head_dim)
        assert self._chunks is not None
        chunks, logits = list(self._chunks), []
        while chunks:
            chunk = chunks.pop(0)
            try:
                logits.append(self._chunk_logits(chunk, weights))
            except torch.OutOfMemoryError as error:
                chunks = self._halve(chunk, error) + chunks
        return torch.cat(logits, dim=1).float()

    def _chunk_logits(self, chunk: _Chunk, weights: torch.Tensor) -> torch.Tensor:
        if not (self._hardware.device.type == "cuda" and chunk.may_cache):
            return self._above(chunk, weights)
        if len(weights) not in chunk.graphs:
            chunk.graphs[len(weights)] = self._capture(chunk, weights)
        graph = chunk.graphs[len(weights)]
        graph.weights.copy_(weights)
        graph.replay()
        return graph.logits

    def _above(self, chunk: _Chunk, weights: torch.Tensor) -> torch.Tensor:
        """Return the logits of a chunk with weighted heads: (masks, rows or tokens, labels)."""
        hidden, context = self._below(chunk)
        masks, batch = len(weights), chunk.batch.repeated(len(weights))
        # (masks * tokens, present_heads * head_dim)
        weighted = (context[None] * weights[:, None]).flatten(0, 1)
        if masks > 1:
            hidden = hidden.expand(masks, *hidden.shape).flatten(0, 1)
        hidden = self._layers[self.layer].finish(weighted, hidden, batch)
        for layer in self._layers[self.layer + 1 :]:
            if layer is self._layers[-1] and self._last_reads_first:
                context = layer.first_context(hidden, batch)
                hidden = layer.finish(context, hidden[batch.firsts], batch)
            else:
                hidden = layer.finish(layer.context(hidden, batch), hidden, batch)
        if self._encoder.reads == "mean":
            hidden = batch.join([block.mean(1, keepdim=True) for block in batch.blocks(hidden)])
        elif self._encoder.reads == "first" and not self._last_reads_first:
            hidden = hidden[batch.firsts]
        logits = self._encoder.classify(hidden)
        return logits.view(masks, -1, logits.shape[-1])

    def _capture(self, chunk: _Chunk, weights: torch.Tensor) -> _Graph:
        """Capture a pass, so that a score needs no kernel launches."""
        static = weights.clone()
        # A stream of this device: torch's default capture stream is on the device that was first.
        side: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        with _process_lock:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._above(chunk, static)  # compiles kernels and fills caches before the capture
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                logits = self._above(chunk, static)
        return _Graph(static, logits, graph.replay)

    def _halve(self, chunk: _Chunk, error: torch.OutOfMemoryError) -> list[_Chunk]:
        """Replace a chunk that ran out of memory by two, which are not cached."""
        if len(chunk.rows) == 1:
            raise ModelError(
                f"layer {self.layer}: one row of {chunk.batch.num_tokens} tokens does not fit into "
                f"the memory of {self._hardware.name} ({error}); free some of it, or lower "
                "max_length"
            ) from error
        assert self._chunks is not None
        at, middle = self._chunks.index(chunk), len(chunk.rows) // 2
        halves = [
            _Chunk(rows, self._pack(rows), may_cache=False)
            for rows in (chunk.rows[:middle], chunk.rows[middle:])
        ]
        self._chunks[at : at + 1] = halves
        if self._hardware.device.type == "cuda":
            with _process_lock:
                torch.cuda.empty_cache()
        logger.warning(
            "layer %d: out of memory, a batch of %d rows is halved", self.layer, len(chunk.rows)
        )
        return halves

    def _masks_per_pass(self) -> int:
        assert self._chunks is not None
        if len(self._chunks) > 1:
            return 1
        batch = self._chunks[0].batch
        tokens = len(batch.lengths) if self._first_only else batch.num_tokens
        full = _for_device(_FULL_TOKENS, self._hardware.device)
        return max(1, min(_MOST_MASKS, full // tokens))


def _for_device(values: dict[str, int], device: torch.device) -> int:
    return values.get(device.type, values["cpu"])


def _cast(model: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Return a copy with parameters in another precision.

    Buffers keep theirs: the angles of rotary positions need all their bits.
    """
    twin = copy.deepcopy(model).to(device)
    for parameter in twin.parameters():
        parameter.data = parameter.data.to(dtype)
    return twin


def available_bytes(device: torch.device) -> int:
    """Return the memory that can still be allocated, within any limit set for this process."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        allocated = torch.cuda.memory_allocated(device)
        unused = torch.cuda.memory_reserved(device) - allocated
        limit = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return max(0, min(free + unused, limit - allocated))
    import psutil

    return int(psutil.virtual_memory().available)


def _bytes_per_pass_token(encoder: Encoder, itemsize: int, scored_tokens: int) -> int:
    """Estimate the memory of a token while a layer is computed.

    It holds projections, contexts, the feed-forward and the sums in between. If attention stores
    its scores, `scored_tokens` is the number of tokens that a token attends to.
    """
    width = encoder.num_heads * encoder.head_dim
    expanded: int = encoder.parts(0).expand.out_features
    scores = 8 * encoder.num_heads * scored_tokens
    return int((4 * width + 2 * expanded + 5 * encoder.hidden_size + scores) * itemsize)


def score_key(identity: str, rows: EncodedRows, metric: str, precision: str) -> str:
    """Return the key of all scores of a model on these rows."""
    described = f"{identity}/{rows.content_hash}/{metric}/{precision}/{VERSION}"
    return hashlib.sha256(described.encode()).hexdigest()[:24]
