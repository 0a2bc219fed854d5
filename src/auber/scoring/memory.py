"""How much may be kept: an estimate of what a slab needs, against what the device has left."""

from __future__ import annotations

import torch

from auber.models.encoders.base import Encoder

# The allocator's rounding, the libraries' work spaces and other tenants of the device take their part.
SAFETY = 0.8


def available_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on a device, a limit set on this process included."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        allocated = torch.cuda.memory_allocated(device)
        unused = torch.cuda.memory_reserved(device) - allocated
        limit = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return max(0, min(free + unused, limit - allocated))
    import psutil

    return int(psutil.virtual_memory().available)


def cached_bytes_per_token(encoder: Encoder, layer: int, itemsize: int) -> int:
    """What a token keeps between two scores: the searched layer's input and its heads' contexts."""
    width = len(encoder.present(layer)) * encoder.head_dim
    return int((encoder.hidden_size + width) * itemsize)


def passing_bytes_per_token(encoder: Encoder, itemsize: int, scored_tokens: int = 0) -> int:
    """What a token needs while a layer is computed: projections, contexts, the feed-forward and the sums between.

    `scored_tokens` is how many tokens it attends to where attention forms its scores: they and their terms stand beside.
    """
    width = encoder.num_heads * encoder.head_dim
    expanded: int = encoder.parts(0).expand.out_features
    scores = 8 * encoder.num_heads * scored_tokens
    return int((4 * width + 2 * expanded + 5 * encoder.hidden_size + scores) * itemsize)
