"""Two GPU kernels in Triton: attention over packed rows, and residual sum with layer norm.

Attention works row by row on the true lengths, so a row of 11 tokens costs 11 and not 128. A bias
by relative position (MPNet's, ModernBERT's windows) is added on the way. Importing this module
needs Triton, which CUDA builds of torch include.
"""

# Triton compiles these functions from their source; its language has no annotations for mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
# mypy: disable-error-code="import-untyped,import-not-found"

from __future__ import annotations

import torch
import triton
import triton.language as tl

HEAD_DIMS = (16, 32, 64, 128)  # the sizes of a tile of the matrix unit


@triton.jit
def _attention_kernel(
    query, key, value, bias, out, starts,
    query_stride, key_stride, out_stride, bias_reach, scale,
    FIRST_ONLY: tl.constexpr, HAS_BIAS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(starts + row).to(tl.int64)
    length = (tl.load(starts + row + 1) - start).to(tl.int32)
    if block * BLOCK >= length:
        return
    dims = head * HEAD_DIM + tl.arange(0, HEAD_DIM)
    rows = block * BLOCK + tl.arange(0, BLOCK)
    asked = rows < (1 if FIRST_ONLY else length)
    query_rows = (row if FIRST_ONLY else start) + rows.to(tl.int64)
    tile = tl.load(
        query + query_rows[:, None] * query_stride + dims[None, :], mask=asked[:, None], other=0.0
    )
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, HEAD_DIM], tl.float32)
    for first in range(0, length, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        there = columns < length
        places = (start + columns)[:, None] * key_stride + dims[None, :]
        keys = tl.load(key + places, mask=there[:, None], other=0.0)
        values = tl.load(value + places, mask=there[:, None], other=0.0)
        scores = tl.dot(tile, tl.trans(keys), input_precision="ieee") * scale
        if HAS_BIAS:
            offsets = columns[None, :] - rows[:, None] + bias_reach
            both = asked[:, None] & there[None, :]
            scores += tl.load(bias + head * (2 * bias_reach + 1) + offsets, mask=both, other=0.0)
        scores = tl.where(there[None, :], scores, -float("inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - new_best[:, None])
        shrink = tl.exp(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None] + tl.dot(
            weights.to(values.dtype), values, input_precision="ieee"
        )
        best = new_best
    answer = (mixed / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + query_rows[:, None] * out_stride + dims[None, :], answer, mask=asked[:, None])


@triton.jit
def _add_norm_kernel(update, residual, weight, bias, out, size, epsilon, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    there = columns < size
    total = tl.load(update + token * size + columns, mask=there, other=0.0).to(tl.float32)
    total += tl.load(residual + token * size + columns, mask=there, other=0.0).to(tl.float32)
    centred = tl.where(there, total - tl.sum(total, 0) / size, 0.0)
    scaled = centred * tl.rsqrt(tl.sum(centred * centred, 0) / size + epsilon)
    scaled = scaled * tl.load(weight + columns, mask=there, other=0.0).to(tl.float32)
    scaled += tl.load(bias + columns, mask=there, other=0.0).to(tl.float32)
    tl.store(out + token * size + columns, scaled.to(out.dtype.element_ty), mask=there)


def packed_attention(
    query: torch.Tensor,  # (tokens, heads * head_dim), or (rows, ...) of first tokens only
    key: torch.Tensor,  # (tokens, heads * head_dim), like value; slices of one matrix are allowed
    value: torch.Tensor,
    starts: torch.Tensor,  # (rows + 1,)
    longest: int,
    mean_length: float,
    head_dim: int,
    scale: float,
    bias: torch.Tensor | None,  # (heads, 2 * reach + 1), by key position minus query position
    *,
    first_only: bool,
) -> torch.Tensor:
    """Return each head's attention output, shaped like the query."""
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    num_heads = query.shape[1] // head_dim
    block = 16 if mean_length <= 24 or first_only else 32 if mean_length <= 48 else 64
    grid = (starts.numel() - 1, num_heads, 1 if first_only else triton.cdiv(longest, block))
    _attention_kernel[grid](
        query, key, value, query if bias is None else bias, out, starts,
        query.stride(0), key.stride(0), out.stride(0), 0 if bias is None else bias.shape[1] // 2,
        scale, first_only, bias is not None, head_dim, block, num_warps=2 if block < 64 else 4,
    )  # fmt: skip
    return out


def add_norm(
    update: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    """Return the layer norm of the sum of (tokens, size) tensors, computed in float32."""
    out = torch.empty_like(update)
    size = update.shape[1]
    _add_norm_kernel[(update.shape[0],)](
        update,
        residual,
        weight,
        bias,
        out,
        size,
        epsilon,
        triton.next_power_of_2(size),
        num_warps=4,
    )
    return out
