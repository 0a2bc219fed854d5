"""How long the stages of a run take relative to each other, for the time left.

Nothing else depends on it. The unit is tuning on one row once.
"""

from __future__ import annotations

from auber.data.splits import Splits
from auber.models.encoders.base import Encoder
from auber.run.request import Request
from auber.run.trials import EPOCHS, RATES, count_rows
from auber.run.waypoints import Waypoint
from auber.search.rankings.exchange import searches

# Of a row: computing it, its gradients, tuning gates on it alone, scoring it from cached layers.
_FORWARD, _GRADIENTS, _GATES, _REWARD = 1 / 4, 3 / 4, 2 / 3, 1 / 10
_PLAN = 1 / 8  # scoring an unpruned model on a row, without padding
_REWARDS_OF_A_PLAYER = 50
_REWARDS_PER_GAME = 4  # that were not scored before, in a usual game


class Effort:
    """The effort of each stage. The number of rewards of a search is that of a usual one."""

    def __init__(self, request: Request, splits: Splits, encoder: Encoder) -> None:
        self._request, self._splits, self._encoder = request, splits, encoder
        self._config = request.config

    @property
    def _share(self) -> float:
        """The share of the multiply-adds that remains, 1 if it is not known."""
        return min(self._config.size.shares, default=1.0)

    def first(self) -> float:
        """Return the effort of the first tuning."""
        return float(self._config.first.epochs * len(self._splits.first))

    def trials(self) -> tuple[float, ...]:
        """Return the effort of each trial of a learning rate."""
        rows = min(len(self._splits.first), count_rows(self._request.hardware))
        return (float(EPOCHS * rows),) * len(RATES)

    def after_layer(self, layer: int) -> float:
        """Return the effort of the tuning after a layer."""
        return float(self._config.layer.epochs * len(self._splits.layers[layer].mini_train))

    def last(self, waypoint: Waypoint | None = None, *, has_teacher: bool = True) -> float:
        """Return the effort of the last tuning, or of the part of it that a waypoint gets."""
        last, teaching, request = self._config.last, self._config.teacher, self._request
        share, target, epochs = self._share, None, last.epochs
        if waypoint is not None:
            share, epochs, target, _ = waypoint
        rows = len(self._splits.last_train)
        watched = last.evaluations_per_epoch * len(self._splits.last_watch)
        # The embeddings and the optimiser take as long at any size.
        each = (1 + share) / 2
        effort = each * (rows + _FORWARD * watched)
        if has_teacher and request.is_taught(target):
            effort += each * teaching.copies * rows
            if not request.task.is_answered or teaching.hidden or teaching.copies:
                effort += _FORWARD * (1 + teaching.copies) * rows
        return epochs * effort

    def fold_model(self, fold: int, layers: list[int]) -> tuple[float, ...]:
        """Return the effort of each tuning of a fold model."""
        own = Effort(self._request, self._splits.without_fold(fold), self._encoder)
        after_layers = map(own.after_layer, layers)
        tunings = (own.first(), *after_layers, own.last(has_teacher=False))
        return tuple(effort for effort in tunings if effort)  # those without epochs do not begin

    def search(self, layer: int) -> float:
        """Return the effort of a layer's rewards; each computes the layers behind it."""
        heads = len(self._encoder.present(layer))
        usual = heads + _REWARDS_PER_GAME * self._config.agent.episodes
        masks = 1 << heads
        by_method = {
            "exhaustive": masks,
            "greedy": heads * (heads + 1) // 2,
            "surrogate": self._config.surrogate.rewards,
        }
        name = self._request.method.name
        guess = _REWARDS_OF_A_PLAYER if ":" in name else usual  # one's own may ask for any number
        rewards = min(by_method.get(name, min(guess, masks // 2)), masks)
        behind = 1 - layer / self._encoder.num_layers
        return _REWARD * rewards * len(self._splits.layers[layer].reward) * behind

    def ranking(self, method: str, share: float | None = None) -> tuple[float, ...]:
        """Return the efforts of a ranking, to a share; without one, that of the settings."""
        config, rows = self._config, len(self._splits.first)
        gates = _GATES * config.voita.trials * config.voita.epochs * rows
        efforts: tuple[float, ...] = (
            {"random": 0.0, "voita": gates}.get(method, _GRADIENTS * rows),
        )
        share = share or self._share
        if method == "exchange" and (not config.size.keep or searches(config.size, share)):
            plans = config.search.rewards * min(rows, config.search.rows)
            efforts += (_PLAN * share * plans,)
        return efforts

    def evaluation(self) -> float:
        """Return the effort of the scores at the end."""
        task = self._request.task
        models = len(self._request.sizes) or 1
        rows = models * len(task.train.labels) + (models + 1) * len(task.dev.labels)
        return _FORWARD * rows
