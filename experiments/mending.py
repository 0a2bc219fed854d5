"""Heads removed so that those that stay say what they can of what goes.

What the removed heads of a layer would have written is foretold, by linear regression over the tokens of train, from what the kept
ones compute, and added to their output projection: one closed form of the covariance of the layer's heads. `redundant` ranks heads
by the same: first goes what the others foretell best.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from auber.devices import Hardware
from auber.encoders import encoder_of
from auber.methods.passes import padded_batches
from auber.plan import PruningPlan
from auber.surgery import remove_heads
from auber.tasks.encoding import EncodedRows

RIDGE = 1e-3  # of the mean variance of a feature
MOST_ROWS = 4000
_TOKENS_PER_BATCH = 16384


@dataclass(frozen=True)
class Moments:
    """Of what the heads of a layer compute, over tokens."""

    mean: Tensor  # (features,), float64
    covariance: Tensor  # (features, features)


def moments(model: Any, layer: int, rows: EncodedRows, hardware: Hardware) -> Moments:
    """Of what reaches a layer's output projection, over the tokens of (some of) the rows."""
    output = encoder_of(model).parts(layer).output
    rows = rows.select(tuple(range(min(len(rows), MOST_ROWS))))
    width, device = output.in_features, hardware.device
    total = torch.zeros(width, dtype=torch.float64, device=device)
    products = torch.zeros(width, width, dtype=torch.float64, device=device)
    heard: list[Tensor] = []
    hook = output.register_forward_pre_hook(lambda _, arguments: heard.append(arguments[0].detach()))
    was_training, count = model.training, 0
    model.to(device).eval()
    try:
        with torch.inference_mode():
            for inputs, _ in padded_batches(rows, _TOKENS_PER_BATCH, device):
                heard.clear()
                model(**inputs)
                said = heard[0][inputs["attention_mask"].bool()].float()  # (tokens, features)
                total += said.sum(0, dtype=torch.float64)
                products += (said.T @ said).double()
                count += len(said)
    finally:
        hook.remove()
        model.train(was_training)
    mean = total / count
    return Moments(mean, products / count - torch.outer(mean, mean))


def foretell(covariance: Tensor, kept: Tensor, gone: Tensor) -> Tensor:
    """The regression of the features that go on those that stay: (gone, kept)."""
    own = covariance[kept][:, kept]
    ridge = RIDGE * own.diagonal().mean() * torch.eye(len(kept), dtype=own.dtype, device=own.device)
    regression: Tensor = torch.linalg.solve(own + ridge, covariance[kept][:, gone]).T
    return regression


def remove_mended(model: Any, plan: PruningPlan, rows: EncodedRows, hardware: Hardware) -> None:
    """Remove a plan's heads from an unpruned model, layer by layer, each mended by what reaches it then."""
    encoder = encoder_of(model)
    for layer, heads in sorted(plan.items()):
        found = moments(model, layer, rows, hardware)
        gone = _features(heads, encoder.head_dim, found.mean.device)
        kept = _features(encoder.removed.kept(layer, encoder.num_heads), encoder.head_dim, found.mean.device)
        kept = kept[~torch.isin(kept, gone)]
        output = encoder.parts(layer).output
        weight = output.weight.detach().double()  # (hidden, features)
        regression = foretell(found.covariance, kept, gone)  # (gone, kept)
        added = weight[:, gone] @ regression  # (hidden, kept)
        constant = weight[:, gone] @ (found.mean[gone] - regression @ found.mean[kept])
        remove_heads(model, PruningPlan({layer: heads}))
        output = encoder.parts(layer).output
        with torch.no_grad():
            output.weight += added.to(output.weight)
            output.bias += constant.to(output.bias)


def redundant(model: Any, num_heads: int, rows: EncodedRows, hardware: Hardware) -> PruningPlan:
    """The plan that leaves least unsaid: of what each layer's heads write, the share of the variance that the others do not foretell.

    Greedy, a head at a time from the layer that loses least by its next one; every layer keeps a head.
    """
    model = copy.deepcopy(model)
    encoder = encoder_of(model)
    gone: dict[int, list[int]] = {layer: [] for layer in range(encoder.num_layers)}
    facts = {}
    for layer in gone:
        weight = encoder.parts(layer).output.weight.detach().double()
        covariance = moments(model, layer, rows, hardware).covariance
        facts[layer] = (covariance, weight.T @ weight, float((weight @ covariance * weight).sum()))
    lost = dict.fromkeys(gone, 0.0)
    nexts = {layer: _next(facts[layer], gone[layer], encoder.num_heads, encoder.head_dim) for layer in gone}
    for _ in range(num_heads):
        layer = min(nexts, key=lambda layer: nexts[layer][0] - lost[layer])
        lost[layer], head = nexts[layer]
        gone[layer].append(head)
        nexts[layer] = _next(facts[layer], gone[layer], encoder.num_heads, encoder.head_dim)
    return PruningPlan({layer: tuple(sorted(heads)) for layer, heads in gone.items() if heads})


def _next(facts: tuple[Tensor, Tensor, float], gone: list[int], num_heads: int, head_dim: int) -> tuple[float, int]:
    """The head that loses least beside those gone, after what is lost then."""
    left = [head for head in range(num_heads) if head not in gone]
    if len(left) < 2:
        return float("inf"), -1
    return min((_unsaid(facts, [*gone, head], num_heads, head_dim), head) for head in left)


def _unsaid(facts: tuple[Tensor, Tensor, float], heads: list[int], num_heads: int, head_dim: int) -> float:
    """The share of what a layer's heads write, by variance, that is lost without some of them."""
    covariance, gram, whole = facts
    gone = _features(heads, head_dim, covariance.device)
    kept = _features([head for head in range(num_heads) if head not in heads], head_dim, covariance.device)
    rest = covariance[gone][:, gone] - foretell(covariance, kept, gone) @ covariance[kept][:, gone]
    return float((rest * gram[gone][:, gone]).sum()) / whole


def _features(heads: Any, head_dim: int, device: torch.device) -> Tensor:
    starts = torch.tensor(list(heads), dtype=torch.long, device=device) * head_dim
    return (starts[:, None] + torch.arange(head_dim, device=device)).flatten()
