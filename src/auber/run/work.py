"""How much work the stages of a run are beside each other, for whoever shows the time left; nothing else depends on it.

The unit is one row that a model is tuned on once. What a search asks for is not known before: the numbers of its rewards are those
of usual ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from auber.data.splits import Splits
from auber.models.encoders.base import Encoder
from auber.run.job import Job

_FORWARD = (
    1 / 3
)  # a row that is computed and not learned from: two thirds of a tuning are its way back
_REWARD = 1 / 10  # a row of a reward, which begins from what was kept of the layers before
_REWARDS_OF_A_GAME = 4  # that were not asked for before


class Work:
    """The work of each stage, for a job on these splits of train."""

    def __init__(self, job: Job, splits: Splits, encoder: Encoder) -> None:
        self._job, self._splits, self._encoder = job, splits, encoder

    def first(self, splits: Splits | None = None) -> float:
        """The first tuning, of the run's own model or on the rows of a scout."""
        return float(self._job.config.first.epochs * len((splits or self._splits).first))

    def later(self, layers: Sequence[int], splits: Splits | None = None) -> list[float]:
        """The tunings after these layers, and the last."""
        config, own = self._job.config, splits or self._splits
        after = [config.layer.epochs * len(own.layers[layer].mini_train) for layer in layers]
        return [float(each) for each in (*after, config.last.epochs * len(own.last_train))]

    def scouts(self, layers: Sequence[int]) -> list[float]:
        """All tunings of all scouts."""
        folds = map(self._splits.without_fold, range(len(self._splits.folds)))
        return [work for own in folds for work in (self.first(own), *self.later(layers, own))]

    def search(self, layer: int) -> float:
        """The rewards of a layer's search: the layers behind it are computed for each."""
        heads, config = len(self._encoder.present(layer)), self._job.config
        rewards = {"exhaustive": 1 << heads, "greedy": heads * (heads + 1) // 2}.get(
            self._job.method.name, heads + _REWARDS_OF_A_GAME * config.agent.episodes
        )
        behind = 1 - layer / self._encoder.num_layers
        return _REWARD * min(rewards, 1 << heads) * len(self._splits.layers[layer].reward) * behind

    def ranking(self, method: str) -> float:
        """What a method that names all heads at once goes by."""
        rows, voita = len(self._splits.first), self._job.config.voita
        return float({"random": 0, "voita": voita.trials * voita.epochs * rows}.get(method, rows))

    def evaluation(self) -> float:
        """The scores at the end."""
        task = self._job.task
        return _FORWARD * (len(task.train.labels) + len(task.dev.labels))
