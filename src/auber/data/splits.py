"""Which rows of train serve what: lists of row indices drawn by seed, written down with the run.

Protocol `seen` is the paper's: the first tuning uses all of train, and each layer redraws reward set and mini-train
from the same rows, so the reward is a training score. Protocol `heldout` cuts train once into tune, reward and watch
rows: no row of the reward set is tuned on before all decisions are made. Protocol `crossfit` is `seen` with all of train
dealt into folds besides: a row is scored by the scout of its fold, which is tuned on all the others. Nothing here ever touches
the dev set.

Beyond the paper, whose draws are plain random ones: a reward set that happens to miss a class is drawn again by class,
as is one that `reward.max_rows` bounds; the rows such a bound leaves out are used for nothing in that layer.
Within a layer reward set and mini-train are disjoint, except where `reward.fraction` is 1 under `seen`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auber.config import Config
from auber.errors import TaskError
from auber.system import seeds

Indices = tuple[int, ...]
Array = NDArray[np.int64]

# Shares of train under `heldout`; the rest is tune.
HELDOUT_REWARD = 0.3
HELDOUT_WATCH = 0.1

_LISTS = ("first", "original_first", "last_train", "last_watch")


@dataclass(frozen=True)
class LayerSplit:
    """The rows of one layer: those that reward the game and those tuned on after it."""

    mini_train: Indices
    reward: Indices


@dataclass(frozen=True)
class Splits:
    """The rows of every stage of a run, each list in ascending order."""

    protocol: str
    first: Indices
    original_first: Indices
    layers: tuple[LayerSplit, ...]
    last_train: Indices
    last_watch: Indices
    folds: tuple[Indices, ...] = ()  # all of train, under `crossfit` alone

    def without_fold(self, fold: int) -> Splits:
        """What the scout of a fold may use: every list less the rows that it is to score."""
        scored = set(self.folds[fold])

        def left(rows: Indices) -> Indices:
            return tuple(row for row in rows if row not in scored)

        return Splits(
            protocol=self.protocol,
            first=left(self.first),
            original_first=left(self.original_first),
            layers=tuple(
                LayerSplit(left(layer.mini_train), left(layer.reward)) for layer in self.layers
            ),
            last_train=left(self.last_train),
            last_watch=left(self.last_watch),
        )

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return {
            "protocol": self.protocol,
            **{name: list(getattr(self, name)) for name in _LISTS},
            "layers": [
                {"mini_train": list(item.mini_train), "reward": list(item.reward)}
                for item in self.layers
            ],
            **({"folds": [list(fold) for fold in self.folds]} if self.folds else {}),
        }


def make_splits(
    labels: Sequence[Any], config: Config, num_layers: int, without_classes: bool
) -> Splits:
    """The rows of every stage, for training rows with these labels; `without_classes`: they are numbers, tags or answers."""
    # Where there are no classes to keep, all rows are of one.
    classes = np.zeros(len(labels), np.int64) if without_classes else np.asarray(labels, np.int64)
    return _SPLITS[config.protocol](classes, config, num_layers)


def hold_out(
    rows: Sequence[int], labels: Sequence[Any] | None, share: float, seed: int
) -> tuple[Indices, Indices]:
    """Return rows to tune on and rows to score, each class in its share of both.

    `labels` are those of all rows of train; None if the rows have no classes.
    """
    members = np.asarray(rows, np.int64)
    size = int(members.max(initial=0)) + 1
    classes = np.zeros(size, np.int64) if labels is None else np.asarray(labels, np.int64)
    count, num_classes = _share(share, members), len(np.unique(classes[members]))
    if count < max(num_classes, 1):
        raise TaskError(
            f"held-out rows: at least one row of each of the {num_classes} classes is needed, "
            f"a share of {share:g} is {count} of {len(members)} rows; give more rows"
        )
    held_out = _draw_by_class(members, count, classes, seeds.generator(seed, "held-out rows"))
    rest = np.setdiff1d(members, held_out)
    if len(np.unique(classes[rest])) < num_classes:
        raise TaskError(
            "held-out rows: a class of a single row cannot be both tuned on and held out; give "
            "more rows of each class"
        )
    return _indices(rest), _indices(held_out)


def _split_seen(classes: Array, config: Config, num_layers: int) -> Splits:
    rows = np.arange(len(classes))
    watch = _draw(
        rows, _share(config.last.watch_fraction, rows), seeds.generator(config.seed, "watch rows")
    )
    _require_rows("rows to watch", watch, rows, "raise last.watch_fraction")
    layers = []
    for layer in range(num_layers):
        rng = seeds.generator(config.seed, "reward set", layer)
        uncut = _draw_reward(rows, config.reward.fraction, classes, rng, "raise reward.fraction")
        mini_train = rows if config.reward.fraction == 1 else np.setdiff1d(rows, uncut)
        _require_rows("mini-train", mini_train, rows, "lower reward.fraction")
        layers.append(
            LayerSplit(_indices(mini_train), _indices(_bound(uncut, config, classes, rng)))
        )
    return Splits(
        protocol="seen",
        first=_indices(rows),
        original_first=_indices(rows),
        layers=tuple(layers),
        last_train=_indices(np.setdiff1d(rows, watch)),
        last_watch=_indices(watch),
    )


def _split_heldout(classes: Array, config: Config, num_layers: int) -> Splits:
    rng = seeds.generator(config.seed, "heldout cut")
    rows = np.arange(len(classes))
    uncut = _draw_reward(rows, HELDOUT_REWARD, classes, rng, "choose protocol seen")
    others = np.setdiff1d(rows, uncut)
    watch = _draw(others, _share(HELDOUT_WATCH, rows), rng)
    _require_rows("rows to watch", watch, rows, "choose protocol seen")
    tune = np.setdiff1d(others, watch)
    reward = _indices(_bound(uncut, config, classes, rng))
    # Here reward.fraction only says how small mini-train is; 1 would leave it nothing, so then it is all of tune.
    share = 1 - config.reward.fraction or 1.0
    layers = []
    for layer in range(num_layers):
        mini_train = _draw(
            tune, _share(share, tune), seeds.generator(config.seed, "mini-train", layer)
        )
        _require_rows("mini-train", mini_train, tune, "lower reward.fraction")
        layers.append(LayerSplit(_indices(mini_train), reward))
    tune_and_reward = _indices(np.setdiff1d(rows, watch))
    return Splits(
        protocol="heldout",
        first=_indices(tune),
        original_first=tune_and_reward,
        layers=tuple(layers),
        last_train=tune_and_reward,
        last_watch=_indices(watch),
    )


def _split_crossfit(classes: Array, config: Config, num_layers: int) -> Splits:
    return replace(
        _split_seen(classes, config, num_layers), protocol="crossfit", folds=_deal(classes, config)
    )


def _deal(classes: Array, config: Config) -> tuple[Indices, ...]:
    """All rows in folds of even size, each class evenly over them."""
    folds = config.reward.folds
    if len(classes) < folds:
        raise TaskError(
            f"folds: at least one row for each of {folds} is needed, found {len(classes)}; lower reward.folds or give more rows"
        )
    rng = seeds.generator(config.seed, "folds")
    shuffled = rng.permutation(len(classes))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    return tuple(_indices(by_class[fold::folds]) for fold in range(folds))


_SPLITS: dict[str, Callable[[Array, Config, int], Splits]] = {
    "seen": _split_seen,
    "heldout": _split_heldout,
    "crossfit": _split_crossfit,
}


def _draw(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """So many of the rows at random, all of them where they are fewer."""
    return rng.choice(rows, min(count, len(rows)), replace=False)


def _draw_reward(
    rows: Array, fraction: float, classes: Array, rng: np.random.Generator, remedy: str
) -> Array:
    """A share of the rows that holds each class: at random, and by class only where chance left one out."""
    count = _share(fraction, rows)
    num_classes = len(np.unique(classes[rows]))
    if count < max(num_classes, 1):
        raise TaskError(
            f"reward set: at least one row of each of the {num_classes} classes is needed, "
            f"it would have {count} of {len(rows)} rows; {remedy} or give more rows"
        )
    drawn = _draw(rows, count, rng)
    if len(np.unique(classes[drawn])) < num_classes:
        drawn = _draw_by_class(rows, count, classes, rng)
    return drawn


def _bound(rows: Array, config: Config, classes: Array, rng: np.random.Generator) -> Array:
    """No more of the rows than `reward.max_rows` allows."""
    most = config.reward.max_rows
    if not 0 < most < len(rows):
        return rows
    num_classes = len(np.unique(classes[rows]))
    if most < num_classes:
        raise TaskError(
            f"reward set: at least one row of each of the {num_classes} classes is needed, "
            f"reward.max_rows allows {most} rows; raise it to {num_classes} or more"
        )
    return _draw_by_class(rows, most, classes, rng)


def _draw_by_class(rows: Array, count: int, classes: Array, rng: np.random.Generator) -> Array:
    """So many of the rows, each class in its share of them and at least once."""
    members = [rows[classes[rows] == name] for name in np.unique(classes[rows])]
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


def _require_rows(name: str, drawn: Array, rows: Array, remedy: str) -> None:
    if not len(drawn):
        raise TaskError(
            f"train, {name}: at least one row is needed, it would have none of {len(rows)}; {remedy} or give more rows"
        )
