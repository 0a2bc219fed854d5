"""How far a difference between two methods can be trusted: means, paired differences, corrected tests, a verdict in words.

The rule, one for all tables: a difference is shown when its t interval leaves out 0 and its p, corrected by Holm's method
for all comparisons of its family, is below 0.05. The p is that of the exact sign-flip test wherever this test could get
there at all (2 / 2^n times the size of the family below 0.05: 6 pairs for one comparison, 9 for eight), and that of the
paired t test with fewer pairs, where it rests on differences that are about normal. Which one depends on the numbers of
pairs and of comparisons alone, never on the scores. Fewer than 3 pairs show nothing, nor do differences that are all equal,
which have no deviation to judge by. Pairs that share a dev set speak of other seeds, not of other rows.

Checked by simulation at 3, 5 and 15 pairs. Methods that do not differ are exchangeable, so their differences are symmetric:
false alarms are at most 5 %, for normal differences and for steps of single dev rows. Skew is not covered by that: with a
mean of 0 and a skewness of 0.5 the rate at 5 pairs, where the t test decides, is 5.6 %, and the interval covers 94 %; on
exponential differences it covers 89 to 91 %. A studentised bootstrap is infinite at 3 pairs and a third wider at 5 for the same
coverage, a percentile bootstrap far too narrow at both, so the interval is Student's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy import stats as distributions

from auber.errors import ConfigError
from auber.system.seeds import generator

LEVEL = 0.05
POWER = 0.8
FEWEST_PAIRS = 3  # with two, one difference of two numbers would stand for all deviation

EXACT_PAIRS = (
    20  # up to so many pairs every assignment of signs is enumerated: four tasks of five seeds
)
_DRAWS = 99_999
_CHUNK = 10_000

# Scores come in points, so that what is this much smaller than one is the rounding error of sums and means.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Summary:
    """Repeated measurements in short; one alone has neither deviation nor interval, equal ones have no interval."""

    n: int
    mean: float
    deviation: float | None  # of the sample, with n - 1
    low: float | None  # the 95 % t interval of the mean
    high: float | None


@dataclass(frozen=True)
class Paired:
    """Paired differences in short, and what they say against no difference at all."""

    differences: Summary
    p_t: float  # of the paired t test; 1 where there is no deviation to judge by
    p_exact: float  # of the sign-flip test
    smallest_p: float  # the least the sign-flip test can give with so many pairs
    detectable: (
        float | None
    )  # the difference found with 80 % power at the 5 % level, were the deviation the true one


@dataclass(frozen=True)
class Comparison:
    """One paired comparison among those of its family."""

    paired: Paired
    family: int  # comparisons corrected for
    exact: bool  # whether p is the sign-flip test's, else the t test's
    p: float
    corrected: float  # 1 where there are too few pairs to be tested
    shown: bool


def summary(values: Sequence[float]) -> Summary:
    """Number, mean, sample deviation and 95 % t interval."""
    data = _checked(values)
    n, mean = len(data), float(data.mean())
    if n == 1:
        return Summary(1, mean, None, None, None)
    deviation = float(data.std(ddof=1))
    if deviation <= _ROUNDING * max(1.0, float(np.abs(data).max())):
        return Summary(n, mean, 0.0, None, None)
    margin = _critical(n) * deviation / math.sqrt(n)
    return Summary(n, mean, deviation, mean - margin, mean + margin)


def paired(differences: Sequence[float]) -> Paired:
    """What differences of pairs (this method minus the other) say."""
    data = _checked(differences)
    found = summary(differences)
    p_t, detectable = 1.0, None
    if found.deviation:
        error = found.deviation / math.sqrt(found.n)
        p_t = float(2 * distributions.t.sf(abs(found.mean) / error, found.n - 1))
        detectable = _noncentrality(found.n) * error
    return Paired(found, p_t, sign_flip(data), smallest_p(found.n), detectable)


def sign_flip(differences: Sequence[float] | np.ndarray) -> float:
    """The two-sided p of the sign-flip test on the mean: exact up to `EXACT_PAIRS` pairs, beyond that by seeded draws.

    If the two methods are exchangeable, each difference was as likely to have the other sign.
    """
    data = _checked(differences)
    bound = abs(float(data.sum())) - _ROUNDING * float(np.abs(data).sum())
    if len(data) > EXACT_PAIRS:
        return _drawn_sign_flip(data, bound)
    # The first sign is held: a two-sided test sees every assignment and its mirror image as one.
    sums = data[:1]  # (2^i,) after i further differences
    for difference in data[1:]:
        sums = np.concatenate((sums + difference, sums - difference))
    return float(np.mean(np.abs(sums) >= bound))


def smallest_p(n: int) -> float:
    """The least p the sign-flip test can give with n pairs."""
    return 2.0 ** (1 - n) if n <= EXACT_PAIRS else 1 / (_DRAWS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values corrected by Holm's method: reject those below the level, and no true one in 95 % of the families."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def compare(family: Mapping[str, Sequence[float]]) -> dict[str, Comparison]:
    """The comparisons of a family (name: differences of its pairs), corrected together by the rule of this module.

    Those of fewer than `FEWEST_PAIRS` can show nothing whatever the scores, and the others are not corrected for them.
    """
    found = {name: paired(differences) for name, differences in family.items()}
    tested = [name for name, each in found.items() if each.differences.n >= FEWEST_PAIRS]
    exact = {name: found[name].smallest_p * len(tested) < LEVEL for name in tested}
    p_values = {name: found[name].p_exact if exact[name] else found[name].p_t for name in tested}
    corrected = dict(zip(tested, holm([p_values[name] for name in tested]), strict=True))
    return {
        name: Comparison(
            each,
            family=len(tested),
            exact=exact[name],
            p=p_values[name],
            corrected=corrected[name],
            shown=_leaves_out_zero(each.differences) and corrected[name] < LEVEL,
        )
        if name in corrected
        else Comparison(
            each, family=len(tested), exact=True, p=each.p_exact, corrected=1.0, shown=False
        )
        for name, each in found.items()
    }


def verdict(comparison: Comparison, *, counted: str = "seeds", unit: str = "points") -> str:
    """The comparison in words; `counted` says what its pairs are."""
    found = comparison.paired.differences
    if found.n == 1:
        return f"one run proves nothing ({_signed(found.mean)} {unit})"
    if found.low is None or found.high is None:
        same = "equal" if abs(found.mean) <= _ROUNDING else f"the same {_signed(found.mean)} {unit}"
        return f"no difference shown ({same} in all {found.n} {counted})"
    if not comparison.shown:
        interval = f"95 % interval {_signed(found.low)} to {_signed(found.high)}"
        reason = ""
        if found.n < FEWEST_PAIRS:
            reason = f"; {FEWEST_PAIRS} are the fewest to show one"
        elif _leaves_out_zero(found):
            several = (
                f" corrected for {comparison.family} comparisons" if comparison.family > 1 else ""
            )
            reason = f"; p {comparison.corrected:.2g}{several}"
        return f"no difference shown ({_signed(found.mean)} {unit}, {interval}, {found.n} {counted}{reason})"
    # The amount is told in the direction of the word, so that both ends of the interval are positive.
    word, low, high = (
        ("ahead", found.low, found.high) if found.mean > 0 else ("behind", -found.high, -found.low)
    )
    return f"{word} by {_plain(abs(found.mean))} {unit}, 95 % interval {_plain(low)} to {_plain(high)}, {found.n} {counted}"


def _checked(values: Sequence[float] | np.ndarray) -> np.ndarray:
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not len(data) or not np.isfinite(data).all():
        raise ConfigError(
            f"statistics need one or more finite numbers in a row, found {values!r:.60}"
        )
    return data


def _drawn_sign_flip(data: np.ndarray, bound: float) -> float:
    random = generator(0, "stats/sign-flip")
    extreme = 0
    for start in range(0, _DRAWS, _CHUNK):
        signs = (
            2.0 * random.integers(0, 2, (min(_CHUNK, _DRAWS - start), len(data))) - 1
        )  # (draws, pairs)
        extreme += int((np.abs(signs @ data) >= bound).sum())
    return (extreme + 1) / (_DRAWS + 1)  # the observed signs are one of the draws


@functools.cache
def _critical(n: int) -> float:
    return float(distributions.t.ppf(1 - LEVEL / 2, n - 1))


@functools.cache
def _noncentrality(n: int) -> float:
    """The difference, in standard errors, that a two-sided t test of n pairs finds with the wanted power."""

    def missing_power(noncentrality: float) -> float:
        # What the other tail adds is below 1e-6 wherever the power is near 80 %.
        return float(distributions.nct.sf(_critical(n), n - 1, noncentrality)) - POWER

    return float(optimize.brentq(missing_power, 0.0, 10 * _critical(n)))


def _leaves_out_zero(found: Summary) -> bool:
    return found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)


def _digits(value: float) -> int:
    """One digit after the point, or more where one would print a difference as none."""
    return next((digits for digits in (1, 2, 3) if abs(value) >= 0.5 * 10**-digits), 1)


def _plain(value: float) -> str:
    return f"{value:.{_digits(value)}f}"


def _signed(value: float) -> str:
    return f"{value:+.{_digits(value)}f}" if round(value, 3) else "0.0"
