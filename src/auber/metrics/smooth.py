"""How much of the labels the logits explain: a measure that moves with every row's probability, not with decisions alone.

It is McFadden's pseudo R squared, 1 - NLL / H: NLL is the labels' mean negative log-likelihood under the best scale of the
logits, not below 0, and the best bias of each class; H is the entropy of the labels' frequencies. Being surer, less sure or
fonder of a class therefore costs nothing: any tuning sets that right.

Contract: a float64 scalar in [0, 1] on the rows' device, which is never waited for. It is 0 where the best scale is not
positive and where all labels are the same, whatever the logits; otherwise, logits that are not finite give not a number.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from auber.metrics.tags import TagTruth

# At most: a GPU takes them all, as stopping early would wait for it. Six find the optimum of ordinary logits, fourteen that of a
# hundred classes with rare ones among them. Rows that scale and biases tell apart without a mistake have none, and the share then
# ends short of 1: most often by less than a thousandth, with few rows and outliers among their logits by some hundredths.
_STEPS = 16
_ENOUGH = 1e-13  # a step that promises less gain is the last
_BACK = 0.25  # a step that does not help is tried again so much shorter
# The furthest that a step moves the scale or a bias. Of two classes hardly one would go so far. Of many, rare ones have curves so flat
# that a step overshoots a hundredfold: to shorten it until it helps would use up all steps.
_FURTHEST = 4.0
_RIDGE = 1e-10  # all biases may move together, which changes nothing and has no best place
_NO_SPREAD = (
    1e-12  # of squares beside those of the logits: the rounding error of equal float32 values
)


def class_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Logits (rows, classes) and labels (rows,) side by side: float64 (rows, classes + 1)."""
    return torch.cat((logits.double(), labels[:, None].double()), dim=1)


def tag_rows(logits: Tensor, truth: TagTruth) -> Tensor:
    """The same of every word, from the logits of all tokens: float64 (words, tags + 1)."""
    return class_rows(logits.index_select(0, truth.places), truth.tags)


def explained_share(rows: Tensor) -> Tensor:
    """The share of the labels' entropy that the logits explain, from rows of logits and label."""
    found = _fit(rows)
    share = torch.where(found.fit[0] > 0, (1 - found.loss / found.entropy).clamp(0, 1), 0.0)
    share = torch.where(rows.isfinite().all(), share, torch.nan)
    return torch.where(found.entropy > 0, share, 0.0)


def explained_by_row(rows: Tensor) -> Tensor:
    """What each row gives of the share, which is their mean: float64 (rows,)."""
    found, labels = _fit(rows), rows[:, -1].long()
    outputs = torch.addcmul(found.fit[1:, None], found.features, found.fit[0])  # (classes, rows)
    likelihoods = outputs.log_softmax(0).gather(0, labels[None])[0]  # (rows,)
    of_classes = found.frequencies.log()[labels]
    shares = 1 + torch.where(found.fit[0] > 0, likelihoods, of_classes) / found.entropy
    shares = torch.where(rows.isfinite().all(), shares, torch.nan)
    return torch.where(found.entropy > 0, shares, 0.0)


class _Fit(NamedTuple):
    fit: Tensor  # (1 + classes,): scale and biases
    features: Tensor  # (classes, rows): what the scale multiplies
    frequencies: Tensor  # (classes,)
    entropy: Tensor  # of the frequencies
    loss: Tensor  # the mean negative log-likelihood


def _fit(rows: Tensor) -> _Fit:
    """Newton's method from scale 0 and the classes' frequencies, where the logits explain nothing.

    The likelihood is concave, no step goes further than `_FURTHEST`, and one is taken only where it helps, so that no logits make it
    run away.
    """
    logits, labels = rows[:, :-1].T, rows[:, -1].long()  # (classes, rows), (rows,)
    counts = rows.new_zeros(len(logits)).scatter_add_(0, labels, torch.ones_like(rows[:, -1]))
    frequencies = counts / max(1, len(rows))  # (classes,)
    entropy = -torch.special.xlogy(frequencies, frequencies).sum()
    features = _standardized(logits, frequencies > 0)  # (classes, rows)
    # Of the labels the likelihood needs these alone: the mean of what the scale and each bias multiply.
    of_labels = features.gather(0, labels[None]).sum(1) / max(1, len(rows))
    wanted = torch.cat((of_labels, frequencies))  # (1 + classes,)

    # A class without rows is as good as left out: its probability is 0, and its bias stays where it is.
    biases = frequencies.clamp_min(torch.finfo(torch.float64).tiny).log()
    fit = torch.cat((torch.zeros_like(biases[:1]), biases))  # (1 + classes,): scale and biases
    loss, step, gain = _newton(fit, features, wanted)
    for _ in range(_STEPS):
        if rows.device.type == "cpu" and gain < _ENOUGH:
            break  # where nobody waits for the answer
        tried = fit + step
        found, newton, gain = _newton(tried, features, wanted)
        better = found < loss
        fit, loss = torch.where(better, tried, fit), torch.where(better, found, loss)
        step = torch.where(better, newton, _BACK * step)
    return _Fit(fit, features, frequencies, entropy, loss)


def _newton(fit: Tensor, features: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean negative log-likelihood, Newton's step from there as far as it may go, and twice the gain that all of it promises."""
    num_rows = max(1, features.shape[1])
    outputs = torch.addcmul(fit[1:, None], features, fit[0])  # (classes, rows)
    highest = outputs.amax(0)  # (rows,)
    powers = (outputs - highest).exp()
    totals = powers.sum(0)
    loss = (highest + totals.log()).sum() / num_rows - fit @ wanted
    shares = powers / totals  # (classes, rows): probabilities
    weighted = shares * features
    by_class, scale_by_class = shares.sum(1), weighted.sum(1)
    expected = torch.cat((scale_by_class.sum()[None], by_class))  # (1 + classes,)
    # Minus the second derivatives are covariances: the mean of the products less the products of the means.
    curve = expected.diag()
    curve[0, 1:] = curve[1:, 0] = scale_by_class
    curve[0, 0] = (weighted * features).sum()
    means = torch.cat((weighted.sum(0, keepdim=True), shares))  # (1 + classes, rows)
    curve = torch.addmm(curve, means, means.T, alpha=-1) / num_rows
    curve.diagonal().add_(_RIDGE)
    slope = wanted - expected / num_rows
    step, _ = torch.linalg.solve_ex(curve, slope)  # checks nothing, so that nobody waits for a GPU
    gain = slope @ step
    return loss, step * (_FURTHEST / step.abs().max()).clamp(max=1), gain


def _standardized(logits: Tensor, present: Tensor) -> Tensor:
    """Logits (classes, rows) less what biases and softmax undo, of spread 1; 0 for absent classes and where nothing is left."""
    present, num_rows = present[:, None], max(1, logits.shape[1])
    logits = torch.where(present, logits, 0.0)
    num_present = present.sum()
    centred = logits - logits.sum(1, keepdim=True) / num_rows
    centred = torch.where(present, centred - centred.sum(0) / num_present, 0.0)
    squares = centred.square().sum()
    some = squares > _NO_SPREAD * logits.square().sum()
    return torch.where(some, centred / (squares / (num_present * num_rows)).sqrt(), 0.0)
