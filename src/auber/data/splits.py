"""Draw the rows for each stage of a run: lists of indices into train that depend on the seed.

The dev set is never used. There are three protocols:

- `seen` is the paper's. The first tuning uses all of train, and each layer draws its reward set and
  mini-train from the same rows, so the reward is a training score.
- `heldout` divides train once into tune, reward and watch rows. No row of the reward set is trained
  on before all decisions are made.
- `crossfit` is `seen` with all of train divided into folds. Each row is scored by the fold model
  that was trained without its fold. Nothing is tuned between layers, so all rows of train are in
  the reward set of every layer, those of mini-train too. Rows that share a text stay in one fold
  (`group_rows`); otherwise a fold model would score a premise that it knows with another label.

With `size.tolerance`, rows are held out of all of these.

Differences from the paper, which draws at random: a reward set that misses a class is drawn again
by class, as is one that `reward.max_rows` limits. The rows beyond that limit are not used in that
layer. Within a layer, reward set and mini-train are disjoint under `heldout`, and under `seen`
unless `reward.fraction` is 1.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auber.config import Config
from auber.data.rows import AnyRows
from auber.errors import TaskError
from auber.system import seeds

logger = logging.getLogger(__name__)

Indices = tuple[int, ...]
Array = NDArray[np.int64]

# Shares of train under `heldout`; the rest is tune.
HELDOUT_REWARD = 0.3
HELDOUT_WATCH = 0.1
HELD_OUT_SHARE = 0.2  # of train, to choose a size by
_OPTIONAL = ("folds", "held_out")


@dataclass(frozen=True)
class LayerSplit:
    """The rows of one layer: to tune on after its search, and to compute rewards with."""

    mini_train: Indices
    reward: Indices


@dataclass(frozen=True)
class Splits:
    """The rows of every stage of a run, each list in ascending order."""

    protocol: str
    first: Indices
    original_first: Indices
    last_train: Indices
    last_watch: Indices
    layers: tuple[LayerSplit, ...]
    folds: tuple[Indices, ...] = ()  # all of train, only under `crossfit`
    held_out: Indices = ()  # in no other list, to choose a size by (`size.tolerance`)

    def without_fold(self, fold: int) -> Splits:
        """Return the rows for the model of a fold: every list without the rows of that fold."""
        return self.without(self.folds[fold])

    def without(self, rows: Indices) -> Splits:
        """Return every list without these rows."""
        held_out = set(rows)

        def rest(rows: Indices) -> Indices:
            return tuple(row for row in rows if row not in held_out)

        first, original = rest(self.first), rest(self.original_first)
        train, watch = rest(self.last_train), rest(self.last_watch)
        layers = (LayerSplit(rest(layer.mini_train), rest(layer.reward)) for layer in self.layers)
        return Splits(self.protocol, first, original, train, watch, tuple(layers))

    def to_json(self) -> dict[str, Any]:
        """Return a plain JSON object."""
        data = {**vars(self), "layers": [vars(layer) for layer in self.layers]}
        return {name: rows for name, rows in data.items() if rows or name not in _OPTIONAL}


def make_splits(
    labels: Sequence[Any],
    config: Config,
    num_layers: int,
    without_classes: bool,
    rows: AnyRows | None = None,
) -> Splits:
    """Return the rows of every stage, for train rows with these labels.

    `without_classes`: the labels are numbers, tags or answers, so all rows count as one class.
    `rows` are the train rows themselves; rows that share a text stay in one fold.
    """
    classes = np.zeros(len(labels), np.int64) if without_classes else np.asarray(labels, np.int64)
    split = _split_heldout if config.protocol == "heldout" else _split_seen
    splits = split(classes, config, num_layers)
    if config.protocol == "crossfit":
        splits = replace(splits, folds=_deal(classes, config, rows))
    if config.size.tolerance is None:
        return splits
    count = _count_held_out(len(labels), config.size.tolerance)
    own = None if without_classes else labels
    _, held_out = hold_out(range(len(labels)), own, count / len(labels), config.seed)
    return replace(splits.without(held_out), held_out=held_out)


def hold_out(
    rows: Sequence[int], labels: Sequence[Any] | None, share: float, seed: int
) -> tuple[Indices, Indices]:
    """Return rows to tune on and rows to score, each class in its share of both.

    `labels` are those of all rows of train; None if the rows have no classes.
    """
    members = np.asarray(rows, np.int64)
    size = int(members.max(initial=0)) + 1
    classes = np.zeros(size, np.int64) if labels is None else np.asarray(labels, np.int64)
    count, rng = _share(share, members), seeds.generator(seed, "held-out rows")
    found = f"a share of {share:g} is {count} of {len(members)} rows; give more rows"
    held_out = _draw_by_class("held-out rows", members, count, classes, rng, found)
    rest = np.setdiff1d(members, held_out)
    if len(np.unique(classes[rest])) < len(np.unique(classes[members])):
        raise TaskError(
            "held-out rows: a class of a single row cannot be both tuned on and held out; give "
            "more rows of each class"
        )
    return _indices(rest), _indices(held_out)


def _count_held_out(num_rows: int, tolerance: float) -> int:
    """Return the number of rows to choose a size by.

    With fewer rows, no size could be shown to stay within the tolerance: even if it loses none of n
    rows, the bound on the share that it loses is 3 / n (at 95 %).
    """
    fewest = math.ceil(300 / tolerance)
    if 2 * fewest > num_rows:
        raise TaskError(
            f"--tolerance {tolerance:g} needs {fewest} rows held out of train, and that is more "
            f"than half of {num_rows}; give {2 * fewest} rows or more, or a tolerance of at least "
            f"{math.ceil(6000 / num_rows) / 10:g}"
        )
    return max(fewest, round(HELD_OUT_SHARE * num_rows))


def set_aside(rows: AnyRows, classes: Sequence[Any], share: float) -> tuple[Indices, Indices]:
    """Return the rows to keep, and about a share of each class that is set aside.

    Rows with a text in common stay together, so that no text is on both sides. The rows set aside
    are the same for every seed.
    """
    chosen = _draw_groups(_connect(range(len(rows)), _texts_to_share(rows)), classes, share)
    if not chosen:
        raise TaskError(
            f"dev: none of {len(rows)} rows can be set aside to evaluate on: each is alone in its "
            "class or shares a text with the others; give --dev"
        )
    return _indices(np.setdiff1d(np.arange(len(rows)), chosen)), chosen


def set_aside_texts(
    rows: AnyRows, names: Sequence[str] | None, share: float
) -> tuple[Indices, Indices]:
    """Return the rows to tune on, and about a share to measure the agreement on.

    Rows of the same group stay together if `names` names the group of each row, else rows with a
    text in common, as far as groups of texts are not larger than the share.
    """
    most = max(1, round(share * len(rows)))
    if names is not None:
        groups = _connect(range(len(rows)), [(name,) for name in names])
    else:
        groups, divided = _divide(_texts_to_share(rows), most)
        if divided:
            logger.warning(
                "texts: %d of %d rows are connected by the texts that they share, in groups of "
                "more than the %d rows to measure on; these are divided by their first text, so a "
                "second text may be on both sides; name what belongs together (group)",
                divided, len(rows), most,
            )  # fmt: skip
    chosen = _draw_groups(groups, [0] * len(rows), share)
    if not chosen:
        raise TaskError(
            f"--group: a fifth of the rows, {most}, are set aside by whole groups, found no group "
            f"that small among {len(groups)}; give smaller groups"
        )
    return _indices(np.setdiff1d(np.arange(len(rows)), chosen)), chosen


def _draw_groups(groups: Sequence[Indices], classes: Sequence[Any], share: float) -> Indices:
    """Return the rows of groups drawn at random, at most a share of each class."""
    left = {name: round(share * size) for name, size in Counter(classes).items()}
    chosen: list[int] = []
    for place in seeds.generator(0, "dev rows").permutation(len(groups)):
        counts = Counter(classes[row] for row in groups[place])
        if all(count <= left[name] for name, count in counts.items()):
            left = {name: count - counts[name] for name, count in left.items()}
            chosen += groups[place]
    return tuple(sorted(chosen))


def _split_seen(classes: Array, config: Config, num_layers: int) -> Splits:
    rows = np.arange(len(classes))
    share, fraction = config.last.watch_fraction, config.reward.fraction
    watch = _draw(rows, _share(share, rows), seeds.generator(config.seed, "watch rows"))
    if share:
        _require_rows("rows to watch", watch, "raise last.watch_fraction")
    layers = []
    for layer in range(num_layers):
        rng = seeds.generator(config.seed, "reward set", layer)
        uncut = _draw_reward(rows, fraction, classes, rng, "raise reward.fraction")
        mini_train = rows if fraction == 1 else np.setdiff1d(rows, uncut)
        _require_rows("mini-train", mini_train, "lower reward.fraction")
        rewarded = rows if config.protocol == "crossfit" else uncut
        reward = _bound(rewarded, config.reward.max_rows, classes, rng)
        layers.append(LayerSplit(_indices(mini_train), _indices(reward)))
    first, last = _indices(rows), _indices(np.setdiff1d(rows, watch))
    return Splits(config.protocol, first, first, last, _indices(watch), tuple(layers))


def _split_heldout(classes: Array, config: Config, num_layers: int) -> Splits:
    rng = seeds.generator(config.seed, "heldout cut")
    rows = np.arange(len(classes))
    uncut = _draw_reward(rows, HELDOUT_REWARD, classes, rng, "choose protocol seen")
    others = np.setdiff1d(rows, uncut)
    watch = _draw(others, _share(HELDOUT_WATCH, rows), rng)
    _require_rows("rows to watch", watch, "choose protocol seen")
    tune = np.setdiff1d(others, watch)
    reward = _indices(_bound(uncut, config.reward.max_rows, classes, rng))
    # Here reward.fraction only sets the size of mini-train; with 1, which would leave it empty, it
    # is all of tune.
    count = _share(1 - config.reward.fraction or 1.0, tune)
    layers = []
    for layer in range(num_layers):
        mini_train = _draw(tune, count, seeds.generator(config.seed, "mini-train", layer))
        _require_rows("mini-train", mini_train, "lower reward.fraction")
        layers.append(LayerSplit(_indices(mini_train), reward))
    last = _indices(np.setdiff1d(rows, watch))
    return Splits("heldout", _indices(tune), last, last, _indices(watch), tuple(layers))


def group_rows(rows: AnyRows, most: int) -> list[Indices]:
    """Return the rows in groups that share no text with each other.

    Rows with any text in common are in one group. A group of more than `most` rows is divided by
    first texts, and groups that are still larger into single rows, with a warning.
    """
    groups, divided = _divide(_texts_to_share(rows), most)
    if divided:
        logger.warning(
            "folds: %d of %d train rows are connected by the texts that they share, in groups of "
            "more than the %d rows of a fold; these are divided by their first text, so a fold "
            "model may score a text that it was tuned on",
            divided, len(rows), most,
        )  # fmt: skip
    return groups


def _divide(texts: Sequence[tuple[Hashable, ...]], most: int) -> tuple[list[Indices], int]:
    """Return the groups of `group_rows`, and how many rows were in groups that were divided."""
    groups: list[Indices] = []
    divided = 0
    for group in _connect(range(len(texts)), texts):
        if len(group) <= most:
            groups.append(group)
            continue
        divided += len(group)
        for part in _connect(group, [text[:1] for text in texts]):
            groups += [part] if len(part) <= most else [(row,) for row in part]
    return groups, divided


def _texts_to_share(rows: AnyRows) -> list[tuple[Hashable, ...]]:
    """Return the texts of each row; a sentence of tagged words is one text, its words are not."""
    texts: list[tuple[Hashable, ...]] = list(rows.texts())
    return [(words,) for words in texts] if rows.kind == "tokens" else texts


def _connect(rows: Iterable[int], texts: Sequence[tuple[Hashable, ...]]) -> list[Indices]:
    """Return the connected components of rows that have a text in common."""
    parents: dict[int, int] = {}

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    known: dict[Hashable, int] = {}
    for row in rows:
        parents[row] = row
        for text in texts[row]:
            parents[root(row)] = root(known.setdefault(text, row))
    groups: dict[int, list[int]] = {}
    for row in parents:
        groups.setdefault(root(row), []).append(row)
    return [tuple(group) for group in groups.values()]


def _deal(classes: Array, config: Config, rows: AnyRows | None) -> tuple[Indices, ...]:
    """Divide all rows into folds of even size, with each class spread evenly over them.

    Groups go first, the largest first, each to the fold that has the fewest rows of its classes.
    Single rows even out what is left.
    """
    folds = config.reward.folds
    if len(classes) < folds:
        raise TaskError(
            f"folds: at least one row for each of {folds} is needed, found {len(classes)}; "
            "lower reward.folds or give more rows"
        )
    rng = seeds.generator(config.seed, "folds")
    shuffled = rng.permutation(len(classes)).tolist()
    grouped = [] if rows is None else group_rows(rows, len(classes) // folds)
    group_of = {row: group for group in grouped if len(group) > 1 for row in group}
    groups = list(dict.fromkeys(group_of.get(row, (row,)) for row in shuffled))
    groups.sort(key=lambda group: (-len(group), int(classes[group[0]])))
    sizes = Counter(classes.tolist())
    dealt: list[list[int]] = [[] for _ in range(folds)]
    counts = [Counter[int]() for _ in range(folds)]  # of each fold, rows by class
    for group in groups:
        own = Counter(classes[list(group)].tolist())

        def crowding(fold: int, own: Counter[int] = own) -> tuple[float, int]:
            shares = (number * counts[fold][name] / sizes[name] for name, number in own.items())
            return sum(shares), len(dealt[fold])

        fold = min(range(folds), key=crowding)
        dealt[fold] += group
        counts[fold] += own
    return tuple(tuple(sorted(fold)) for fold in dealt)


def draw_rows(rows: Indices, most: int, seed: int, purpose: str) -> Indices:
    """Return the rows, or a random draw of them, in order, if there are more than `most`."""
    if len(rows) <= most:
        return rows
    return _indices(seeds.generator(seed, purpose).choice(rows, most, replace=False))


def _draw(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """Draw `count` of the rows at random, or all of them if there are fewer."""
    return rng.choice(rows, min(count, len(rows)), replace=False)


def _draw_reward(
    rows: Array, fraction: float, classes: Array, rng: np.random.Generator, remedy: str
) -> Array:
    """Draw a share of the rows at random, and again by class if a class is missing."""
    count = _share(fraction, rows)
    drawn = _draw(rows, count, rng)
    if len(np.unique(classes[drawn])) == len(np.unique(classes[rows])):
        return drawn
    found = f"it would have {count} of {len(rows)} rows; {remedy} or give more rows"
    return _draw_by_class("reward set", rows, count, classes, rng, found)


def _bound(rows: Array, most: int, classes: Array, rng: np.random.Generator) -> Array:
    """Draw at most this number of the rows by class; 0: return all of them."""
    if not 0 < most < len(rows):
        return rows
    found = f"reward.max_rows allows {most}; raise it"
    return _draw_by_class("reward set", rows, most, classes, rng, found)


def _draw_by_class(
    name: str, rows: Array, count: int, classes: Array, rng: np.random.Generator, found: str
) -> Array:
    """Draw `count` of the rows, each class in proportion and at least once."""
    members = [rows[classes[rows] == each] for each in np.unique(classes[rows])]
    if count < max(len(members), 1):
        raise TaskError(
            f"{name}: at least one row of each of the {len(members)} classes is needed, {found}"
        )
    sizes = np.array([len(group) for group in members])
    ideal = count * sizes / len(rows)
    quota = np.maximum(np.floor(ideal).astype(np.int64), 1)
    while quota.sum() < count:
        quota[np.argmax(np.where(quota < sizes, ideal - quota, -np.inf))] += 1
    while quota.sum() > count:
        quota[np.argmax(np.where(quota > 1, quota - ideal, -np.inf))] -= 1
    return np.concatenate(
        [_draw(group, int(size), rng) for group, size in zip(members, quota, strict=True)]
    )


def _share(fraction: float, rows: Array) -> int:
    return int(fraction * len(rows) + 0.5)


def _indices(rows: Array) -> Indices:
    return tuple(sorted(rows.tolist()))


def _require_rows(name: str, drawn: Array, remedy: str) -> None:
    if not len(drawn):
        raise TaskError(
            f"train, {name}: at least one row is needed, there would be none; "
            f"{remedy} or give more rows"
        )
