"""Scores masks of one layer: all that does not depend on the mask is computed once.

That is the layer's input and each head's context; a score weights the contexts and runs what lies above, the last layer for
the first token alone where the classifier reads no other (tags and spans are read off every token). On a GPU a score is one
captured graph, and several masks share a pass where one would not fill the device. What does not fit into memory is computed
anew for each score; a slab that runs out of memory is halved.

Contract: in float32 the predictions equal, row for row and token for token, those of the physically pruned model run plainly.
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

from auber.data.encoding import EncodedRows
from auber.errors import ModelError
from auber.metrics.task_metrics import get_metric
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.scoring import memory
from auber.scoring.base import MaskScorer
from auber.scoring.layers import load_kernels, pack_layers
from auber.scoring.packing import Slab, cut_rows, padded_inputs
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

VERSION = 5  # raised whenever the scorer may give other bits; part of every score's key

# Tokens of one slab at most, and tokens that fill the device: below that several masks share a pass. On a CPU small slabs
# stay in its caches; on a GPU large ones keep the matrix units busy.
_SLAB_TOKENS = {"cuda": 131_072, "cpu": 1_024}
_FULL_TOKENS = {"cuda": 65_536, "cpu": 1_024}
_MOST_MASKS = 64

# Recording a graph and emptying the allocator's cache reach beyond the thread that does it: one thread at a time may.
_whole_process = threading.Lock()


@dataclass
class _Piece:
    """Some rows, and what is kept of them between two scores."""

    rows: list[int]
    slab: Slab
    keeps: bool  # whether the caches may stay
    hidden: torch.Tensor | None = (
        None  # (tokens, hidden): input of the searched layer; (rows, hidden) of first tokens
    )
    context: torch.Tensor | None = (
        None  # (tokens or rows, present_heads * head_dim): its heads before the projection
    )
    graphs: dict[int, _Graph] = field(default_factory=dict)  # by the number of masks


@dataclass(frozen=True)
class _Graph:
    """A captured pass: write the weights, replay, read the logits."""

    weights: torch.Tensor
    logits: torch.Tensor
    replay: Callable[[], None]


class LayerScorer(MaskScorer):
    """Scores masks of one layer of a model whose other layers stay as they are; the model itself is left alone.

    The caches are made at the first score, so that a scorer whose every score is already known costs nothing. `tenants` is
    how many scorers share the device's memory, `identity` what tells the model from any other, where the caller knows that
    without going over all its weights.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int,
        rows: EncodedRows,
        metric: str,
        hardware: Hardware,
        tokens_per_slab: int | None = None,
        tenants: int = 1,
        identity: str | None = None,
    ) -> None:
        encoder = encoder_of(model)
        super().__init__(layer, encoder.present(layer), get_metric(metric))
        self._model, self._rows, self._hardware = model, rows, hardware
        self._identity, self._tenants = identity, tenants
        self._tokens_per_slab = tokens_per_slab or _SLAB_TOKENS.get(
            hardware.device.type, _SLAB_TOKENS["cpu"]
        )
        self._pieces: list[_Piece] | None = None
        last = encoder.num_layers - 1
        self._last_reads_first = encoder.reads == "first" and encoder.between(last) is None
        self._first_only = (
            self._last_reads_first and layer == last
        )  # a score computes first tokens alone

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._hardware.device

    @cached_property
    def key(self) -> str:
        """What a score depends on beside layer and mask: equal keys, equal scores."""
        identity = self._identity or weights_digest(self._model)
        return score_key(identity, self._rows, self._metric.name, self._hardware.precision)

    def _statistics(self, masks: Sequence[Sequence[int]]) -> torch.Tensor:
        self._prepare()
        width = min(self._masks_per_pass(), len(masks))
        found = []
        for start in range(0, len(masks), width):
            some = list(masks[start : start + width])
            # A short last pass is filled up, so that one captured graph serves them all.
            logits = self._logits(some + [some[-1]] * (width - len(some)))
            found += [
                self._metric.statistics(logits[index], self._truth) for index in range(len(some))
            ]
        return torch.stack(found)

    def logits(self, removed: Sequence[int]) -> torch.Tensor:
        """The logits of every row, or of every token where the classifier reads them all, longest row first, in float32."""
        self._require_masks([removed])
        self._prepare()
        return self._logits([removed])[0]

    # --- what is computed once --------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _prepare(self) -> None:
        """Copy the weights in the scorer's precision, pack the rows, and decide what may be kept."""
        if self._pieces is not None:
            return
        device, dtype = self._hardware.device, self._hardware.dtype
        self._encoder = encoder_of(_cast(self._model, device, dtype).eval())
        self._layers = pack_layers(self._encoder, max(self._rows.lengths), load_kernels(device))
        self._pieces = self._cut(self._encoder, dtype.itemsize)
        order = [row for piece in self._pieces for row in piece.rows]
        self._truth = self._rows.truth(device, order)

    def _cut(self, encoder: Encoder, itemsize: int) -> list[_Piece]:
        """The rows in slabs that fit into memory, those that may keep their caches marked."""
        room = int(memory.SAFETY * memory.available_bytes(self._hardware.device)) // self._tenants
        scored = max(self._rows.lengths) if self._layers[0].forms_scores else 0
        passing = memory.passing_bytes_per_token(encoder, itemsize, scored)
        tokens = max(1, min(self._tokens_per_slab, room // 2 // passing))
        cut = cut_rows(self._rows.lengths, tokens)
        room -= tokens * passing
        cached = memory.cached_bytes_per_token(encoder, self.layer, itemsize)
        pieces = []
        for rows in cut:
            slab = Slab(tuple(self._rows.lengths[row] for row in rows), self._hardware.device)
            needed = cached * (len(rows) if self._first_only else slab.num_tokens)
            pieces.append(_Piece(rows, slab, keeps=needed <= room))
            room -= needed if needed <= room else 0
        dropped = sum(len(piece.rows) for piece in pieces if not piece.keeps)
        if dropped:
            logger.warning(
                "layer %d: %d of %d reward rows do not fit into memory and are computed anew for each reward; "
                "reward.max_rows bounds them",
                self.layer, dropped, len(self._rows),
            )  # fmt: skip
        return pieces

    def _below(self, piece: _Piece) -> tuple[torch.Tensor, torch.Tensor]:
        """The searched layer's input and its heads' contexts for the rows of a piece."""
        if piece.hidden is not None and piece.context is not None:
            return piece.hidden, piece.context
        inputs = padded_inputs(self._rows, piece.rows, self._hardware.device)
        embedded = self._encoder.embed(
            inputs["input_ids"], inputs.get("token_type_ids")
        )  # (rows, longest, hidden)
        hidden = embedded[inputs["attention_mask"].bool()]  # (tokens, hidden)
        for layer in self._layers[: self.layer]:
            hidden = layer.finish(layer.context(hidden, piece.slab), hidden, piece.slab)
        searched = self._layers[self.layer]
        if self._first_only:
            hidden, context = hidden[piece.slab.firsts], searched.first_context(hidden, piece.slab)
        else:
            context = searched.context(hidden, piece.slab)
        if piece.keeps:
            piece.hidden, piece.context = hidden, context
        return hidden, context

    # --- what each score computes -----------------------------------------------------------------------------------

    @torch.inference_mode()
    def _logits(self, masks: Sequence[Sequence[int]]) -> torch.Tensor:
        """The logits under each of several masks, rows longest first."""  # (masks, rows or tokens, labels)
        keep = [[float(head not in set(removed)) for head in self.present] for removed in masks]
        weights = torch.tensor(keep, dtype=self._hardware.dtype).repeat_interleave(
            self._encoder.head_dim, dim=1
        )
        weights = weights.to(self._hardware.device)  # (masks, present_heads * head_dim)
        assert self._pieces is not None
        pieces, logits = list(self._pieces), []
        while pieces:
            piece = pieces.pop(0)
            try:
                logits.append(self._piece_logits(piece, weights))
            except torch.OutOfMemoryError as error:
                pieces = self._halve(piece, error) + pieces
        return torch.cat(logits, dim=1).float()

    def _piece_logits(self, piece: _Piece, weights: torch.Tensor) -> torch.Tensor:
        if not (self._hardware.device.type == "cuda" and piece.keeps):
            return self._above(piece, weights)
        if len(weights) not in piece.graphs:
            piece.graphs[len(weights)] = self._capture(piece, weights)
        graph = piece.graphs[len(weights)]
        graph.weights.copy_(weights)
        graph.replay()
        return graph.logits

    def _above(self, piece: _Piece, weights: torch.Tensor) -> torch.Tensor:
        """The logits of a piece with the searched layer's heads weighted."""  # (masks, rows or tokens, labels)
        hidden, context = self._below(piece)
        masks, slab = len(weights), piece.slab.repeated(len(weights))
        weighted = (context[None] * weights[:, None]).flatten(
            0, 1
        )  # (masks * tokens, present_heads * head_dim)
        if masks > 1:
            hidden = hidden.expand(masks, *hidden.shape).flatten(0, 1)
        hidden = self._layers[self.layer].finish(weighted, hidden, slab)
        for layer in self._layers[self.layer + 1 :]:
            if layer is self._layers[-1] and self._last_reads_first:
                hidden = layer.finish(layer.first_context(hidden, slab), hidden[slab.firsts], slab)
            else:
                hidden = layer.finish(layer.context(hidden, slab), hidden, slab)
        if self._encoder.reads == "mean":
            hidden = slab.join([block.mean(1, keepdim=True) for block in slab.blocks(hidden)])
        elif self._encoder.reads == "first" and not self._last_reads_first:
            hidden = hidden[slab.firsts]
        logits = self._encoder.classify(hidden)
        return logits.view(masks, -1, logits.shape[-1])

    def _capture(self, piece: _Piece, weights: torch.Tensor) -> _Graph:
        """A pass recorded once, so that a score costs no launches."""
        static = weights.clone()
        # A stream of this device: torch's own for recording belongs to the device that recorded first.
        side: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        with _whole_process:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._above(
                    piece, static
                )  # compiles kernels and fills the caches outside the recording
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                logits = self._above(piece, static)
        return _Graph(static, logits, graph.replay)

    def _halve(self, piece: _Piece, error: torch.OutOfMemoryError) -> list[_Piece]:
        """Two pieces in place of one that ran out of memory; they keep nothing."""
        if len(piece.rows) == 1:
            raise ModelError(
                f"layer {self.layer}: one row of {piece.slab.num_tokens} tokens does not fit into the memory of "
                f"{self._hardware.name} ({error}); free some of it, or lower max_length"
            ) from error
        assert self._pieces is not None
        at, middle = self._pieces.index(piece), len(piece.rows) // 2
        halves = [
            _Piece(
                rows,
                Slab(tuple(self._rows.lengths[row] for row in rows), self._hardware.device),
                keeps=False,
            )
            for rows in (piece.rows[:middle], piece.rows[middle:])
        ]
        self._pieces[at : at + 1] = halves
        if self._hardware.device.type == "cuda":
            with _whole_process:
                torch.cuda.empty_cache()
        logger.warning(
            "layer %d: out of memory, a slab of %d rows is halved", self.layer, len(piece.rows)
        )
        return halves

    def _masks_per_pass(self) -> int:
        assert self._pieces is not None
        if len(self._pieces) > 1:
            return 1
        slab = self._pieces[0].slab
        tokens = len(slab.lengths) if self._first_only else slab.num_tokens
        full = _FULL_TOKENS.get(self._hardware.device.type, _FULL_TOKENS["cpu"])
        return max(1, min(_MOST_MASKS, full // tokens))


def _cast(model: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """A copy in another precision; buffers keep theirs, as a rotary position's angle has no bits to lose."""
    twin = copy.deepcopy(model).to(device)
    for parameter in twin.parameters():
        parameter.data = parameter.data.to(dtype)
    return twin


def score_key(identity: str, rows: EncodedRows, metric: str, precision: str) -> str:
    """The name of all scores of a model, by what tells it from any other, on these rows."""
    described = f"{identity}/{rows.content_hash}/{metric}/{precision}/{VERSION}"
    return hashlib.sha256(described.encode()).hexdigest()[:24]
