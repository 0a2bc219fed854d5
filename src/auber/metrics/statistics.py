"""Statistics of paired runs: means, paired differences, corrected tests and a verdict in words.

One rule holds for all tables. A difference is significant if its 95 % t interval excludes 0 and its
p, corrected by Holm's method for all comparisons of its family, is below 0.05. p comes from the
exact sign-flip test if that test can reach significance at all (2 / 2^n times the size of the
family below 0.05: 6 pairs for one comparison, 9 for eight). With fewer pairs it comes from the
paired t test, which assumes roughly normal differences. The choice depends only on the numbers of
pairs and comparisons, never on the scores. Fewer than 3 pairs, or differences that are all equal
and so have no deviation, are never significant. Pairs that share a dev set generalise to other
seeds, not to other rows.

Checked by simulation at 3, 5 and 15 pairs: false alarms are at most 5 % for symmetric differences,
such as those of equal methods, and 5.6 % at a skewness of 0.5. The interval covers 94 % there and
89 to 91 % on exponential differences. A percentile bootstrap is far too narrow at 3 and 5 pairs, a
studentised one infinite at 3 and a third wider at 5.
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
FEWEST_PAIRS = 3  # with two, one difference of two numbers would be the whole deviation
EXACT_PAIRS = 20  # up to here all assignments of signs are enumerated: four tasks of five seeds

_DRAWS = 99_999
_CHUNK = 10_000
_ROUNDING = 1e-9  # scores are in points, so anything smaller is rounding error


@dataclass(frozen=True)
class Summary:
    """A summary of repeated measurements.

    One value has neither deviation nor interval; equal values have no interval.
    """

    n: int
    mean: float
    deviation: float | None  # of the sample, with n - 1
    low: float | None  # the 95 % t interval of the mean
    high: float | None


@dataclass(frozen=True)
class Paired:
    """A summary of paired differences, with tests against no difference."""

    differences: Summary
    p_t: float  # of the paired t test; 1 without a deviation
    p_exact: float  # of the sign-flip test
    smallest_p: float  # that the sign-flip test can give with this many pairs
    detectable: float | None  # the difference found with 80 % power at the 5 % level


@dataclass(frozen=True)
class Comparison:
    """One paired comparison in a family."""

    paired: Paired
    family: int  # the number of comparisons that p is corrected for
    exact: bool  # whether p is the sign-flip test's rather than the t test's
    p: float
    corrected: float  # 1 if there are too few pairs to test
    significant: bool


def summary(values: Sequence[float]) -> Summary:
    """Return number, mean, sample deviation and 95 % t interval."""
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
    """Return the summary and tests of differences of pairs, this method minus the other."""
    data = _checked(differences)
    found = summary(differences)
    p_t, detectable = 1.0, None
    if found.deviation:
        error = found.deviation / math.sqrt(found.n)
        p_t = float(2 * distributions.t.sf(abs(found.mean) / error, found.n - 1))
        detectable = _noncentrality(found.n) * error
    return Paired(found, p_t, sign_flip(data), smallest_p(found.n), detectable)


def sign_flip(differences: Sequence[float] | np.ndarray) -> float:
    """Return the two-sided p of the sign-flip test on the mean.

    If the two methods are exchangeable, each difference was as likely to have the other sign. The
    test is exact up to `EXACT_PAIRS` pairs and uses seeded draws beyond.
    """
    data = _checked(differences)
    bound = abs(float(data.sum())) - _ROUNDING * float(np.abs(data).sum())
    if len(data) > EXACT_PAIRS:
        return _drawn_sign_flip(data, bound)
    # The first sign is fixed: in a two-sided test, an assignment equals its mirror image.
    sums = data[:1]  # (2^i,) after i further differences
    for difference in data[1:]:
        sums = np.concatenate((sums + difference, sums - difference))
    return float(np.mean(np.abs(sums) >= bound))


def smallest_p(n: int) -> float:
    """Return the smallest p that the sign-flip test can give with n pairs."""
    return 2.0 ** (1 - n) if n <= EXACT_PAIRS else 1 / (_DRAWS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values corrected by Holm's method."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def compare(family: Mapping[str, Sequence[float]]) -> dict[str, Comparison]:
    """Return the comparisons of a family (name: differences of pairs), corrected together.

    Comparisons of fewer than `FEWEST_PAIRS` pairs cannot be significant, so the others are not
    corrected for them.
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
            exact=exact.get(name, True),
            p=p_values.get(name, each.p_exact),
            corrected=corrected.get(name, 1.0),
            significant=_excludes_zero(each.differences) and corrected.get(name, 1.0) < LEVEL,
        )
        for name, each in found.items()
    }


def verdict(comparison: Comparison, *, counted: str = "seeds") -> str:
    """Return the comparison in words; `counted` names its pairs."""
    found = comparison.paired.differences
    if found.n == 1:
        return f"one run proves nothing ({_signed(found.mean)} points)"
    if found.low is None or found.high is None:
        same = "equal" if abs(found.mean) <= _ROUNDING else f"the same {_signed(found.mean)} points"
        return f"no significant difference ({same} in all {found.n} {counted})"
    if not comparison.significant:
        reason = ""
        if found.n < FEWEST_PAIRS:
            reason = f"; at least {FEWEST_PAIRS} are needed"
        elif _excludes_zero(found):
            reason = f"; p {comparison.corrected:.2g}"
            if comparison.family > 1:
                reason += f" corrected for {comparison.family} comparisons"
        return (
            f"no significant difference ({_signed(found.mean)} points, 95 % interval "
            f"{_signed(found.low)} to {_signed(found.high)}, {found.n} {counted}{reason})"
        )
    # Numbers in the direction of the word, so that both ends of the interval are positive.
    word, low, high = (
        ("ahead", found.low, found.high) if found.mean > 0 else ("behind", -found.high, -found.low)
    )
    return (
        f"{word} by {_plain(abs(found.mean))} points, 95 % interval {_plain(low)} to "
        f"{_plain(high)}, {found.n} {counted}"
    )


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
        draws = min(_CHUNK, _DRAWS - start)
        signs = 2.0 * random.integers(0, 2, (draws, len(data))) - 1  # (draws, pairs)
        extreme += int((np.abs(signs @ data) >= bound).sum())
    return (extreme + 1) / (_DRAWS + 1)  # the observed signs are one of the draws


@functools.cache
def _critical(n: int) -> float:
    return float(distributions.t.ppf(1 - LEVEL / 2, n - 1))


@functools.cache
def _noncentrality(n: int) -> float:
    """Return the difference, in standard errors, that a t test of n pairs finds with this power."""

    def missing_power(noncentrality: float) -> float:
        # The other tail adds less than 1e-6 near a power of 80 %.
        return float(distributions.nct.sf(_critical(n), n - 1, noncentrality)) - POWER

    return float(optimize.brentq(missing_power, 0.0, 10 * _critical(n)))


def _excludes_zero(found: Summary) -> bool:
    return found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)


def _plain(value: float, sign: str = "") -> str:
    """Format with one decimal, or more if one would print a difference as 0."""
    digits = next((digits for digits in (1, 2, 3) if abs(value) >= 0.5 * 10**-digits), 1)
    return f"{value:{sign}.{digits}f}"


def _signed(value: float) -> str:
    return _plain(value, "+") if round(value, 3) else "0.0"
