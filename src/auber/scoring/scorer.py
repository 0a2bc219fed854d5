"""Scores masks of one layer, and plans for the whole model.

Everything that does not depend on the mask is computed only once.

For masks of neurons alone that is the activations of the layer's feed-forward, for others the
layer's input and each head's context. A score multiplies activations or contexts by the mask and
runs what is above: the rest of the layer, and the layers above it. If the classifier reads only the
first token, the last layer runs for first tokens only. On a GPU a score is a replayed CUDA graph,
and several masks share a pass if one would not fill the device. What does not fit into memory is
computed again for each score. A batch that runs out of memory is halved.

Contract: in float32 the predictions equal, row for row and token for token, those of the physically
pruned model. How a mask is computed depends on those that are scored with it, not on earlier ones.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from auber.data.encoding import EncodedRows, pad_batch, part_batch
from auber.errors import ModelError
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_remaining
from auber.scoring.base import KINDS, Mask, MaskScorer, Scorer, Site
from auber.scoring.layers import PackedLayer, load_kernels, pack_layers
from auber.scoring.packing import PackedBatch, cut_rows
from auber.training.devices import Hardware, cast_copy

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

# Where a container finds its own limit, in either version of control groups. What the system
# reports as available is the host's.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

# Capturing a graph and emptying the allocator's cache affect all threads: one at a time may.
_process_lock = threading.Lock()

Sites = tuple[Site, ...]  # whose columns the masks of a pass weight


class State(NamedTuple):
    """What the first searched layer computes before a mask matters, of tokens or of first tokens.

    Either its heads' contexts and its input, or its neurons' activations, what their contraction is
    added to, and the layer's input if a module after the layer reads that.
    """

    inputs: torch.Tensor  # (tokens or rows, columns that the mask weights)
    residual: torch.Tensor  # (tokens or rows, hidden), like the next one
    hidden: torch.Tensor | None


@dataclass
class Chunk:
    """Some rows, and what is cached of them between two scores."""

    rows: list[int]
    batch: PackedBatch
    may_cache: bool = False
    state: State | None = None
    graphs: dict[tuple[Sites, int], _Graph] = field(default_factory=dict)  # by number of masks


@dataclass(frozen=True)
class _Graph:
    """A captured pass: write the weights, replay, read the logits."""

    weights: torch.Tensor
    logits: torch.Tensor
    graph: torch.cuda.CUDAGraph


class PackedScorer(Scorer):
    """Scores masks of one layer of a model, or of all. The model is not changed.

    The caches are filled at the first score, so a scorer whose scores are all known costs nothing.
    `sharing` is the number of scorers that share the device's memory. `identity` identifies the
    model if the caller can do so without a digest of all its weights.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        layer: int | None,
        rows: EncodedRows,
        metric: str,
        hardware: Hardware,
        sharing: int = 1,
        identity: str | None = None,
    ) -> None:
        super().__init__(model, layer, metric)
        encoder = encoder_of(model)
        self._model, self._rows, self._hardware = model, rows, hardware
        self._identity, self._sharing = identity, sharing
        self._chunks: list[Chunk] | None = None
        self._cached = ""  # the kind of unit whose columns are cached
        self._first, last = self._searched[0], encoder.num_layers - 1
        self._last_reads_first = encoder.reads == "first" and encoder.between(last) is None
        self._first_only = self._last_reads_first and self._first == last
        self._places = {site: torch.tensor(units) for site, units in self._present.items()}
        self._place = "whole model" if layer is None else f"layer {layer}"

    @property
    def device(self) -> torch.device:
        """The device of the computation."""
        return self._hardware.device

    @cached_property
    def key(self) -> str:
        """What a score depends on besides the mask and its layer: equal keys mean equal scores."""
        identity = self._identity or weights_digest(self._model)
        return score_key(identity, self._rows, self.metric.name, self._hardware.precision)

    def logits(self, mask: Mask) -> torch.Tensor:
        """Return the logits of every row, longest first, in float32.

        If the classifier reads all tokens, return those of every token.
        """
        return next(self._logits_of([self._read(mask)]))

    def _statistics(self, plans: Sequence[PruningPlan]) -> torch.Tensor:
        logits = self._logits_of(plans)
        return torch.stack([self.metric.statistics(each, self._truth) for each in logits])

    def _logits_of(self, plans: Sequence[PruningPlan]) -> Iterator[torch.Tensor]:
        """Yield the logits of each mask: (rows or tokens, labels)."""
        kinds = [kind for kind in KINDS if any(getattr(plan, kind) for plan in plans)] or KINDS[:1]
        self._prepare(kinds[0])
        sites = tuple((kind, layer) for layer in self._searched for kind in kinds)
        width = min(self._masks_per_pass(), len(plans))
        for some in torch.split(self._weights(plans, sites), width):
            # A short last pass is filled up, so that one captured graph serves all.
            weights = torch.cat([some, some[-1:].expand(width - len(some), -1)])
            logits = self._by_chunk(partial(self._chunk_logits, weights=weights, sites=sites))
            yield from logits[: len(some)]

    # --- computed once -------------------------------------------------------------------------

    @torch.inference_mode()
    def _prepare(self, kind: str) -> None:
        """Copy the weights in the scorer's precision, pack the rows, and decide what to cache.

        What is cached before the columns of a kind of unit replaces what was cached for another.
        """
        if self._chunks is None:
            device, dtype = self._hardware.device, self._hardware.dtype
            self._encoder = encoder_of(cast_copy(self._model, device, dtype).eval())
            self._layers = pack_layers(self._encoder, max(self._rows.lengths), load_kernels(device))
            self._chunks = self._cut_rows(self._encoder, dtype.itemsize)
            order = [row for chunk in self._chunks for row in chunk.rows]
            self._truth = self._rows.truth(device, order)
        if kind != self._cached:
            is_replaced, self._cached = self._cached != "", kind
            self._plan_caches(self._chunks)
            if is_replaced:
                self._free_unused()

    def _cut_rows(self, encoder: Encoder, itemsize: int) -> list[Chunk]:
        """Return the rows in chunks that fit into memory, and note the room for caches."""
        room = int(_USABLE_MEMORY * available_bytes(self._hardware.device)) // self._sharing
        scored_tokens = max(self._rows.lengths) if self._layers[0].forms_scores else 0
        per_pass = _bytes_per_pass_token(encoder, itemsize, scored_tokens)
        most = _for_device(_BATCH_TOKENS, self._hardware.device)
        # Captured passes keep their memory, beside that of passes that are not captured.
        passes = 2 if self.device.type == "cuda" else 1
        tokens = max(1, min(most, room // (passes + 1) // per_pass))
        self._tokens_per_pass, self._room = tokens, room - passes * tokens * per_pass
        return [Chunk(rows, self._pack(rows)) for rows in cut_rows(self._rows.lengths, tokens)]

    def _plan_caches(self, chunks: Sequence[Chunk]) -> None:
        """Mark the chunks whose state fits into memory; nothing is cached yet."""
        has_input = self._cached == "neurons" and self._layers[self._first].mixes_tokens
        columns = self._columns(self._cached, self._first)
        columns += (2 if has_input else 1) * self._encoder.hidden_size
        room = self._room // self._hardware.dtype.itemsize
        for chunk in chunks:
            chunk.state, chunk.graphs = None, {}
            needed = columns * (len(chunk.rows) if self._first_only else chunk.batch.num_tokens)
            chunk.may_cache = needed <= room
            room -= needed if needed <= room else 0
        uncached = sum(len(chunk.rows) for chunk in chunks if not chunk.may_cache)
        if uncached:
            logger.warning(
                "%s: %d of %d reward rows do not fit into memory and are recomputed for "
                "each reward; lower reward.max_rows to use fewer",
                self._place, uncached, len(self._rows),
            )  # fmt: skip

    def _pack(self, rows: Sequence[int]) -> PackedBatch:
        return PackedBatch(tuple(self._rows.lengths[row] for row in rows), self._hardware.device)

    def _below(self, chunk: Chunk) -> State:
        """Return the first searched layer's state for the rows of a chunk."""
        if chunk.state is not None:
            return chunk.state
        rows, device = self._rows, self._hardware.device
        inputs, _ = part_batch(pad_batch([rows[row] for row in chunk.rows], rows.pad_token_id))
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in inputs.items()}
        # (rows, longest, hidden)
        embedded = self._encoder.embed(inputs["input_ids"], inputs.get("token_type_ids"))
        hidden = embedded[inputs["attention_mask"].bool()]  # (tokens, hidden)
        for layer in self._layers[: self._first]:
            hidden = layer.finish(layer.context(hidden, chunk.batch), hidden, chunk.batch)
        searched = self._layers[self._first]
        context, hidden = self._attend(searched, self._first, hidden, chunk.batch)
        state = State(context, hidden, None)
        if self._cached == "neurons":
            below = hidden if searched.mixes_tokens else None
            state = State(*searched.expand(context, hidden), below)
        if chunk.may_cache:
            chunk.state = state
        return state

    def _attend(
        self, layer: PackedLayer, number: int, hidden: torch.Tensor, batch: PackedBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a layer's context and its input; of first tokens only if no others are read."""
        if number == self._encoder.num_layers - 1 and self._last_reads_first:
            return layer.first_context(hidden, batch), hidden[batch.firsts]
        return layer.context(hidden, batch), hidden

    # --- computed for each score ---------------------------------------------------------------

    def _weights(self, plans: Sequence[PruningPlan], sites: Sites) -> torch.Tensor:
        """Return the weight of each column, 0 or 1: (masks, columns of all sites)."""
        found = []
        for kind, layer in sites:
            kept = torch.ones(len(plans), self._totals[kind], dtype=self._hardware.dtype)
            for row, plan in enumerate(plans):
                kept[row, list(getattr(plan, kind).get(layer, ()))] = 0
            kept = kept[:, self._places[kind, layer].long()]  # an empty tensor has no indices
            found.append(kept.repeat_interleave(self._unit_width(kind), dim=1))
        return torch.cat(found, dim=1).to(self._hardware.device)

    def _unit_width(self, kind: str) -> int:
        return self._encoder.head_dim if kind == "heads" else 1

    def _columns(self, kind: str, layer: int) -> int:
        return len(self._present[kind, layer]) * self._unit_width(kind)

    @torch.inference_mode()
    def _by_chunk(self, compute: Callable[[Chunk], torch.Tensor]) -> torch.Tensor:
        """Return the logits of all rows, longest first: (masks, rows or tokens, labels)."""
        assert self._chunks is not None
        chunks, logits = list(self._chunks), []
        while chunks:
            chunk = chunks.pop(0)
            try:
                logits.append(compute(chunk))
            except torch.OutOfMemoryError as error:
                chunks = self._halve(chunk, error) + chunks
        return torch.cat(logits, dim=1).float()

    def _chunk_logits(self, chunk: Chunk, weights: torch.Tensor, sites: Sites) -> torch.Tensor:
        if not (self._hardware.device.type == "cuda" and chunk.may_cache):
            return self._above(chunk, weights, sites)
        shape = sites, len(weights)
        if shape not in chunk.graphs:
            chunk.graphs[shape] = self._capture(chunk, weights, sites)
        captured = chunk.graphs[shape]
        captured.weights.copy_(weights)
        captured.graph.replay()
        return captured.logits.clone()  # another graph may use their memory

    def _above(self, chunk: Chunk, weights: torch.Tensor, sites: Sites) -> torch.Tensor:
        """Return the logits of a chunk with weighted columns: (masks, rows or tokens, labels)."""
        parts = torch.split(weights, [self._columns(*site) for site in sites], dim=1)
        weight_of = dict(zip(sites, parts, strict=True))
        masks, batch = len(weights), chunk.batch.repeated(len(weights))
        state = self._below(chunk)
        residual = _repeat(state.residual, masks)
        searched, *above = self._layers[self._first :]
        heads, neurons = (weight_of.get((kind, self._first)) for kind in KINDS)
        if self._cached == "heads":
            hidden = searched.finish(state.inputs, residual, batch, heads, neurons)
        else:
            below = None if state.hidden is None else _repeat(state.hidden, masks)
            hidden = searched.contract(state.inputs, residual, below, batch, neurons)
        return self._climb(above, hidden, batch, weight_of)

    def _climb(
        self,
        above: Sequence[PackedLayer],
        hidden: torch.Tensor,
        batch: PackedBatch,
        weight_of: Mapping[Site, torch.Tensor],
    ) -> torch.Tensor:
        """Return the logits after the layers above the first: (masks, rows or tokens, labels)."""
        for number, layer in enumerate(above, self._first + 1):
            context, hidden = self._attend(layer, number, hidden, batch)
            heads, neurons = (weight_of.get((kind, number)) for kind in KINDS)
            hidden = layer.finish(context, hidden, batch, heads, neurons)
        reads = self._encoder.reads
        if reads in ("mean", "max"):
            pool = torch.mean if reads == "mean" else torch.amax
            hidden = batch.join([pool(block, 1, keepdim=True) for block in batch.blocks(hidden)])
        elif reads == "first" and not self._last_reads_first:
            hidden = hidden[batch.firsts]
        logits = self._encoder.classify(hidden)
        return logits.view(batch.times, -1, logits.shape[-1])

    def _capture(self, chunk: Chunk, weights: torch.Tensor, sites: Sites) -> _Graph:
        """Capture a pass, so that a score needs no kernel launches.

        All graphs share the memory of one pass, because they never run together.
        """
        assert self._chunks is not None
        static, side = weights.clone(), self._side_stream
        living = (found.graph for each in self._chunks for found in each.graphs.values())
        sharer = next(living, None)  # torch releases a pool that no graph uses any longer
        pool = None if sharer is None else sharer.pool()
        graph = torch.cuda.CUDAGraph()
        with _process_lock:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # compiles kernels and fills caches before the capture
                self._above(chunk, static, sites)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                logits = self._above(chunk, static, sites)
        return _Graph(static, logits, graph)

    @cached_property
    def _side_stream(self) -> torch.cuda.Stream:
        """The stream of all captures: memory is used again only on the stream that had it.

        It is on this device; torch's default capture stream is on the device that was first.
        """
        stream: torch.cuda.Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return stream

    def _halve(self, chunk: Chunk, error: torch.OutOfMemoryError) -> list[Chunk]:
        """Replace a chunk that ran out of memory by two, which are not cached."""
        if len(chunk.rows) == 1:
            raise ModelError(
                f"{self._place}: one row of {chunk.batch.num_tokens} tokens does not fit into the "
                f"memory of {self._hardware.name} ({error}); free some of it, or lower max_length"
            ) from error
        assert self._chunks is not None
        at, middle = self._chunks.index(chunk), len(chunk.rows) // 2
        parts = chunk.rows[:middle], chunk.rows[middle:]
        halves = [Chunk(rows, self._pack(rows)) for rows in parts]
        self._chunks[at : at + 1] = halves
        self._free_unused()
        logger.warning(
            "%s: out of memory, a batch of %d rows is halved", self._place, len(chunk.rows)
        )
        return halves

    def _free_unused(self) -> None:
        with _process_lock:
            self._hardware.free_unused()

    def _masks_per_pass(self) -> int:
        assert self._chunks is not None
        if len(self._chunks) > 1:
            return 1
        batch = self._chunks[0].batch
        tokens = len(batch.lengths) if self._first_only else batch.num_tokens
        full = min(self._tokens_per_pass, _for_device(_FULL_TOKENS, self._hardware.device))
        return max(1, min(_MOST_MASKS, full // tokens))


class LayerScorer(PackedScorer, MaskScorer):
    """Scores masks of one layer."""


class PlanScorer(PackedScorer):
    """Scores plans for the whole model: heads and neurons of all layers at once.

    A CPU computes with sliced matrices, so that a plan costs what it leaves of a pass. A GPU masks
    instead, because the shapes of a captured CUDA graph cannot change. Only what the first layer
    computes before the plan matters is cached.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        rows: EncodedRows,
        metric: str,
        hardware: Hardware,
    ) -> None:
        super().__init__(model, None, rows, metric, hardware)

    def _logits_of(self, plans: Sequence[PruningPlan]) -> Iterator[torch.Tensor]:
        if self.device.type == "cuda":
            yield from super()._logits_of(plans)
            return
        self._prepare("heads")
        for plan in plans:
            columns = self._weights([plan], (("heads", 0),))[0].bool()
            compute = partial(self._sliced, layers=self._slice(plan), columns=columns)
            yield self._by_chunk(compute)[0]

    def _slice(self, plan: PruningPlan) -> list[PackedLayer]:
        model = self._encoder.model
        # The copy shares all parameters; removal replaces them by new ones.
        twin = copy.deepcopy(model, {id(each): each for each in model.parameters()})
        remove_remaining(twin, plan)
        return pack_layers(encoder_of(twin), max(self._rows.lengths), None)

    def _sliced(
        self, chunk: Chunk, layers: Sequence[PackedLayer], columns: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of a chunk: (1, rows or tokens, labels)."""
        first, *above = layers
        state = self._below(chunk)
        hidden = first.finish(state.inputs[:, columns], state.residual, chunk.batch)
        return self._climb(above, hidden, chunk.batch, {})


def _repeat(tokens: torch.Tensor, times: int) -> torch.Tensor:
    """Return copies of (tokens, hidden), one after the other."""
    return tokens if times == 1 else tokens.expand(times, *tokens.shape).flatten(0, 1)


def _for_device(values: dict[str, int], device: torch.device) -> int:
    return values.get(device.type, values["cpu"])


def available_bytes(device: torch.device) -> int:
    """Return the memory that can still be allocated, within the limit of process or container."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        allocated = torch.cuda.memory_allocated(device)
        unused = torch.cuda.memory_reserved(device) - allocated
        limit = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return max(0, min(free + unused, limit - allocated))
    import psutil

    found = int(psutil.virtual_memory().available)
    for path in _CONTAINER_LIMITS:
        text = path.read_text().strip() if path.is_file() else "max"
        if text != "max":
            found = min(found, int(text) - psutil.Process().memory_info().rss)
    return max(0, found)


def _bytes_per_pass_token(encoder: Encoder, itemsize: int, scored_tokens: int) -> int:
    """Estimate the memory of a token while a layer is computed.

    It holds projections, contexts, the feed-forward and the sums in between. If attention stores
    its scores, `scored_tokens` is the number of tokens that a token attends to.
    """
    width = encoder.num_heads * encoder.head_dim
    expanded = max(encoder.parts(layer).expand.out_features for layer in range(encoder.num_layers))
    scores = 8 * encoder.num_heads * scored_tokens
    return int((4 * width + 2 * expanded + 5 * encoder.hidden_size + scores) * itemsize)


def score_key(identity: str, rows: EncodedRows, metric: str, precision: str) -> str:
    """Return the key of all scores of a model on these rows."""
    described = f"{identity}/{rows.content_hash}/{metric}/{precision}/{VERSION}"
    return hashlib.sha256(described.encode()).hexdigest()[:24]
