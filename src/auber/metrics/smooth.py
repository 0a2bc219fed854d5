"""Smooth rewards: the share of the labels' entropy that the logits explain.

This is McFadden's pseudo R squared, 1 - NLL / H. NLL is the mean negative log-likelihood of the
labels under the best scale of the logits, at least 0, and the best bias of each class. H is the
entropy of the class frequencies. Changes in confidence, or in favour of one class, therefore cost
nothing, as any tuning corrects them. Unlike accuracy, the share changes with every row's
probability.

Contract: a float64 scalar in [0, 1] on the rows' device, without waiting for that device. It is 0
if the best scale is not positive, and if all labels are equal; otherwise, logits that are not
finite give NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from auber.metrics.tags import TagTruth

# A GPU takes all steps, as stopping early would wait for it. Six find the optimum of ordinary
# logits, fourteen that of a hundred classes, some of them rare. Rows that are separated perfectly
# have no optimum; the share then ends below 1, usually by less than a thousandth, and by a few
# hundredths for few rows with outliers.
_STEPS = 16
_ENOUGH = 1e-13  # stop when a step promises less gain
_BACK = 0.25  # shorten a step that does not help to this share
# The furthest that one step moves the scale or a bias. Rare ones among many classes have such flat
# curves that a full step overshoots a hundredfold, and shortening it would use up all steps.
_FURTHEST = 4.0
_RIDGE = 1e-10  # moving all biases together changes nothing, so it has no optimum
_NO_SPREAD = 1e-12  # of squares, relative to the logits': rounding of equal float32 values


def class_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Return logits (rows, classes) beside labels (rows,): float64 (rows, classes + 1)."""
    return torch.cat((logits.double(), labels[:, None].double()), dim=1)


def tag_rows(logits: Tensor, truth: TagTruth) -> Tensor:
    """Return the same for every word, from the logits of all tokens: float64 (words, tags + 1)."""
    return class_rows(logits.index_select(0, truth.places), truth.tags)


def explained_share(rows: Tensor) -> Tensor:
    """Return the share of the labels' entropy that the logits explain; see `class_rows`."""
    found = _fit(rows)
    share = torch.where(found.fit[0] > 0, (1 - found.loss / found.entropy).clamp(0, 1), 0.0)
    share = torch.where(rows.isfinite().all(), share, torch.nan)
    return torch.where(found.entropy > 0, share, 0.0)


def explained_by_row(rows: Tensor) -> Tensor:
    """Return each row's contribution to the share, which is their mean: float64 (rows,)."""
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
    """Maximise the likelihood by Newton's method, from scale 0 and the class frequencies.

    The likelihood is concave, steps are bounded, and a step is taken only if it helps, so it cannot
    diverge.
    """
    logits, labels = rows[:, :-1].T, rows[:, -1].long()  # (classes, rows), (rows,)
    counts = rows.new_zeros(len(logits)).scatter_add_(0, labels, torch.ones_like(rows[:, -1]))
    frequencies = counts / max(1, len(rows))  # (classes,)
    entropy = -torch.special.xlogy(frequencies, frequencies).sum()
    features = _standardized(logits, frequencies > 0)  # (classes, rows)
    # All that the likelihood needs of the labels: the mean of what scale and biases multiply.
    of_labels = features.gather(0, labels[None]).sum(1) / max(1, len(rows))
    wanted = torch.cat((of_labels, frequencies))  # (1 + classes,)

    # A class without rows has probability 0, and its bias does not move.
    biases = frequencies.clamp_min(torch.finfo(torch.float64).tiny).log()
    fit = torch.cat((torch.zeros_like(biases[:1]), biases))  # (1 + classes,): scale and biases
    loss, step, gain = _newton(fit, features, wanted)
    for _ in range(_STEPS):
        if rows.device.type == "cpu" and gain < _ENOUGH:
            break
        tried = fit + step
        found, newton, gain = _newton(tried, features, wanted)
        better = found < loss
        fit, loss = torch.where(better, tried, fit), torch.where(better, found, loss)
        step = torch.where(better, newton, _BACK * step)
    return _Fit(fit, features, frequencies, entropy, loss)


def _newton(fit: Tensor, features: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, Newton's bounded step, and twice the gain that the full step promises."""
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
    # The negative second derivatives are covariances.
    curve = expected.diag()
    curve[0, 1:] = curve[1:, 0] = scale_by_class
    curve[0, 0] = (weighted * features).sum()
    means = torch.cat((weighted.sum(0, keepdim=True), shares))  # (1 + classes, rows)
    curve = torch.addmm(curve, means, means.T, alpha=-1) / num_rows
    curve.diagonal().add_(_RIDGE)
    slope = wanted - expected / num_rows
    step, _ = torch.linalg.solve_ex(curve, slope)  # without a check, which would wait for a GPU
    gain = slope @ step
    return loss, step * (_FURTHEST / step.abs().max()).clamp(max=1), gain


def _standardized(logits: Tensor, present: Tensor) -> Tensor:
    """Return logits (classes, rows) with mean 0 per class and row and spread 1.

    They are 0 for absent classes, and if the logits do not vary.
    """
    present, num_rows = present[:, None], max(1, logits.shape[1])
    logits = torch.where(present, logits, 0.0)
    num_present = present.sum()
    centred = logits - logits.sum(1, keepdim=True) / num_rows
    centred = torch.where(present, centred - centred.sum(0) / num_present, 0.0)
    squares = centred.square().sum()
    some = squares > _NO_SPREAD * logits.square().sum()
    return torch.where(some, centred / (squares / (num_present * num_rows)).sqrt(), 0.0)
